package configs

import (
	"maps"

	"github.com/spf13/pflag"
)

// classified is shown of a flag whose value may be secret, as components of Kubernetes do.
const classified = "CLASSIFIED"

// Flagz returns every flag of the command line with its value, the default of one that was not given. What may be secret is not told.
func (c *Config) Flagz() map[string]string { return maps.Clone(c.flagz) }

// flagzOf reads them from a flag set; nil has none.
func flagzOf(fs *pflag.FlagSet) map[string]string {
	out := map[string]string{}
	if fs == nil {
		return out
	}
	fs.VisitAll(func(f *pflag.Flag) {
		value := f.Value.String()
		if v, ok := f.Value.(*flagValue); ok && v.kind == kindHeaders && value != "" {
			value = classified
		}
		out[f.Name] = value
	})
	return out
}
