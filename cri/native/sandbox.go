package native

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/cri/internal/classify"
)

// sandboxRecord is what the disk keeps of a sandbox.
type sandboxRecord struct {
	ID      string                                `json:"id"`
	Config  message[*runtimeapi.PodSandboxConfig] `json:"config"`
	Handler string                                `json:"handler,omitempty"`
	// CreatedAt is when it was asked for, in nanoseconds since 1970.
	CreatedAt int64        `json:"createdAt"`
	IPs       []netip.Addr `json:"ips,omitempty"`
	// Pause says that it has a pause process.
	Pause   bool   `json:"pause,omitempty"`
	SELinux labels `json:"selinux,omitzero"`
	// Up says that it was made completely, and Stopped that its network is given back.
	Up      bool `json:"up,omitempty"`
	Stopped bool `json:"stopped,omitempty"`
}

// recordID implements [recorded].
func (rec *sandboxRecord) recordID() string {
	if rec == nil {
		return ""
	}
	return rec.ID
}

// sandbox is a pod sandbox: the namespaces that the pod's containers share, and a pause process if
// it needs one.
type sandbox struct {
	id     string
	config *runtimeapi.PodSandboxConfig
	pause  bool
	turn   turn

	mu     sync.Mutex
	record sandboxRecord
	task   client.Task   // nil without a process
	ended  chan struct{} // closed when the process has ended; nil without a process
}

func newSandbox(record sandboxRecord) *sandbox {
	return &sandbox{id: record.ID, config: record.Config.of, pause: record.Pause, turn: newTurn(), record: record}
}

// uid returns the pod's UID.
func (s *sandbox) uid() string { return s.config.GetMetadata().GetUid() }

// hostNetwork reports whether the sandbox is on the node's network.
func (s *sandbox) hostNetwork() bool {
	return s.namespaces().GetNetwork() == runtimeapi.NamespaceMode_NODE
}

func (s *sandbox) namespaces() *runtimeapi.NamespaceOption {
	return s.config.GetLinux().GetSecurityContext().GetNamespaceOptions()
}

// snapshot returns a copy of what is known of the sandbox, and whether it is ready.
func (s *sandbox) snapshot() (sandboxRecord, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.record, s.record.Up && !s.record.Stopped && (!s.pause || s.running())
}

// running reports whether the pause process runs. The caller holds the lock.
func (s *sandbox) running() bool {
	if s.ended == nil {
		return false
	}
	select {
	case <-s.ended:
		return false
	default:
		return true
	}
}

// pid returns the pause process, 0 if there is none.
func (s *sandbox) pid() uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.task == nil || !s.running() {
		return 0
	}
	return s.task.Pid()
}

// change changes the record, in memory and on the disk.
func (r *Runtime) changeSandbox(sb *sandbox, change func(*sandboxRecord)) error {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	changed := sb.record
	change(&changed)
	if err := r.store.sandboxRecords.save(sb.id, &changed); err != nil {
		return err
	}
	sb.record = changed
	return nil
}

// noteSandbox is changeSandbox for what is so already. It counts even if the disk is full: else no
// sandbox could be stopped there, and the space of its pod would never be free again. The next
// process of berth finds it again.
func (r *Runtime) noteSandbox(sb *sandbox, change func(*sandboxRecord)) {
	err := r.changeSandbox(sb, change)
	if err == nil {
		return
	}
	r.cfg.Logger.Error("what has become of a sandbox could not be recorded", "sandbox", sb.id, "error", err)
	sb.mu.Lock()
	defer sb.mu.Unlock()
	change(&sb.record)
}

// step is a part of what a sandbox has. undo works also if do never ran.
type step struct {
	what string
	do   func(context.Context, *sandbox) error
	undo func(context.Context, *sandbox) error
	// beside says that do runs beside that of the step before.
	beside bool
}

