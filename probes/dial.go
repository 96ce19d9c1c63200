package probes

import (
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// dialers makes the dialers of all actions. So one place decides which addresses may be reached.
type dialers struct {
	denyLinkLocal bool
}

// dialer returns a dialer that ignores proxies and stops after timeout; with 0 the caller's context
// is the limit.
func (d dialers) dialer(timeout time.Duration) *net.Dialer {
	dialer := &net.Dialer{Timeout: timeout, KeepAlive: -1}
	if d.denyLinkLocal {
		dialer.Control = refuseLinkLocal
	}
	return dialer
}

// refuseLinkLocal fails a connection to a link-local address. It sees addresses after name
// resolution, so a name cannot hide such an address.
func refuseLinkLocal(_, address string, _ syscall.RawConn) error {
	target, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("parse address %q: %w", address, err)
	}
	if ip := target.Addr().Unmap(); ip.IsLinkLocalUnicast() || ip.IsLinkLocalMulticast() {
		return fmt.Errorf("link-local address %s is not allowed as a target", ip)
	}
	return nil
}
