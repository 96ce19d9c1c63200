package steps

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/images"
	"github.com/berthd/berth/agent/node/allocation"
	"github.com/berthd/berth/agent/pod/generate"
	"github.com/berthd/berth/agent/pod/hooks"
	"github.com/berthd/berth/agent/pod/plan"
	"github.com/berthd/berth/agent/volumes"
	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/status"
)

// runError is the reason of a container that the runtime could not start.
const runError = "RunContainerError"

// postStartTask begins the key of a postStart hook under way. The container's id follows.
const postStartTask = "postStart/"

// Starter creates and starts containers.
type Starter struct {
	Runtime cri.ContainerRuntime
	Volumes *volumes.Manager
	Hooks   *hooks.Runner
	Events  EventSink
	Node    NodeView
	// Limits are a pod's crash back-off limits.
	Limits func(*v1.Pod) plan.BackoffLimits
	// PodLogsDir is where the pods' logs are, LinksDir where the links to them are.
	PodLogsDir, LinksDir string
	// Started is called for each container that was started, for metrics.
	Started func(kind plan.Kind, err error)
}

// NodeView is what the start of a container needs to know of the node.
type NodeView interface {
	// Generate returns what package generate needs to know to translate a pod.
	Generate(pod *v1.Pod) generate.Node
	// HostIPs are the node's addresses.
	HostIPs() []string
	// Allocatable is what pods can have of the node.
	Allocatable() v1.ResourceList
	// HostsFile is the content of the node's hosts file.
	HostsFile() []byte
	// Allocated is what a container gets of the node's devices and CPUs. A device plugin may have to
	// prepare them.
	Allocated(ctx context.Context, pod *v1.Pod, c *v1.Container) (allocation.Given, error)
	// Resources are a container's cgroup settings.
	Resources(pod *v1.Pod, c *v1.Container) *runtimeapi.LinuxContainerResources
	// Objects are the pods' ConfigMaps and Secrets.
	Objects() generate.Objects
	// Services are those of a pod's environment. The error says why they are not known yet.
	Services(pod *v1.Pod) ([]*v1.Service, error)
}

// startAll starts the containers of the given kinds, in order. A container that cannot start does
// not hold back the others, with one exception. A postStart hook that is under way, or that comes
// after a pull under way, holds back the containers behind it: people put a proxy first, and its
// hook waits until the proxy answers. Once ctx has ended, no further container is started: the stop
// of a pod waits for the sync that it overtakes.
func (s *Starter) startAll(ctx context.Context, p *Sync, kinds ...plan.Kind) (Outcome, error) {
	var out Outcome
	var errs []error
	for _, start := range p.starting(kinds...) {
		if ctx.Err() != nil {
			errs = append(errs, context.Cause(ctx))
			break
		}
		img, ok := p.Images[start.Container.Name]
		if !ok || !img.Ready {
			if hooked(start.Container) && img.Reason == images.ReasonCreating {
				out.Waiting = "image of " + start.Container.Name + ", whose postStart hook comes first"
				break
			}
			continue
		}
		hooking, err := s.start(ctx, p, start)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if hooking {
			out.Waiting = "postStart hook of " + start.Container.Name
			break
		}
	}
	return out, errors.Join(errs...)
}

// hooked reports whether a container has a postStart hook.
func hooked(c *v1.Container) bool { return c.Lifecycle != nil && c.Lifecycle.PostStart != nil }

// start makes a container's next attempt and starts it. Beside a leftover the attempt waits, and
// then gets the next number. hooking says that the container's postStart hook is under way.
func (s *Starter) start(ctx context.Context, p *Sync, start plan.Start) (hooking bool, err error) {
	name := start.Container.Name
	if left, is := p.stuck[name]; is && !left.over {
		_ = s.failed(ctx, p, name, "CreateContainerError", left.err) // the init step returns the error
		return false, nil
	} else if is {
		start.Attempt++ // plan has that of the leftover
	}
	config, err := s.config(ctx, p, start)
	if err == nil {
		err = p.lookAt(ctx, name, config.GetMounts())
	}
	if late, ok := errors.AsType[*unanswered](err); ok { // a subPath's own text hides it
		p.wait(name, images.ReasonCreating, strings.TrimSuffix(err.Error(), ": "+late.why)+": "+late.why)
		return false, nil
	}
	defer func() { s.Started(start.Kind, err) }()
	if err != nil {
		return false, s.failed(ctx, p, name, "CreateContainerConfigError", err)
	}
	if err := s.makeLogDir(p, name); err != nil {
		return false, s.failed(ctx, p, name, "CreateContainerError", err)
	}
	p.Changed = true
	making, done := finishing(ctx)
	id, err := s.Runtime.CreateContainer(making, p.Actions.SandboxID, config, p.SandboxConfig)
	done()
	if err != nil {
		return false, s.failed(ctx, p, name, "CreateContainerError", err)
	}
	if err := s.link(p, name, id, start.Attempt); err != nil {
		p.Log.Warn("log link not made: log collectors will not see this container", "container", name, "err", err)
	}
	s.Events.Pod(p.Pod, name, v1.EventTypeNormal, "Created", "Container created")
	if hooked(start.Container) {
		p.markPostStart(id)
	}
	starting, done := finishing(ctx)
	err = s.Runtime.StartContainer(starting, id)
	done()
	if err == nil || answered(ctx, err) {
		s.count(p, start, id, err)
	}
	if err != nil {
		// The record of the hook stays: a start whose answer was lost may have taken place. If
		// there is no process, the next sync drops the record.
		return false, s.failed(ctx, p, name, runError, err)
	}
	s.Events.Pod(p.Pod, name, v1.EventTypeNormal, "Started", "Container started")
	s.checkSignal(ctx, p, start.Container, id, config.GetStopSignal())
	delete(p.Waiting, name)
	p.Started[name] = id
	if p.Record.PostStart[id] {
		s.postStart(p, start.Container, id)
		return true, nil
	}
	return false, nil
}