// steps are what a sandbox has, in the order in which it is made. Its stop undoes them from the end
// down to stopDownTo, and its removal all of them. Sysctls of the network come after its devices,
// which have some of their own, and take others from the namespace's defaults.
func (r *Runtime) steps(sb *sandbox) []step {
	return []step{
		{"record the sandbox", r.recordSandbox, r.forgetSandbox, false},
		{"make its files", r.makeSandboxFiles, r.removeSandboxFiles, false},
		{"make its namespaces", r.makeNamespaces, r.removeNamespaces, false},
		{"attach its network", r.attach, r.detach, false},
		{"create its container", r.createPause, r.deletePause, !sb.hasNetworkSysctls()},
		{"set its sysctls", r.setSysctls, nothing, false},
		{"start its process", r.startPause, r.endPause, false},
	}
}

// nothing is the undo of a step whose effect goes with that of another one.
func nothing(context.Context, *sandbox) error { return nil }

// stopDownTo is the first of the steps that a stop undoes: the namespaces, the network and the
// process go, and what is needed to know about the sandbox stays until its removal.
const stopDownTo = 2

// bringUp makes what a sandbox has.
func (r *Runtime) bringUp(ctx context.Context, sb *sandbox) error {
	steps := r.steps(sb)
	for len(steps) > 0 {
		together := 1
		for together < len(steps) && steps[together].beside {
			together++
		}
		errs := make([]error, together)
		var wg sync.WaitGroup
		for i, s := range steps[:together] {
			wg.Go(func() {
				if err := s.do(ctx, sb); err != nil {
					errs[i] = fmt.Errorf("%s: %w", s.what, err)
				}
			})
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			return err
		}
		steps = steps[together:]
	}
	return nil
}

// RunPodSandbox implements [cri.SandboxRuntime].
func (r *Runtime) RunPodSandbox(
	ctx context.Context, config *runtimeapi.PodSandboxConfig, handler string,
) (string, error) {
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if err := r.checkSandbox(config, handler); err != nil {
		return "", err
	}
	sb := newSandbox(sandboxRecord{
		ID: newID(), Config: message[*runtimeapi.PodSandboxConfig]{proto.CloneOf(config)}, Handler: handler,
		CreatedAt: time.Now().UnixNano(), Pause: r.cfg.Pause == PauseAlways || needsPause(config) != "",
	})
	sb.turn <- struct{}{} // nobody else knows it yet
	defer sb.turn.give()
	if err := r.store.addSandbox(sb); err != nil {
		return "", err
	}
	err := r.bringUp(ctx, sb)
	if err == nil && r.plugins != nil {
		err = r.plugins.RunPodSandbox(ctx, pluginPod(sb))
	}
	if err != nil {
		err = fmt.Errorf("run sandbox of pod %s/%s: %w", config.GetMetadata().GetNamespace(),
			config.GetMetadata().GetName(), err)
		undo, cancel := undoing(ctx)
		defer cancel()
		return "", errors.Join(err, r.takeDown(undo, sb, 0))
	}
	r.emit(cri.ContainerCreated, sb.id, sb.uid())
	r.emit(cri.ContainerStarted, sb.id, sb.uid())
	return sb.id, nil
}

// checkSandbox returns an error for a config that cannot be carried out.
func (r *Runtime) checkSandbox(config *runtimeapi.PodSandboxConfig, handler string) error {
	if m := config.GetMetadata(); m.GetName() == "" || m.GetNamespace() == "" || m.GetUid() == "" {
		return classify.Invalidf("run sandbox: its config has no name, namespace or uid")
	}
	if _, err := r.handler(handler); err != nil {
		return err
	}
	security := config.GetLinux().GetSecurityContext()
	if security.GetRunAsGroup() != nil && security.GetRunAsUser() == nil {
		return classify.Invalidf("run sandbox: run_as_group is set without run_as_user")
	}
	if profile := security.GetSeccomp(); profile.GetProfileType() == runtimeapi.SecurityProfile_Localhost {
		if _, err := localSeccomp(profile); err != nil { // also if there is no process to confine
			return fmt.Errorf("run sandbox: %w", err)
		}
	}
	if why := needsPause(config); why != "" && r.cfg.Pause == PauseNever {
		return classify.As(errdefs.ErrFailedPrecondition,
			"run sandbox: it needs a pause process, and the node's config says that there is never one: "+why)
	}
	return nil
}

