// Package sockets finds the processes that listen on a port of this machine.
//
// Purpose: one reader of the kernel's tables of sockets (proc_net_tcp), for all who have to name a
// process that is in the way. Truth owned: none; it is the kernel's. Concurrency: the functions
// share nothing.
package sockets

import (
	"bufio"
	"encoding/binary"
	"iter"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Listening returns the sockets of this process's network namespace that listen on a port and keep
// others from the address, as the links of their descriptors in /proc. An address that is not valid
// stands for all addresses. protocol is tcp or udp; of others nothing is known.
func Listening(protocol string, addr netip.Addr, port uint16) (links []string) {
	// TCP_LISTEN, and of UDP a socket that takes packets from everybody, which is TCP_CLOSE
	state, known := map[string]string{"tcp": "0A", "udp": "07"}[protocol]
	if !known {
		return nil
	}
	for _, table := range []string{"/proc/net/" + protocol, "/proc/net/" + protocol + "6"} {
		links = append(links, listed(table, state, addr, port)...)
	}
	return links
}

// Owners yields the ids of the processes that have one of the sockets open.
func Owners(links []string) iter.Seq[int] {
	return func(yield func(int) bool) {
		if len(links) == 0 {
			return
		}
		processes, _ := filepath.Glob("/proc/[0-9]*")
		for _, process := range processes {
			pid, err := strconv.Atoi(filepath.Base(process))
			if err == nil && slices.ContainsFunc(linksOf(process), func(link string) bool {
				return slices.Contains(links, link)
			}) && !yield(pid) {
				return
			}
		}
	}
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

// listed returns the sockets of a table of the kernel that are in a state and keep others from the
// address and the port.
func listed(table, state string, addr netip.Addr, number uint16) (links []string) {
	f, err := os.Open(table)
	if err != nil {
		return nil
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		// sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode
		fields := strings.Fields(lines.Text())
		if len(fields) < 10 || fields[3] != state {
			continue
		}
		local, port, _ := strings.Cut(fields[1], ":")
		at, err := strconv.ParseUint(port, 16, 16)
		if err != nil || uint16(at) != number {
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
