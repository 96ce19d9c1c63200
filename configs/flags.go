package configs

import (
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
)

// berthPrefix begins the paths of berth's own document in lists that have paths of both documents.
const berthPrefix = "berth:"

// flagSpec describes one flag.
type flagSpec struct {
	name string
	kind flagKind
	// path is the field that the flag sets, as in [Config.Origin]; empty for a flag without a
	// field.
	path string
	// text is the help text, in one line.
	text string
}

// AddFlags adds every flag of the kubelet, with the kubelet's names, and berth's own flags to fs,
// or only those with the given names; "_" in a name means "-". The caller adds --help and
// --version. [Load] reads the values. The help texts of flags for fields of the config file show no
// defaults, because the file may set them.
func AddFlags(fs *pflag.FlagSet, only ...string) {
	fs.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
	})
	defaults := flagDefaults()
	for _, spec := range slices.Concat(fieldFlags(), plainFlags()) {
		if len(only) > 0 && !slices.Contains(only, spec.name) {
			continue
		}
		shorthand := ""
		if spec.name == "v" {
			shorthand = "v"
		}
		f := fs.VarPF(&flagValue{kind: spec.kind, text: defaults[spec.name]}, spec.name, shorthand, spec.text)
		if spec.kind == kindBool {
			f.NoOptDefVal = "true"
		}
	}
	if len(only) > 0 {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(ignoredFlags())) {
		f := fs.VarPF(&flagValue{kind: kindString}, name, "", "Accepted without effect: "+ignoredFlags()[name]+".")
		f.NoOptDefVal = "true"
		f.Hidden = true
	}
}

// flagDefaults returns the defaults of flags without a field in a file.
func flagDefaults() map[string]string {
	return map[string]string{
		"config":                                DefaultFile,
		"config-dir":                            DefaultDropInDir,
		"root-dir":                              DefaultRootDir,
		"cert-dir":                              filepath.Join(DefaultRootDir, "pki"),
		"minimum-container-ttl-duration":        "0s",
		"maximum-dead-containers-per-container": "1",
		"maximum-dead-containers":               "-1",
	}
}

// given has the flags of a command line, by name.
type given map[string]*flagValue

func flagsGiven(fs *pflag.FlagSet) given {
	g := given{}
	if fs == nil {
		return g
	}
	fs.Visit(func(f *pflag.Flag) {
		if v, ok := f.Value.(*flagValue); ok {
			g[f.Name] = v
		}
	})
	return g
}

// text returns the flag's text or its default.
func (g given) text(name string) string {
	if v, ok := g[name]; ok {
		return v.text
	}
	return flagDefaults()[name]
}

// path returns the flag's text as an absolute path; a relative path starts at the working
// directory.
func (g given) path(name string) (string, error) {
	p := g.text(name)
	if p == "" {
		return "", nil
	}
	abs, err := filepath.Abs(p)
	if err != nil {
		return "", fmt.Errorf("--%s: %w", name, err)
	}
	return abs, nil
}

// lay puts the given flags that have a field over the merged files. A map replaces the files' map,
// except for feature gates.
func (g given) lay(l layers, r *report) {
	for _, spec := range fieldFlags() {
		v, ok := g[spec.name]
		if !ok {
			continue
		}
		kind, path := kubeletDoc, spec.path
		if p, isBerth := strings.CutPrefix(path, berthPrefix); isBerth {
			kind, path = berthDoc, p
		}
		value := v.json
		if slices.Contains(pathFields(kind), path) && v.text != "" {
			abs, err := filepath.Abs(v.text)
			if err != nil {
				r.errs = append(r.errs, fmt.Errorf("--%s: %w", spec.name, err))
			}
			value = abs
		}
		if l[kind] == nil {
			l[kind] = map[string]any{}
		}
		if old, _ := lookup(l[kind], path); path == "featureGates" && old != nil {
			if m, isMap := old.(map[string]any); isMap {
				value = joinMaps(maps.Clone(m), value.(map[string]any))
			}
		} else {
			r.origins.forget(kind, path)
		}
		r.origins.set(kind, path, "--"+spec.name)
		put(l[kind], path, value)
	}
}

