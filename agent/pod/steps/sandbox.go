package steps

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/errdefs"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/node/hostports"
	"github.com/berthd/berth/agent/pod/generate"
	"github.com/berthd/berth/agent/pod/plan"
	"github.com/berthd/berth/cri"
)

// AnnotationRootDir is put on every sandbox. It names the root directory of the agent that made the
// sandbox. So agents that share a runtime can tell which pods are their own, even if a pod's
// directory is gone already.
const AnnotationRootDir = "berth.dev/root-dir"

// Sandbox has the pod's sandbox: its pause container, network namespace and address.
type Sandbox struct {
	Runtime interface {
		cri.SandboxRuntime
		Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error)
	}
	Node func(*v1.Pod) generate.Node
	// Resources returns the pod's resources and overhead for the sandbox's config; either may be
	// nil.
	Resources func(*v1.Pod) (resources, overhead *runtimeapi.LinuxContainerResources)
	// Handler returns the runtime handler that the pod's RuntimeClass names. It is empty for the
	// runtime's own choice.
	Handler func(*v1.Pod) (string, error)
	Events  interface {
		EventSink
		Node(kind, reason, message string)
	}
	// Run is called after each attempt to run a sandbox, for metrics.
	Run func(handler string, took time.Duration, err error)
	// RootDir is the agent's root directory.
	RootDir string
	// Stopper stops what still runs in a sandbox that was lost.
	Stopper *Stopper
	// UserNamespaces gives pods user ids of their own.
	UserNamespaces interface {
		// Supported returns why a runtime handler cannot use user namespaces.
		Supported(handler string) error
		// Ensure returns a pod's ids.
		Ensure(uid types.UID) (*runtimeapi.UserNamespace, error)
	}
}

// Name is "sandbox".
func (Sandbox) Name() string { return "sandbox" }

// Ensure stops sandboxes that are out of date and makes a new one if none can be used. It leaves
// the sandbox in use and its addresses in p.
func (s Sandbox) Ensure(ctx context.Context, p *Sync) (Outcome, error) {
	if err := s.clear(ctx, p); err != nil {
		return Outcome{}, err
	}
	if p.Actions.SandboxID == "" && !p.Actions.CreateSandbox {
		return Outcome{
			Halt:    true,
			RetryAt: s.Stopper.stopAll(ctx, p),
			Waiting: "containers of the lost sandbox to stop",
		}, nil
	}
	attempt := p.Actions.SandboxAttempt
	if p.Sandbox = p.Observed.Sandbox(); !p.Actions.CreateSandbox {
		attempt = p.Sandbox.GetMetadata().GetAttempt()
	}
	if err := s.config(p, attempt); err != nil {
		s.failed(p, err)
		return Outcome{}, fmt.Errorf("failed to generate sandbox config: %w", err)
	}
	if p.Actions.CreateSandbox {
		if err := s.create(ctx, p); err != nil {
			return Outcome{}, err
		}
	}
	p.PodIPs = SandboxIPs(p.Sandbox)
	if p.Pod.Spec.HostNetwork {
		p.PodIPs = nil
	}
	if p.Actions.Initialized {
		p.Record.InitializedIn = p.Actions.SandboxID
	}
	return Outcome{}, nil
}

// clear stops and removes the sandboxes that plan named.
func (s Sandbox) clear(ctx context.Context, p *Sync) error {
	if p.Actions.SandboxChanged && p.Actions.CreateSandbox {
		s.Events.Pod(p.Pod, "", v1.EventTypeNormal, "SandboxChanged",
			"Pod sandbox changed, it will be killed and re-created.")
	}
	for _, id := range p.Actions.StopSandboxes {
		p.Changed = true
		if err := s.Runtime.StopPodSandbox(ctx, id); err != nil {
			return fmt.Errorf("stopping sandbox %s: %w", id, err)
		}
	}
	for _, id := range p.Actions.RemoveSandboxes {
		p.Changed = true
		if err := s.Runtime.RemovePodSandbox(ctx, id); err != nil {
			return fmt.Errorf("removing sandbox %s: %w", id, err)
		}
	}
	return nil
}

// config makes the sandbox's config. The containers are created with this config, too.
func (s Sandbox) config(p *Sync, attempt uint32) error {
	resources, overhead := s.Resources(p.Pod)
	if err := s.userNamespace(p); err != nil {
		return err
	}
	config, err := generate.Sandbox(generate.SandboxInput{
		Pod:           p.Pod,
		Node:          s.Node(p.Pod),
		Attempt:       attempt,
		CgroupParent:  p.CgroupParent,
		Resources:     resources,
		Overhead:      overhead,
		VolumeGroups:  p.VolumeGroups,
		UserNamespace: p.UserNamespace,
	})
	if err != nil {
		return err
	}
	config.Annotations[AnnotationRootDir] = s.RootDir
	p.SandboxConfig = config
	return nil
}

