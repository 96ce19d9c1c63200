package env

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
)

const (
	// firstPort is the lowest port that [FreePort] returns.
	firstPort = 10000
	// usualEphemeral is the default first port of the range from which the kernel chooses ports
	// itself.
	usualEphemeral = 32768
	// portTries is how many ports are tried.
	portTries = 100
)

// FreePort returns a port of loopback on which nobody listens. The port is below the range from
// which the kernel chooses ports, so nobody gets the port by chance before its user listens.
func FreePort() (int, error) {
	limit := usualEphemeral
	if text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		_, _ = fmt.Sscan(string(text), &limit)
	}
	if limit <= firstPort {
		limit = usualEphemeral
	}
	var errs []error
	for range portTries {
		port := firstPort + rand.IntN(limit-firstPort)
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))) //nolint:noctx // closed at once
		if err == nil {
			return port, l.Close()
		}
		errs = append(errs, err)
	}
	return 0, fmt.Errorf("find a free port: %w", errors.Join(errs...))
}
