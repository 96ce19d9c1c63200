package doctor

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// hole is a vulnerability of a component, and the first fixed version of each branch.
type hole struct {
	component, name string
	// fixed are the first fixed versions, one for each branch MAJOR.MINOR, ascending. Branches
	// below the first are never fixed. Branches above the last are always fixed.
	fixed []string
	// only says that nothing is known about other branches.
	only bool
}

// holes are the vulnerabilities that reach a node through images, probes or host ports. Each entry
// names its CVE and the first fixed version of each release series. A distribution may fix it in a
// lower version.
func holes() []hole {
	return []hole{
		{
			"containerd", "CVE-2024-40635 (a user id that overflows runs as root)",
			[]string{"1.6.38", "1.7.27", "2.0.4"},
			false,
		},
		{"containerd", "CVE-2025-64329 (attach leaks memory)", []string{"1.7.29", "2.0.7", "2.1.5", "2.2.0"}, false},
		{
			"containerd", "CVE-2026-53488 and others of June 2026 (images and annotations reach the host)",
			[]string{"1.7.33", "2.0.10", "2.1.9", "2.2.5", "2.3.2"},
			false,
		},
		{"containerd", "CVE-2026-53495 (exec probes leak memory)", []string{"2.2.8"}, true},
		{"runc", "CVE-2024-21626 (a leaked descriptor leads out of the container)", []string{"1.1.12"}, false},
		{
			"runc",
			"CVE-2025-31133, CVE-2025-52565, CVE-2025-52881 (masked paths and the console lead out of the container)",
			[]string{"1.2.8", "1.3.3", "1.4.0"},
			false,
		},
		{"portmap", "CVE-2025-67499 (nftables: hostPorts take other hosts' traffic, too)", []string{"1.9.0"}, false},
	}
}

// Holes returns the known vulnerabilities of a component's version ("containerd", "runc" or
// "portmap"; "v2.1.9", "1.6.20~ds1"). It returns none if the version cannot be parsed.
func Holes(component, version string) []string {
	var out []string
	if len(numbers(version)) < 3 {
		return nil
	}
	for _, h := range holes() {
		if h.component == component && !h.closed(version) {
			out = append(out, h.name)
		}
	}
	return out
}

// closed reports whether a version has the vulnerability fixed.
func (h hole) closed(version string) bool {
	for _, fix := range h.fixed {
		if branch(fix) == branch(version) {
			return !less(version, fix)
		}
	}
	return h.only || !less(version, h.fixed[len(h.fixed)-1])
}

var digits = regexp.MustCompile(`\d+`)

// numbers returns a version's parts. It ignores everything from the first part that is not a number
// ("-rc.1", "~ds1").
func numbers(version string) []int {
	version = strings.TrimPrefix(version, "v")
	if i := strings.IndexFunc(version, func(r rune) bool { return r != '.' && (r < '0' || r > '9') }); i >= 0 {
		version = version[:i]
	}
	var out []int
	for _, d := range digits.FindAllString(version, 4) {
		n, _ := strconv.Atoi(d)
		out = append(out, n)
	}
	return out
}

// less reports whether version a comes before b.
func less(a, b string) bool {
	x, y := numbers(a), numbers(b)
	for i := range max(len(x), len(y)) {
		var m, n int
		if i < len(x) {
			m = x[i]
		}
		if i < len(y) {
			n = y[i]
		}
		if m != n {
			return m < n
		}
	}
	return false
}

// branch returns the first two parts of a version.
func branch(version string) string {
	n := append(numbers(version), 0, 0)
	return fmt.Sprintf("%d.%d", n[0], n[1])
}

// versions looks for known vulnerabilities of the runtime and of runc. The check cni looks at those
// of the CNI plugins.
func versions(ctx context.Context, h *Host) []Finding {
	var out []Finding
	if v, err := h.Runtime.Version(ctx); err == nil {
		out = append(out, judge(v.RuntimeName, v.RuntimeVersion))
	}
	if text, err := h.Command(ctx, "runc", "--version"); err == nil {
		if m := regexp.MustCompile(`runc version (\S+)`).FindStringSubmatch(text); m != nil {
			out = append(out, judge("runc", m[1]))
		}
	} else {
		out = append(out,
			hint("install runc, or see that the runtime has another one configured", "there is no runc in the path"))
	}
	return out
}

// judge returns the finding for a component's version.
func judge(component, version string) Finding {
	found := Holes(component, version)
	if len(found) == 0 {
		return ok("%s %s", component, version)
	}
	return warning("upgrade "+component+"; a distribution may have the fixes in this version, see its security tracker",
		"%s %s is of before the fixes of %s", component, version, strings.Join(found, "; "))
}
