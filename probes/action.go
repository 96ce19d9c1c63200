package probes

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// maxOutput is how much of a command's output or of a response's body is read and kept, in bytes; the kubelet's value.
const maxOutput = 10 << 10

// attempts is how often a probe whose outcome could not be learned is tried before that is reported; the kubelet's value.
const attempts = 3

// outcome is what one run of a probe said. The values are the kubelet's words for it in events.
type outcome string

const (
	success outcome = "success"
	// warning is a success with something to say.
	warning outcome = "warning"
	failure outcome = "failure"
	// unknown means that the probe itself could not be carried out; it says nothing about the container.
	unknown outcome = "unknown"
)

// reply is one run's outcome with its text: the output, the body, or why it failed.
type reply struct {
	outcome outcome
	text    string
	// busy is how long commands ran for it.
	busy time.Duration
}

// errNoPodIP is why a probe or hook without a host of its own cannot run. Without it the request would go to the node itself.
var errNoPodIP = errors.New("pod has no IP address yet")

// task is everything that one run of a probe needs.
type task struct {
	container   *v1.Container
	containerID string
	podIP       string
	spec        *v1.Probe
}

// prober carries out probes. It is safe for concurrent use.
type prober struct {
	userAgent string
	transport *http.Transport
	dialers   dialers
	execs     *execs
}

// run carries out one probe, again where its outcome could not be learned. The error is about the probing, never about
// the container.
func (p *prober) run(ctx context.Context, t task) (r reply, err error) {
	var busy time.Duration
	for range attempts {
		r, err = p.once(ctx, t)
		busy += r.busy
		if err == nil || ctx.Err() != nil {
			break
		}
	}
	r.busy = busy
	// Events and metrics are sent as UTF-8, which a container's output need not be.
	r.text = strings.ToValidUTF8(r.text, "\uFFFD")
	return r, err
}

// once dispatches on the handler. timeoutSeconds holds for each try.
func (p *prober) once(ctx context.Context, t task) (reply, error) {
	timeout := timeoutOf(t.spec)
	switch {
	case t.spec.Exec != nil:
		return p.execs.probe(ctx, t, timeout)
	case t.spec.HTTPGet != nil:
		return p.httpGet(ctx, t, timeout)
	case t.spec.TCPSocket != nil:
		return p.tcpSocket(ctx, t, timeout)
	case t.spec.GRPC != nil:
		return p.grpcHealth(ctx, t, timeout)
	}
	return reply{outcome: unknown}, errors.New("missing probe handler for container " + t.container.Name)
}

// hostOr returns host, or the pod's IP where it is empty.
func hostOr(host, podIP string) (string, error) {
	if host != "" {
		return host, nil
	}
	if podIP == "" {
		return "", errNoPodIP
	}
	return podIP, nil
}
