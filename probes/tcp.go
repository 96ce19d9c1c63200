package probes

import (
	"context"
	"net"
	"strconv"
	"time"
)

// tcpSocket opens a connection and resets it: linger 0 leaves no TIME_WAIT behind on the node.
func (p *prober) tcpSocket(ctx context.Context, t task, timeout time.Duration) (reply, error) {
	port, err := ResolvePort(t.spec.TCPSocket.Port, t.container)
	if err != nil {
		return reply{outcome: unknown}, err
	}
	host, err := hostOr(t.spec.TCPSocket.Host, t.podIP)
	if err != nil {
		return reply{outcome: unknown}, err
	}
	conn, err := p.dialers.dialer(timeout).DialContext(ctx, "tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return reply{outcome: failure, text: err.Error()}, nil //nolint:nilerr // That nobody answers is the probe's answer.
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // The connection is thrown away either way.
	}
	_ = conn.Close() // It was opened, which is all that was asked.
	return reply{outcome: success}, nil
}
