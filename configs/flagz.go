package configs

import (
	"maps"
	"net/url"

	"github.com/spf13/pflag"
)

// classified is shown of a flag whose value may be secret, as components of Kubernetes do.
const classified = "CLASSIFIED"

// WithoutPassword returns a URL with its password masked, for whoever may read where something comes from. What is no URL stays as it is.
func WithoutPassword(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.User == nil {
		return text
	}
	return u.Redacted()
}

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
		if f.Name == "manifest-url" {
			value = WithoutPassword(value)
		}
		out[f.Name] = value
	})
	return out
}
