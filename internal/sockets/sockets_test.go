package sockets

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The kernel's tables are parsed, and sockets on other addresses, ports and states are none.
func TestListeningSockets(t *testing.T) {
	const head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
	table := filepath.Join(t.TempDir(), "tcp")
	lines := head +
		"   0: 0100007F:2808 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1 0 100 0 0 10 0\n" +
		"   1: 00000000:2808 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12 1 0 100 0 0 10 0\n" +
		"   2: 0100007F:2808 0100007F:9000 01 00000000:00000000 00:00000000 00000000     0        0 13 1 0 100 0 0 10 0\n" +
		"   3: 0100007F:2809 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 14 1 0 100 0 0 10 0\n" +
		"   4: 00000000000000000000000001000000:2808 00000000000000000000000000000000:0000 0A " +
		"00000000:00000000 00:00000000 00000000     0        0 15 1 0 100 0 0 10 0\n"
	if err := os.WriteFile(table, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	for addr, want := range map[string]string{
		"127.0.0.1": "socket:[11] socket:[12]", "192.0.2.7": "socket:[12]", "0.0.0.0": "socket:[11] socket:[12] socket:[15]",
		"::1": "socket:[12] socket:[15]",
	} {
		if got := strings.Join(listed(table, "0A", netip.MustParseAddr(addr), 10248), " "); got != want {
			t.Errorf("%s: %s, want %s", addr, got, want)
		}
	}
	if got := listed(table, "0A", netip.Addr{}, 80); len(got) > 0 {
		t.Errorf("a port of nobody: %v", got)
	}
}

// Sockets of this process are found by their ports, and the process by its sockets.
func TestOwners(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	udp, err := net.ListenPacket("udp", "[::]:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	for protocol, addr := range map[string]net.Addr{"tcp": tcp.Addr(), "udp": udp.LocalAddr()} {
		at := netip.MustParseAddrPort(addr.String())
		links := Listening(protocol, netip.MustParseAddr("127.0.0.1"), at.Port())
		if owners := slices.Collect(Owners(links)); !slices.Contains(owners, os.Getpid()) {
			t.Errorf("%s: sockets %q of the processes %d", protocol, links, owners)
		}
		if links := Listening("sctp", netip.Addr{}, at.Port()); len(links) > 0 {
			t.Errorf("sctp: %q", links)
		}
	}
	at := netip.MustParseAddrPort(tcp.Addr().String())
	if links := Listening("tcp", netip.MustParseAddr("192.0.2.1"), at.Port()); len(links) > 0 {
		t.Errorf("another address: %q", links)
	}
	if owners := slices.Collect(Owners(nil)); len(owners) > 0 {
		t.Errorf("no sockets have the owners %d", owners)
	}
}