// failed keeps on the pod why a container could not start.
func (s *Starter) failed(ctx context.Context, p *Sync, name, reason string, err error) error {
	message, event := err.Error(), err.Error()
	if config := (*generate.ConfigError)(nil); errors.As(err, &config) {
		// the status has only the kubelet's words
		reason, message, event = config.Reason, config.Message, config.Error()
	}
	if ctx.Err() == nil {
		s.Events.Pod(p.Pod, name, v1.EventTypeWarning, "Failed", "Error: "+event)
		p.wait(name, reason, message)
	}
	return fmt.Errorf("%s of container %s: %w", reason, name, err)
}

// answered reports whether an error is the runtime's answer about a container. It is not if the
// runtime was silent or the call was cut short.
func answered(ctx context.Context, err error) bool {
	return ctx.Err() == nil && !errdefs.IsUnavailable(err) && !errdefs.IsDeadlineExceeded(err) &&
		!errdefs.IsCanceled(err)
}

// count counts a start that took place, or that failed by the runtime's answer. It raises the
// container's crash back-off if the start was a restart. A start that was cut off does not count.
func (s *Starter) count(p *Sync, start plan.Start, id string, err error) {
	if err != nil {
		if p.Record.StartFailed == nil {
			p.Record.StartFailed = map[string]bool{}
		}
		p.Record.StartFailed[id] = true
	}
	limits := s.Limits(p.Pod)
	if start.Previous != nil && start.Previous.Exited() && !limits.Free(start.Previous.ExitCode) {
		p.Record.RaiseBackoff(start.Container, start.Previous, limits)
	}
}

// markPostStart records, before the container runs, that its hook has to run. An agent that dies
// meanwhile finds the record.
func (p *Sync) markPostStart(id string) {
	if p.Record.PostStart == nil {
		p.Record.PostStart = map[string]bool{}
	}
	p.Record.PostStart[id] = true
	if err := p.Save(); err != nil {
		p.Log.Warn("postStart hook not noted: it will not run again should the agent end before it is done", "err", err)
	}
}

// config makes the container's config.
func (s *Starter) config(ctx context.Context, p *Sync, start plan.Start) (*runtimeapi.ContainerConfig, error) {
	c := start.Container
	addrs := generate.Addresses{HostIPs: s.Node.HostIPs(), PodIPs: p.PodIPs}
	if p.Pod.Spec.HostNetwork {
		addrs.PodIPs = addrs.HostIPs
	}
	services, err := s.Node.Services(p.Pod)
	if err != nil {
		return nil, err
	}
	env, err := generate.Env(generate.EnvInput{
		Pod:         p.Pod,
		Container:   c,
		Objects:     s.Node.Objects(),
		Addresses:   addrs,
		Allocatable: s.Node.Allocatable(),
		Services:    services,
		EnvFile:     s.envFile(ctx, p),
	})
	if err != nil {
		return nil, err
	}
	mounts, err := s.mounts(ctx, p, start)
	if err != nil {
		return nil, err
	}
	targetID, err := target(p, c.Name)
	if err != nil {
		return nil, err
	}
	given, err := s.Node.Allocated(ctx, p.Pod, c)
	if err != nil {
		return nil, err
	}
	return withGiven(given, generate.ContainerInput{
		TargetID: targetID,
		Pod:      p.Pod, Container: c, Node: s.Node.Generate(p.Pod), RestartCount: int(start.Attempt),
		Image: p.Images[c.Name].Image, Env: env, Mounts: mounts, Resources: s.Node.Resources(p.Pod, c),
		VolumeGroups: p.VolumeGroups, UserNamespace: p.UserNamespace,
	})
}

