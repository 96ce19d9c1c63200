package probes

import (
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Values of [Observation.Result]: the label values of the kubelet's metric prober_probe_total.
const (
	ResultSuccessful = "successful"
	ResultFailed     = "failed"
	// ResultUnknown means that the probe itself could not run.
	ResultUnknown = "unknown"
)

// Values of [Observation.Action], the probe's handler.
const (
	ActionExec = "exec"
	ActionHTTP = "httpGet"
	ActionTCP  = "tcpSocket"
	ActionGRPC = "grpc"
)

// Observation measures one probe that ran.
type Observation struct {
	Namespace, Pod string
	UID            types.UID
	Container      string
	Kind           Kind
	// Action is one of the Action constants.
	Action string
	// Result is one of the Result constants.
	Result string
	// Duration is how long the probe took, including retries and waiting for its turn.
	Duration time.Duration
	// Busy is how long the runtime ran commands for this probe. It is 0 if the probe has no
	// command, or shared the command of another probe.
	Busy time.Duration
}

// observation returns the measurements of a probe that just ran.
func (w *worker) observation(pod *v1.Pod, out outcome, took, busy time.Duration) Observation {
	o := Observation{
		Namespace: pod.Namespace,
		Pod:       pod.Name,
		UID:       pod.UID,
		Container: w.run.container.Name,
		Kind:      w.kind,
		Action:    actionOf(w.spec),
		Result:    ResultSuccessful,
		Duration:  took,
		Busy:      busy,
	}
	switch out {
	case failure:
		o.Result = ResultFailed
	case unknown:
		o.Result = ResultUnknown
	}
	return o
}

// actionOf returns the name of the handler; empty if the probe has none.
func actionOf(spec *v1.Probe) string {
	switch {
	case spec.Exec != nil:
		return ActionExec
	case spec.HTTPGet != nil:
		return ActionHTTP
	case spec.TCPSocket != nil:
		return ActionTCP
	case spec.GRPC != nil:
		return ActionGRPC
	}
	return ""
}
