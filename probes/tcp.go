package probes

import (
	"context"
	"net"
	"strconv"
	"time"
)

// tcpSocket opens a connection and resets it: with linger 0 no TIME_WAIT stays on the node.
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
		return reply{ //nolint:nilerr // That nobody answers is the probe's answer.
			outcome: failure, text: err.Error(),
		}, nil
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0) // The connection is closed even if this fails.
	}
	_ = conn.Close() // The probe succeeded when the connection opened.
	return reply{outcome: success}, nil
}
