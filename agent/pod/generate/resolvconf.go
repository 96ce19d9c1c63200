package generate

import (
	"errors"
	"fmt"
	"strings"
)

// ResolvConf is what a resolv.conf file says, in the file's order.
type ResolvConf struct {
	Nameservers []string
	Searches    []string
	// Options are name or name:value. Each name stands once.
	Options []string
}

// ParseResolvConf reads a resolv.conf file. Nameserver lines add up, the last search line counts,
// and an option replaces an earlier one of its name. A search domain loses its final dot, and a
// search for the root is dropped. Lines of other kinds are ignored. The error names every line that
// is wrong. Callers bound how much they read (the kubelet reads 10 MiB).
func ParseResolvConf(content []byte) (ResolvConf, error) {
	var (
		conf ResolvConf
		errs []error
	)
	number := 0
	for line := range strings.Lines(string(content)) {
		number++
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		switch fields[0] {
		case "nameserver":
			if len(fields) < 2 {
				errs = append(errs, fmt.Errorf("resolv.conf line %d: nameserver without an address", number))
				continue
			}
			conf.Nameservers = append(conf.Nameservers, fields[1])
		case "search":
			conf.Searches = nil
			for _, domain := range fields[1:] {
				if domain != "." {
					conf.Searches = append(conf.Searches, strings.TrimSuffix(domain, "."))
				}
			}
		case "options":
			for _, option := range fields[1:] {
				conf.Options = setOption(conf.Options, option)
			}
		}
	}
	return conf, errors.Join(errs...)
}

// setOption adds an option, in the place of an earlier one of its name.
func setOption(options []string, option string) []string {
	name, _, _ := strings.Cut(option, ":")
	for i, existing := range options {
		if other, _, _ := strings.Cut(existing, ":"); other == name {
			options[i] = option
			return options
		}
	}
	return append(options, option)
}