// plain returns the settings that only flags have, and reports wrong values.
func (g given) plain(r *report) Flags {
	path := func(name string) string {
		p, err := g.path(name)
		if err != nil {
			r.errs = append(r.errs, err)
		}
		return p
	}
	f := Flags{
		RootDir:             path("root-dir"),
		Kubeconfig:          path("kubeconfig"),
		BootstrapKubeconfig: path("bootstrap-kubeconfig"),
		CertDir:             path("cert-dir"),
		HostnameOverride:    g.text("hostname-override"),
		NodeLabels:          g.labels(r),
		NodeIPs:             g.nodeIPs(r),
		CloudProvider:       g.text("cloud-provider"),
		RuntimeCgroups:      g.text("runtime-cgroups"),
		Lock: LockOptions{
			File: path("lock-file"), ExitOnContention: g.text("exit-on-lock-contention") == "true",
		},
		Credentials: CredentialProviderOptions{
			ConfigPath: path("image-credential-provider-config"),
			BinDir:     path("image-credential-provider-bin-dir"),
		},
		ContainerGC: ContainerGCOptions{
			MaxPerContainer: g.number("maximum-dead-containers-per-container"),
			MaxTotal:        g.number("maximum-dead-containers"),
		},
	}
	f.ContainerGC.MinAge, _ = time.ParseDuration(g.text("minimum-container-ttl-duration"))
	if _, moved := g["cert-dir"]; !moved {
		f.CertDir = filepath.Join(f.RootDir, "pki")
	}
	return f
}

// number returns a flag with a whole number. Its text was parsed when the flag was set, or is this
// package's default.
func (g given) number(name string) int {
	n, _ := strconv.Atoi(g.text(name))
	return n
}

func (g given) labels(r *report) map[string]string {
	labels := map[string]string{}
	v, ok := g["node-labels"]
	if !ok {
		return labels
	}
	for key, value := range v.json.(map[string]any) {
		labels[key] = value.(string)
	}
	checkNodeLabels(labels, r)
	return labels
}

func (g given) nodeIPs(r *report) []netip.Addr {
	fail := func(format string, args ...any) {
		r.errs = append(r.errs, &FieldError{Origin: "--node-ip", Message: fmt.Sprintf(format, args...)})
	}
	var ips []netip.Addr
	for _, text := range splitNonEmpty(g.text("node-ip"), ",") {
		ip, err := netip.ParseAddr(text)
		if err != nil || ip.Zone() != "" {
			fail("%q is not an IP address", text)
			continue
		}
		ips = append(ips, ip.Unmap())
	}
	if len(ips) > 2 || len(ips) == 2 && ips[0].Is4() == ips[1].Is4() {
		fail("want one address, or one of each family, got %v", ips)
	}
	if len(ips) == 2 && (ips[0].IsUnspecified() || ips[1].IsUnspecified()) {
		fail("an unspecified address must stand alone, got %v", ips)
	}
	return ips
}

// checkPlain reports wrong values of flags without a field, and warns about flags without effect.
func (g given) checkPlain(f Flags, r *report) {
	fail := func(name, format string, args ...any) {
		r.errs = append(r.errs, &FieldError{Origin: "--" + name, Message: fmt.Sprintf(format, args...)})
	}
	if f.BootstrapKubeconfig != "" && f.Kubeconfig == "" {
		fail("bootstrap-kubeconfig", "needs --kubeconfig, the file to write once there is a certificate")
	}
	if f.CloudProvider != "" && f.CloudProvider != "external" {
		fail("cloud-provider", "%q is not supported: must be empty or external", f.CloudProvider)
	}
	if f.Lock.ExitOnContention && f.Lock.File == "" {
		fail("exit-on-lock-contention", "needs --lock-file")
	}
	if f.ContainerGC.MinAge < 0 {
		fail("minimum-container-ttl-duration", "%v must not be negative", f.ContainerGC.MinAge)
	}
	if (f.Credentials.ConfigPath == "") != (f.Credentials.BinDir == "") {
		fail("image-credential-provider-config", "must be given together with --image-credential-provider-bin-dir")
	}
	reasons := ignoredFlags()
	for _, name := range slices.Sorted(maps.Keys(g)) {
		if reason, ignored := reasons[name]; ignored {
			r.warnings = append(r.warnings, Warning{Origin: "--" + name, Message: "no effect: " + reason})
		}
		if reason, later := plainFlagsWithoutEffect(f)[name]; later {
			r.warnings = append(r.warnings, Warning{Origin: "--" + name, Message: "no effect: " + reason})
		}
	}
}
