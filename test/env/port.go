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
	// firstPort is the least that [FreePort] returns.
	firstPort = 10000
	// usualEphemeral is where the kernel's own ports begin, unless it says otherwise.
	usualEphemeral = 32768
	// portTries bounds the ports that are tried.
	portTries = 100
)

// FreePort returns a port of loopback that nobody listens on. It lies below those that the kernel hands out, so that nobody gets it by chance before its user listens.
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
		l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))) //nolint:noctx // it is closed at once: only its port is wanted
		if err == nil {
			return port, l.Close()
		}
		errs = append(errs, err)
	}
	return 0, fmt.Errorf("find a free port: %w", errors.Join(errs...))
}