// mounts collects what the container's mounts are made of.
func (s *Starter) mounts(ctx context.Context, p *Sync, start plan.Start) (generate.MountInput, error) {
	c := start.Container
	in := generate.MountInput{Volumes: make(map[string]generate.Volume, len(p.Volumes))}
	for name, m := range p.Volumes {
		in.Volumes[name] = generate.Volume{
			HostPath: m.HostPath,
			Device:   m.Device,
			Image:    m.Image,
			ReadOnly: m.ReadOnly,
			Relabel:  m.SELinuxRelabel,
		}
	}
	in.SubPath = s.subPath(ctx, p, c)
	if generate.NeedsHostsFile(p.Pod, p.PodIPs) {
		content, err := generate.HostsFile(generate.HostsInput{
			Pod:           p.Pod,
			PodIPs:        p.PodIPs,
			ClusterDomain: s.Node.Generate(p.Pod).DNS.ClusterDomain,
			NodeFile:      s.Node.HostsFile(),
		})
		if err != nil {
			return in, err
		}
		if in.HostsFile, err = s.Volumes.WriteHosts(p.Pod, content); err != nil {
			return in, err
		}
	}
	if c.TerminationMessagePath != "" {
		path, err := s.Volumes.TerminationLog(p.Pod, c.Name, start.Attempt)
		if err != nil {
			return in, err
		}
		in.TerminationLog = path
	}
	return in, nil
}

// postStart runs the container's hook beside the worker. If the hook fails, [Collect] has the
// container stopped, as upstream does. A hook that was cut off by the agent's end stays recorded
// and runs again.
func (s *Starter) postStart(p *Sync, c *v1.Container, id string) {
	pod, podIP, log := p.Pod, first(p.PodIPs), p.Log
	if pod.Spec.HostNetwork {
		podIP = first(s.Node.HostIPs())
	}
	p.start(postStartTask+id, func(ctx context.Context) error {
		err := s.Hooks.Run(ctx, pod, podIP, c, id, c.Lifecycle.PostStart)
		if err == nil || ctx.Err() != nil {
			return err
		}
		log.Warn("postStart hook failed: the container is stopped", "container", c.Name, "err", err)
		s.Events.Pod(pod, c.Name, v1.EventTypeWarning, hooks.ReasonFailedPostStartHook,
			hooks.Message(hooks.ReasonFailedPostStartHook, err))
		s.Events.Pod(pod, c.Name, v1.EventTypeNormal, "Killing", hooks.ReasonFailedPostStartHook)
		return err
	})
}

// Resume runs the hooks that an earlier run of the agent recorded and did not see ending.
func (s *Starter) Resume(p *Sync) {
	for _, c := range p.Observed.Running() {
		if _, stopping := p.Record.Stops[c.Id]; stopping || p.Busy(c.Id) != "" || !p.Record.PostStart[c.Id] {
			continue
		}
		if spec, _ := plan.FindContainer(p.Pod, c.Name()); spec != nil && hooked(spec) {
			s.postStart(p, spec, c.Id)
		}
	}
}

// makeLogDir makes the directory that the runtime writes the container's log into.
func (s *Starter) makeLogDir(p *Sync, name string) error {
	dir := filepath.Join(cri.PodLogDir(s.PodLogsDir, cri.IDOf(p.Pod)), name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("making the log directory: %w", err)
	}
	return nil
}

// link makes the link by which log collectors find the container's log.
func (s *Starter) link(p *Sync, name, id string, attempt uint32) error {
	id4pod := cri.IDOf(p.Pod)
	to := filepath.Join(cri.PodLogDir(s.PodLogsDir, id4pod), cri.ContainerLogPath(name, int(attempt)))
	link := cri.LogSymlink(s.LinksDir, id4pod, name, id)
	if err := os.Symlink(to, link); err != nil && !os.IsExist(err) {
		return fmt.Errorf("linking to the container's log: %w", err)
	}
	return nil
}

// waits reports the containers that are held back by their crash back-off.
func (s *Starter) waits(p *Sync, out *Outcome) {
	for _, w := range p.Actions.Wait {
		message := fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)", w.Delay, w.Name, p.Pod.Name,
			p.Pod.Namespace, p.Pod.UID)
		reason := status.Reason{Reason: "CrashLoopBackOff", Message: message}
		if failed := p.startFailed(w.Name); failed != nil {
			reason = *failed
		}
		p.wait(w.Name, reason.Reason, reason.Message)
		s.Events.Pod(p.Pod, w.Name, v1.EventTypeWarning, "BackOff",
			fmt.Sprintf("Back-off restarting failed container %s in pod %s_%s(%s)", w.Name, p.Pod.Name, p.Pod.Namespace,
				p.Pod.UID))
		out.RetryAt = Earlier(out.RetryAt, w.Until)
		out.Waiting = message
	}
}

// startFailed returns why a container's last attempt could not start; nil if it ran. A kubelet
// shows that reason until the next attempt, because nothing has crashed.
func (p *Sync) startFailed(name string) *status.Reason {
	last := p.Observed.Latest(name)
	if last == nil || !p.Record.StartFailed[last.Id] {
		return nil
	}
	if p.Record.Status != nil {
		for _, s := range slices.Concat(p.Record.Status.InitContainerStatuses, p.Record.Status.ContainerStatuses) {
			if w := s.State.Waiting; s.Name == name && w != nil && w.Reason == runError {
				return &status.Reason{Reason: runError, Message: w.Message}
			}
		}
	}
	return &status.Reason{Reason: runError, Message: last.Message}
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}
