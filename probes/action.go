package probes

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
)

// maxOutput is how much of a command's output or of a response's body is read and kept, in bytes
// (the kubelet's value).
const maxOutput = 10 << 10

// attempts is how often a probe runs before its unknown outcome is reported (the kubelet's value).
const attempts = 3

// outcome is the outcome of one run of a probe. The values are the kubelet's words in events.
type outcome string

const (
	success outcome = "success"
	// warning is a success with a text that an event reports.
	warning outcome = "warning"
	failure outcome = "failure"
	// unknown means that the probe itself could not run. It says nothing about the container.
	unknown outcome = "unknown"
)

// reply is the outcome of one run with its text: the output, the body, or the reason of the
// failure.
type reply struct {
	outcome outcome
	text    string
	// busy is how long commands ran for this run.
	busy time.Duration
}

// errNoPodIP is the error of a probe or hook without a host of its own, as long as the pod has no
// IP. Without this error the request would go to the node itself.
var errNoPodIP = errors.New("pod has no IP address yet")

// task is everything that one run of a probe needs.
type task struct {
	container   *v1.Container
	containerID string
	podIP       string
	spec        *v1.Probe
}

// prober runs probes. It is safe for concurrent use.
type prober struct {
	userAgent string
	transport *http.Transport
	dialers   dialers
	execs     *execs
}

// run runs one probe, and runs it again if its outcome is unknown. The error is about the probing,
// never about the container.
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
	// Events and metrics need UTF-8; a container's output may be anything.
	r.text = strings.ToValidUTF8(r.text, "\uFFFD")
	return r, err
}

// once calls the handler of the probe. timeoutSeconds is the limit of each attempt.
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

// hostOr returns host, or the pod's IP if host is empty.
func hostOr(host, podIP string) (string, error) {
	if host != "" {
		return host, nil
	}
	if podIP == "" {
		return "", errNoPodIP
	}
	return podIP, nil
}
