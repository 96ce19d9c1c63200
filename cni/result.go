package cni

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/containernetworking/cni/pkg/types"
	types100 "github.com/containernetworking/cni/pkg/types/100"
)

// addresses returns the addresses of [Interface] in a result of any version. It is an error if
// there is none: the pod could not be reached.
func addresses(raw types.Result) ([]netip.Addr, error) {
	result, err := types100.NewResultFromResult(raw)
	if err != nil {
		return nil, fmt.Errorf("read its result: %w", err)
	}
	var out []netip.Addr
	for _, ip := range result.IPs {
		if !ofPod(result, ip) {
			continue
		}
		addr, ok := netip.AddrFromSlice(ip.Address.IP)
		if !ok {
			return nil, fmt.Errorf("its result has the address %q", ip.Address.IP)
		}
		if addr = addr.Unmap(); !slices.Contains(out, addr) {
			out = append(out, addr)
		}
	}
	if len(out) == 0 {
		return nil, errors.New("its result has no address for the pod")
	}
	return out, nil
}

// ofPod reports whether an address is that of the pod's interface. An address that names no
// interface counts, too: the specification lets plugins leave it out.
func ofPod(result *types100.Result, ip *types100.IPConfig) bool {
	if ip.Interface == nil {
		return true
	}
	i := *ip.Interface
	return i >= 0 && i < len(result.Interfaces) && result.Interfaces[i].Name == Interface &&
		result.Interfaces[i].Sandbox != ""
}
