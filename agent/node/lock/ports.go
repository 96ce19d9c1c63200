package lock

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/configs"
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
	addr, _ := netip.ParseAddr(host) // a name or nothing stands for all addresses
	var links []string
	for _, table := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		links = append(links, listening(table, addr, number)...)
	}
	if len(links) == 0 {
		return Holder{}
	}
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range processes {
		root := rootOf(process)
		if root == "" || !slices.ContainsFunc(linksOf(process), func(link string) bool {
			return slices.Contains(links, link)
		}) {
			continue
		}
		if pid, err := strconv.Atoi(filepath.Base(process)); err == nil && pid != os.Getpid() {
			return Holder{PID: pid, RootDir: root}
		}
	}
	return Holder{}
}

// linksOf returns what the open files of a process are, as the links in /proc say.
func linksOf(process string) (links []string) {
	fds, _ := os.ReadDir(filepath.Join(process, "fd"))
	for _, fd := range fds {
		if link, err := os.Readlink(filepath.Join(process, "fd", fd.Name())); err == nil {
			links = append(links, link)
		}
	}
	return links
}

// listening returns the sockets of a table of the kernel (proc_net_tcp) that listen on a port and
// keep others from the address, as the links of their descriptors.
func listening(table string, addr netip.Addr, number string) (links []string) {
	const listens = "0A" // TCP_LISTEN
	f, err := os.Open(table)
	if err != nil {
		return nil
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		// sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode
		fields := strings.Fields(lines.Text())
		if len(fields) < 10 || fields[3] != listens {
			continue
		}
		local, port, _ := strings.Cut(fields[1], ":")
		at, err := strconv.ParseUint(port, 16, 16)
		if err != nil || strconv.FormatUint(at, 10) != number {
			continue
		}
		if other := kernelAddr(local); overlap(addr, other) {
			links = append(links, "socket:["+fields[9]+"]")
		}
	}
	return links
}

// overlap reports whether sockets on two addresses, with one port, keep each other out.
func overlap(a, b netip.Addr) bool {
	return !a.IsValid() || !b.IsValid() || a.IsUnspecified() || b.IsUnspecified() || a.WithZone("") == b
}

// kernelAddr parses an address of the kernel's table: words of 32 bits as the machine has them.
func kernelAddr(text string) netip.Addr {
	var bytes []byte
	for ; len(text) >= 8; text = text[8:] {
		word, err := strconv.ParseUint(text[:8], 16, 32)
		if err != nil {
			return netip.Addr{}
		}
		bytes = binary.NativeEndian.AppendUint32(bytes, uint32(word))
	}
	addr, _ := netip.AddrFromSlice(bytes)
	return addr.Unmap()
}
