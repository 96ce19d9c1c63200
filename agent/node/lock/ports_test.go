package lock

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthd/berth/configs"
)

// withPort gives an agent a port for health checks.
func withPort(cfg *configs.Config, host string, port int) *configs.Config {
	number := int32(port)
	cfg.Kubelet.HealthzBindAddress, cfg.Kubelet.HealthzPort = host, &number
	return cfg
}

// TestLockOfPorts checks that an agent does not start on the port of another agent, that the error
// names that agent, and that other programs and other addresses keep nobody out.
func TestLockOfPorts(t *testing.T) {
	dir := t.TempDir()
	pid, kill := otherAgent(t, dir)
	root := configOf(dir, "other").RootDir
	text, err := os.ReadFile(filepath.Join(dir, "port"))
	if err != nil {
		t.Fatal(err)
	}
	var port int
	if _, err := fmt.Sscan(string(text), &port); err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"127.0.0.1", "0.0.0.0", "::"} {
		_, err := Take(t.Context(), withPort(configOf(dir, "own"), host, port))
		want := fmt.Sprintf("another agent (process %d, root directory %s) holds the port %s (healthz): "+
			"stop it, or give this one its own healthzPort", pid, root, net.JoinHostPort(host, fmt.Sprint(port)))
		if held := (*heldError)(nil); !errors.As(err, &held) || err.Error() != want {
			t.Errorf("%s: %v, want %q", host, err, want)
		}
	}
	for what, cfg := range map[string]*configs.Config{
		"another address":      withPort(configOf(dir, "own"), "127.0.0.2", port),
		"an address of nobody": withPort(configOf(dir, "own"), "192.0.2.1", port),
	} {
		l, err := Take(t.Context(), cfg)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		l.Release()
	}
	kill()
	mine, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", fmt.Sprint(port)))
	if err != nil {
		t.Fatalf("the port of a dead agent: %v", err)
	}
	defer mine.Close()
	l, err := Take(t.Context(), withPort(configOf(dir, "own"), "127.0.0.1", port))
	if err != nil {
		t.Fatalf("the port of another program: %v", err)
	}
	l.Release()
}

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
		if got := strings.Join(listening(table, netip.MustParseAddr(addr), "10248"), " "); got != want {
			t.Errorf("%s: %s, want %s", addr, got, want)
		}
	}
	if got := listening(table, netip.Addr{}, "80"); len(got) > 0 {
		t.Errorf("a port of nobody: %v", got)
	}
}