// userNamespace gets the pod's own ids, for hostUsers: false. A sandbox that exists keeps the ids
// that it was made with.
func (s Sandbox) userNamespace(p *Sync) error {
	if users := p.Pod.Spec.HostUsers; users == nil || *users {
		return nil
	}
	if p.Actions.CreateSandbox {
		handler, err := s.Handler(p.Pod)
		if err == nil {
			err = s.UserNamespaces.Supported(handler)
		}
		if err != nil {
			return err
		}
	}
	var err error
	p.UserNamespace, err = s.UserNamespaces.Ensure(p.Pod.UID)
	return err
}

// create runs a new sandbox.
func (s Sandbox) create(ctx context.Context, p *Sync) error {
	handler, err := s.Handler(p.Pod)
	if err != nil {
		s.failed(p, err)
		return fmt.Errorf("running the sandbox: %w", err)
	}
	p.Changed = true
	for _, taken := range hostports.Taken(p.Pod) {
		s.Events.Pod(p.Pod, "", v1.EventTypeWarning, hostports.ReasonTaken, taken+": "+hostports.Remedy)
	}
	making, done := finishing(ctx)
	defer done()
	began := time.Now()
	id, err := s.Runtime.RunPodSandbox(making, p.SandboxConfig, handler)
	s.Run(handler, time.Since(began), err)
	if err != nil {
		if ctx.Err() == nil {
			s.explain(ctx, p, err)
		}
		return fmt.Errorf("running the sandbox: %w", err)
	}
	p.Sandbox, err = s.Runtime.PodSandboxStatus(ctx, id)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		s.Events.Pod(p.Pod, "", v1.EventTypeWarning, "FailedPodSandBoxStatus",
			"Unable to get pod sandbox status: "+err.Error())
		return fmt.Errorf("asking for the new sandbox %s: %w", id, err)
	}
	p.Actions.SandboxID = id
	_, warnings := generate.DNS(p.Pod, s.Node(p.Pod).DNS)
	// once for each sandbox that was made, however many tries that took
	for _, w := range warnings {
		if w.Node != "" {
			s.Events.Node(v1.EventTypeWarning, w.Reason, w.Node)
		}
		s.Events.Pod(p.Pod, "", v1.EventTypeWarning, w.Reason, w.Message)
	}
	return nil
}

// explain reports with an event why the pod's sandbox could not be made. The reason is the node's
// network if the runtime says that the network is not ready. Otherwise it is the error.
func (s Sandbox) explain(ctx context.Context, p *Sync, err error) {
	if !p.Pod.Spec.HostNetwork && !errdefs.IsUnavailable(err) {
		if st, stErr := s.Runtime.Status(ctx, false); stErr == nil {
			for _, c := range st.GetStatus().GetConditions() {
				if c.Type == runtimeapi.NetworkReady && !c.Status {
					s.Events.Pod(p.Pod, "", v1.EventTypeWarning, "NetworkNotReady",
						fmt.Sprintf("network is not ready: %s: %s", c.Reason, c.Message))
					return
				}
			}
		}
	}
	s.failed(p, err)
}

// failed reports the error itself with an event, as a kubelet does. The log and the timeline also
// have what berth was doing.
func (s Sandbox) failed(p *Sync, err error) {
	s.Events.Pod(p.Pod, "", v1.EventTypeWarning, "FailedCreatePodSandBox", "Failed to create pod sandbox: "+err.Error())
}

// Remove stops the pod's sandboxes once no container runs. With p.Terminated it removes them.
func (s Sandbox) Remove(ctx context.Context, p *Sync) (Outcome, error) {
	if !p.Terminated {
		err := s.clear(ctx, p)
		return Outcome{Halt: err != nil}, err
	}
	for _, sb := range p.Observed.Sandboxes {
		if err := s.Runtime.RemovePodSandbox(ctx, sb.Id); err != nil {
			return Outcome{Halt: true}, fmt.Errorf("removing sandbox %s: %w", sb.Id, err)
		}
	}
	return Outcome{}, nil
}

// SandboxIPs returns a sandbox's addresses, the primary first.
func SandboxIPs(sb *runtimeapi.PodSandboxStatus) []string {
	net := sb.GetNetwork()
	if net.GetIp() == "" {
		return nil
	}
	ips := []string{net.Ip}
	for _, a := range net.AdditionalIps {
		ips = append(ips, a.Ip)
	}
	return ips
}

// running names the containers that may be running, for messages.
func running(o *plan.Observed) []string {
	var names []string
	for _, c := range o.Running() {
		names = append(names, c.Name())
	}
	return names
}
