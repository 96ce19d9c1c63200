package node

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Flags of a route (linux/route.h).
const (
	routeUp     = 0x1
	routeReject = 0x200
)

// loopback is the address of a node that has no other.
const loopback = "127.0.0.1"

// addresses returns the node's addresses. They are the configured ones; without those, the address
// of the interface of the default route; without that, the first global address.
func addresses(configured []netip.Addr) []string {
	var out []string
	for _, ip := range configured {
		if !ip.IsUnspecified() {
			out = append(out, ip.Unmap().String())
		}
	}
	if len(out) > 0 {
		return out
	}
	if ip, ok := defaultRouteIP(); ok {
		return []string{ip.String()}
	}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return []string{loopback}
	}
	if ip, ok := global(addrs, func(netip.Addr) bool { return true }); ok {
		return []string{ip.String()}
	}
	return []string{loopback}
}

// Absent returns the configured addresses (--node-ip) that no interface of the machine has.
func (n *Node) Absent() ([]netip.Addr, error) {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("list the machine's addresses: %w", err)
	}
	return absent(n.cfg.NodeIPs, addrs), nil
}

func absent(configured []netip.Addr, addrs []net.Addr) []netip.Addr {
	var out []netip.Addr
	for _, ip := range configured {
		has := func(a net.Addr) bool {
			p, err := netip.ParsePrefix(a.String())
			return err == nil && p.Addr().Unmap() == ip.Unmap()
		}
		if !ip.IsUnspecified() && !slices.ContainsFunc(addrs, has) {
			out = append(out, ip)
		}
	}
	return out
}

// defaultRouteIP returns the address of the interface of the default route, IPv4 before IPv6.
func defaultRouteIP() (netip.Addr, bool) {
	for _, family := range []struct {
		file    string
		parse   func(string) []string
		matches func(netip.Addr) bool
	}{
		{"/proc/net/route", defaultRoutes4, netip.Addr.Is4},
		{"/proc/net/ipv6_route", defaultRoutes6, netip.Addr.Is6},
	} {
		data, err := readFile(family.file)
		if err != nil {
			continue // the kernel does not have this family
		}
		for _, name := range family.parse(string(data)) {
			iface, err := net.InterfaceByName(name)
			if err != nil {
				continue
			}
			addrs, err := iface.Addrs()
			if err != nil {
				continue
			}
			if ip, ok := global(addrs, family.matches); ok {
				return ip, true
			}
		}
	}
	return netip.Addr{}, false
}

// global returns the first global unicast address that matches.
func global(addrs []net.Addr, matches func(netip.Addr) bool) (netip.Addr, bool) {
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().IsGlobalUnicast() && matches(p.Addr()) {
			return p.Addr(), true
		}
	}
	return netip.Addr{}, false
}

// route is a default route.
type route struct {
	iface  string
	metric uint64
}

// defaultRoutes4 returns the interfaces of the default routes in /proc/net/route, the preferred one
// first. The columns are Iface, Destination, Gateway, Flags, RefCnt, Use, Metric, Mask
// (proc_net(5)).
func defaultRoutes4(table string) []string {
	var routes []route
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) < 8 || f[1] != "00000000" || f[7] != "00000000" {
			continue
		}
		metric, err := strconv.ParseUint(f[6], 10, 32)
		if err == nil && usable(f[3]) {
			routes = append(routes, route{f[0], metric})
		}
	}
	return preferred(routes)
}

// defaultRoutes6 returns the interfaces of the default routes in /proc/net/ipv6_route, the
// preferred one first. The columns are, by Documentation/networking/proc_net, destination, its
// prefix length, source, its prefix length, next hop, metric, references, uses, flags, interface,
// all in hexadecimal.
func defaultRoutes6(table string) []string {
	var routes []route
	for line := range strings.Lines(table) {
		f := strings.Fields(line)
		if len(f) < 10 || strings.Trim(f[0], "0") != "" || f[1] != "00" {
			continue
		}
		metric, err := strconv.ParseUint(f[5], 16, 32)
		if err == nil && usable(f[8]) && f[9] != "lo" {
			routes = append(routes, route{f[9], metric})
		}
	}
	return preferred(routes)
}

// usable reports whether a route's flags, in hexadecimal, say that the route is up and leads
// somewhere.
func usable(flags string) bool {
	n, err := strconv.ParseUint(flags, 16, 32)
	return err == nil && n&routeUp != 0 && n&routeReject == 0
}

// preferred returns the routes' interfaces by metric.
func preferred(routes []route) []string {
	slices.SortStableFunc(routes, func(a, b route) int { return cmp.Compare(a.metric, b.metric) })
	var out []string
	for _, r := range routes {
		out = append(out, r.iface)
	}
	return out
}
