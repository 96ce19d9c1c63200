package stats

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// link is a network interface and its counters.
type link struct {
	name                                 string
	rxBytes, rxPackets, rxErrors, rxDrop uint64
	txBytes, txPackets, txErrors, txDrop uint64
}

// defaultLink is the name that network plugins give to a pod's interface.
const defaultLink = "eth0"

// mostLinks is how many interfaces of a pod are reported. A container with NET_ADMIN can make any
// number.
const mostLinks = 32

// links returns the interfaces in the network namespace of a process without the loopback, the
// pod's own interface first, and at most [mostLinks].
func (c *Collector) links(pid int) []link {
	out := parseLinks(c.proc(filepath.Join(strconv.Itoa(pid), "net/dev")))
	slices.SortStableFunc(out, func(a, b link) int {
		switch {
		case a.name == defaultLink && b.name != defaultLink:
			return -1
		case b.name == defaultLink && a.name != defaultLink:
			return 1
		}
		return strings.Compare(a.name, b.name)
	})
	out = slices.CompactFunc(out, func(a, b link) bool { return a.name == b.name })
	return out[:min(len(out), mostLinks)]
}

// hostLinks returns the host's interfaces that lead out of the host; the interface of the default
// route comes first. The pods' links and the bridges between them are left out, because their
// traffic would count twice.
func (c *Collector) hostLinks() []link {
	routed := map[string]bool{}
	for i, line := range slices.Collect(strings.Lines(c.proc("net/route"))) {
		if fields := strings.Fields(line); i > 0 && len(fields) > 1 && fields[1] == "00000000" {
			routed[fields[0]] = true
		}
	}
	var out []link
	for _, l := range parseLinks(c.proc("net/dev")) {
		switch {
		case routed[l.name]:
			out = slices.Insert(out, 0, l)
		case !virtual(l.name):
			out = append(out, l)
		}
	}
	return out
}

// virtual reports whether an interface is not one of the machine's devices.
func virtual(name string) bool {
	target, err := os.Readlink(filepath.Join("/sys/class/net", name))
	return err != nil || strings.Contains(target, "/devices/virtual/")
}

// parseLinks parses /proc/net/dev (proc(5)) without the loopback. The kernel allows names that are
// not UTF-8, which neither metrics nor JSON can have: their wrong bytes become "?", so that two
// names can become one.
func parseLinks(text string) []link {
	var out []link
	for line := range strings.Lines(text) {
		name, rest, ok := strings.Cut(line, ":")
		fields := strings.Fields(rest)
		name = strings.ToValidUTF8(strings.TrimLeft(name, " "), "?")
		if !ok || name == "lo" || len(fields) < 12 {
			continue
		}
		var n [12]uint64
		for i := range n {
			n[i], _ = strconv.ParseUint(fields[i], 10, 64)
		}
		out = append(out, link{
			name: name, rxBytes: n[0], rxPackets: n[1], rxErrors: n[2], rxDrop: n[3],
			txBytes: n[8], txPackets: n[9], txErrors: n[10], txDrop: n[11],
		})
	}
	return out
}
