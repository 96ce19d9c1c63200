package lock

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
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
		_, err := takeBelow(t.Context(), dir, withPort(configOf(dir, "own"), host, port))
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
		l, err := takeBelow(t.Context(), dir, cfg)
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
	l, err := takeBelow(t.Context(), dir, withPort(configOf(dir, "own"), "127.0.0.1", port))
	if err != nil {
		t.Fatalf("the port of another program: %v", err)
	}
	l.Release()
}
