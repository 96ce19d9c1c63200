package env

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

const (
	// HostIP is the node's address in an environment with a network of its own. It is from a block
	// that nobody uses (RFC 5737).
	HostIP = "192.0.2.1"
	// hostLink is the interface with that address. hostPeer is its other end, where nobody listens.
	hostLink, hostPeer = "node0", "node1"
	// hostGateway is the gateway of the node's default route. Nobody has this address.
	hostGateway = "192.0.2.254"
	// ownNamespace is the network namespace of the calling thread.
	ownNamespace = "/proc/thread-self/ns/net"
)

// makeNetwork makes the environment's network namespace and keeps it by a mount, which
// [Layout.remove] removes. The namespace has the loopback and an interface with [HostIP]. Its
// default route leads nowhere.
func (l Layout) makeNetwork() error {
	f, err := os.OpenFile(l.netns(), os.O_CREATE|os.O_RDONLY, 0o600)
	if err != nil {
		return fmt.Errorf("make the environment's network: %w", err)
	}
	f.Close()
	enter := func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make the environment's network: %w", err)
		}
		return nil
	}
	return elsewhere(enter, func() error {
		if err := unix.Mount(ownNamespace, l.netns(), "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("keep the environment's network at %s: %w", l.netns(), err)
		}
		return setUpHost()
	})
}

// setUpHost makes the node's interfaces in the calling thread's namespace.
func setUpHost() error {
	steps := []struct {
		what string
		do   func() error
	}{
		{"raise the loopback", func() error { return raise("lo") }},
		{"add the node's interface", func() error {
			return netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: hostLink}, PeerName: hostPeer})
		}},
		{"raise the node's interface", func() error { return errors.Join(raise(hostLink), raise(hostPeer)) }},
		{"give the node its address", func() error {
			link, err := netlink.LinkByName(hostLink)
			if err != nil {
				return err
			}
			addr, err := netlink.ParseAddr(HostIP + "/24")
			if err != nil {
				return err
			}
			return netlink.AddrAdd(link, addr)
		}},
		{"give the node its default route", func() error {
			return netlink.RouteAdd(&netlink.Route{Gw: net.ParseIP(hostGateway)})
		}},
	}
	for _, s := range steps {
		if err := s.do(); err != nil {
			return fmt.Errorf("%s: %w", s.what, err)
		}
	}
	return nil
}

func raise(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("find %s: %w", name, err)
	}
	return netlink.LinkSetUp(link)
}

// In calls do on a thread that is in the environment's network. Connections that do opens and
// programs that it starts belong to that network. In an environment without a network of its own,
// it is the caller's network. do must not pass this work to other goroutines, and must not end its
// own.
func (l Layout) In(do func() error) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(l.netns(), &fs); err != nil || fs.Type != unix.NSFS_MAGIC {
		return do()
	}
	return elsewhere(func() error {
		f, err := os.Open(l.netns())
		if err != nil {
			return fmt.Errorf("open the environment's network: %w", err)
		}
		defer f.Close()
		if err := unix.Setns(int(f.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter the environment's network: %w", err)
		}
		return nil
	}, do)
}

// elsewhere moves the calling thread into another network namespace, calls do, and moves the thread
// back. A thread that cannot be moved back stays with its goroutine and ends with it.
func elsewhere(enter, do func() error) error {
	runtime.LockOSThread()
	home, err := os.Open(ownNamespace)
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("open the network of this process: %w", err)
	}
	defer home.Close()
	if err := enter(); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	err = do()
	if back := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); back != nil {
		return errors.Join(err, fmt.Errorf("come back into the network of this process: %w", back))
	}
	runtime.UnlockOSThread()
	return err
}

// Dial connects from the environment's network to an address. The address has an IP, not a name.
func (l Layout) Dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	err = l.In(func() error {
		var dialer net.Dialer
		conn, err = dialer.DialContext(ctx, network, address)
		return err
	})
	return conn, err
}