// takeDown undoes the steps of a sandbox from the last one down to one of them. It goes on when an
// undo fails, but never forgets a sandbox of which something is left. That one is not ready.
func (r *Runtime) takeDown(ctx context.Context, sb *sandbox, downTo int) error {
	steps := r.steps(sb)
	var errs []error
	for i := len(steps) - 1; i >= downTo; i-- {
		if i == 0 && len(errs) > 0 {
			break // the record stays
		}
		if err := steps[i].undo(ctx, sb); err != nil {
			errs = append(errs, fmt.Errorf("undo %q of sandbox %s: %w", steps[i].what, sb.id, err))
		}
	}
	if len(errs) > 0 {
		r.noteSandbox(sb, func(rec *sandboxRecord) { rec.Up = false })
	}
	return errors.Join(errs...)
}

// recordSandbox chooses the sandbox's SELinux labels and makes its record.
func (r *Runtime) recordSandbox(_ context.Context, sb *sandbox) error {
	has, err := r.selinux.labels("", sb.selinuxOptions())
	if err != nil {
		return err
	}
	if err := r.changeSandbox(sb, func(rec *sandboxRecord) { rec.SELinux = has }); err != nil {
		r.releaseLabel(sb, has)
		return err
	}
	return nil
}

func (r *Runtime) forgetSandbox(_ context.Context, sb *sandbox) error {
	if err := r.store.sandboxRecords.remove(sb.id); err != nil {
		return err
	}
	r.store.removeSandbox(sb)
	has, _ := sb.snapshot()
	r.releaseLabel(sb, has.SELinux)
	return nil
}

// StopPodSandbox implements [cri.SandboxRuntime]. It kills the sandbox's containers.
func (r *Runtime) StopPodSandbox(ctx context.Context, id string) error {
	return r.withSandbox(ctx, id, r.stopSandbox)
}

// stopSandbox stops a sandbox whose turn the caller has.
func (r *Runtime) stopSandbox(ctx context.Context, sb *sandbox) error {
	var wg sync.WaitGroup
	list := r.store.containersOf(sb.id)
	errs := make([]error, len(list))
	for i, c := range list {
		wg.Go(func() { errs[i] = r.stopContainer(ctx, c, 0) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("stop sandbox %s: %w", sb.id, err)
	}
	if record, _ := sb.snapshot(); !record.Stopped {
		r.plugins.StopPodSandbox(ctx, sb.id)
	}
	_, ready := sb.snapshot()
	err := r.takeDown(ctx, sb, stopDownTo)
	if err == nil {
		r.noteSandbox(sb, func(rec *sandboxRecord) { rec.Stopped = true })
	}
	if ready && !sb.pause {
		r.emit(cri.ContainerStopped, sb.id, sb.uid()) // no process says so
	}
	return err
}

// RemovePodSandbox implements [cri.SandboxRuntime]. It stops the sandbox if it runs, and removes
// its containers.
func (r *Runtime) RemovePodSandbox(ctx context.Context, id string) error {
	return r.withSandbox(ctx, id, r.removeSandbox)
}

// withSandbox calls do with a sandbox's turn, within the time that a call has. There is nothing to
// do for a sandbox that does not exist.
func (r *Runtime) withSandbox(ctx context.Context, id string, do func(context.Context, *sandbox) error) error {
	sb, err := r.store.sandbox(id)
	if errdefs.IsNotFound(err) {
		return nil
	}
	ctx, cancel := r.bounded(ctx)
	defer cancel()
	if err := r.store.takeSandbox(ctx, sb); err != nil {
		return onlyIfNot(err, errdefs.IsNotFound)
	}
	defer sb.turn.give()
	return do(ctx, sb)
}

// removeSandbox removes a sandbox whose turn the caller has.
func (r *Runtime) removeSandbox(ctx context.Context, sb *sandbox) error {
	if err := r.stopSandbox(ctx, sb); err != nil {
		return err
	}
	for _, c := range r.store.containersOf(sb.id) {
		if err := r.RemoveContainer(ctx, c.id); err != nil {
			return err
		}
	}
	if err := r.takeDown(ctx, sb, 0); err != nil {
		return err
	}
	r.plugins.RemovePodSandbox(ctx, sb.id)
	r.emit(cri.ContainerDeleted, sb.id, sb.uid())
	return nil
}
