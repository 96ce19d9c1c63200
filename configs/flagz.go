package configs

import (
	"maps"
	"net/url"

	"github.com/spf13/pflag"
)

// classified replaces the value of a flag that may be secret, as in Kubernetes components.
const classified = "CLASSIFIED"

// WithoutPassword returns a URL with its password masked, for everybody who may read where
// something comes from. A text that is not a URL is returned unchanged.
func WithoutPassword(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.User == nil {
		return text
	}
	return u.Redacted()
}

// Flagz returns every flag of the command line with its value, or with its default if it was not
// given. Values that may be secret are masked.
func (c *Config) Flagz() map[string]string { return maps.Clone(c.flagz) }

// flagzOf reads the flags from a flag set; a nil set has none.
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
