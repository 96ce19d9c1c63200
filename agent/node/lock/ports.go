package lock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/internal/sockets"
)

// Port returns an error if another agent serves a TCP port. The port itself is the lock: nothing
// else is written. A port that another program has, such as a kubelet's, is no error.
func Port(ctx context.Context, port configs.Port) error {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", port.Address)
	if err == nil {
		return l.Close()
	}
	if !errors.Is(err, unix.EADDRINUSE) {
		return nil // who serves the port reports this
	}
	by := listenerOf(port.Address)
	if by.RootDir == "" {
		return nil
	}
	return &heldError{what: fmt.Sprintf("the port %s (%s)", port.Address, port.Name), setting: port.Setting, by: by}
}

// listenerOf returns the agent that listens on a TCP address, or on one that keeps others from it.
func listenerOf(address string) Holder {
	host, number, err := net.SplitHostPort(address)
	if err != nil {
		return Holder{}
	}
	port, err := strconv.ParseUint(number, 10, 16)
	if err != nil {
		return Holder{}
	}
	addr, _ := netip.ParseAddr(host) // a name or nothing stands for all addresses
	for pid := range sockets.Owners(sockets.Listening("tcp", addr, uint16(port))) {
		if root := rootOf(filepath.Join("/proc", strconv.Itoa(pid))); root != "" && pid != os.Getpid() {
			return Holder{PID: pid, RootDir: root}
		}
	}
	return Holder{}
}
