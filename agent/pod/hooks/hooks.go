package hooks

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/internal/pods"
	"github.com/berthd/berth/probes"
)

// Reasons of the events that the pipeline records after a hook has failed. [Message] makes the
// messages of these events.
const (
	ReasonFailedPostStartHook = "FailedPostStartHook"
	ReasonFailedPreStopHook   = "FailedPreStopHook"
)

// reasonHTTPFallback is the reason of the event that this package records itself.
const reasonHTTPFallback = "LifecycleHTTPFallback"

// maxBody is how much of a response's body is read, in bytes. It is the kubelet's value.
const maxBody = 10 << 10

// Config is what an administrator can choose. The zero value works.
type Config struct {
	// UserAgent is sent by HTTP hooks; empty means "kube-lifecycle/1.36".
	UserAgent string
	// DenyLinkLocal refuses HTTP hooks to link-local addresses, such as a cloud's metadata service.
	DenyLinkLocal bool
}

// Deps is what hooks need from other packages. Exec is required if containers have exec hooks; the
// rest may be nil.
type Deps struct {
	// Exec runs a command in a container. Hooks set no timeout of their own (0): the context limits
	// the command.
	Exec probes.ExecFunc
	// Events records an event. An empty container means an event about the pod.
	Events func(pod *v1.Pod, container, eventType, reason, message string)
	// Observe receives the result of every hook.
	Observe func(Observation)
	Logger  *slog.Logger
}

// Observation measures one hook that ran.
type Observation struct {
	// Handler is exec, httpGet, sleep, or invalid.
	Handler  string
	Duration time.Duration
	// Err is what Run returned.
	Err error
	// HTTPFallback is set if an HTTPS hook succeeded over HTTP
	// (kubelet_lifecycle_handler_http_fallbacks_total).
	HTTPFallback bool
	// SleepTerminated is set if a sleep was cut short
	// (kubelet_lifecycle_handler_sleep_terminated_total).
	SleepTerminated bool
}

// Runner runs hooks. Make it with [New].
type Runner struct {
	cfg  Config
	deps Deps
	log  *slog.Logger
	http *http.Client
}

// New returns a Runner.
func New(cfg Config, deps Deps) *Runner {
	if cfg.UserAgent == "" {
		cfg.UserAgent = "kube-lifecycle/1.36"
	}
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	return &Runner{
		cfg:  cfg,
		deps: deps,
		log:  deps.Logger,
		// The client has no timeout: the context of each Run has it.
		http: &http.Client{
			Transport: probes.NewHTTPTransport(cfg.DenyLinkLocal), CheckRedirect: probes.SameHostRedirects,
		},
	}
}

// hook is one handler to run, with all that it needs.
type hook struct {
	pod         *v1.Pod
	podIP       string
	container   *v1.Container
	containerID string
	handler     *v1.LifecycleHandler
}

// Run runs a handler of a container of pod. It returns nil if the handler succeeded. podIP is the
// host of HTTP hooks that name no host; Exec receives containerID. The error's text is the
// kubelet's message for the container's state. The error wraps its cause, which is
// context.Cause(ctx) if ctx ended first. tcpSocket and empty handlers always fail.
func (r *Runner) Run(
	ctx context.Context, pod *v1.Pod, podIP string, container *v1.Container, containerID string,
	handler *v1.LifecycleHandler,
) error {
	began := time.Now()
	o := r.run(ctx, hook{pod, podIP, container, containerID, handler})
	o.Duration = time.Since(began)
	if cause := context.Cause(ctx); o.Err != nil && cause != nil && !errors.Is(o.Err, cause) {
		// Runtimes and servers describe a call that was cut short in many ways.
		o.Err = fmt.Errorf("%w (%w)", o.Err, cause)
	}
	if o.Err != nil {
		r.log.Debug("Lifecycle hook failed", "pod", pods.FullName(pod), "container", container.Name,
			"handler", o.Handler, "duration", o.Duration)
	}
	if r.deps.Observe != nil {
		r.deps.Observe(o)
	}
	return o.Err
}

// run calls the function for the handler's kind, and adds the kubelet's words to an error.
func (r *Runner) run(ctx context.Context, h hook) (o Observation) {
	switch {
	case h.handler.Exec != nil:
		o.Handler = "exec"
		if err := r.exec(ctx, h); err != nil {
			o.Err = fmt.Errorf( //nolint:staticcheck // The kubelet's text.
				"Exec lifecycle hook (%v) for %s failed - error: %w",
				h.handler.Exec.Command, h.where(), err)
		}
	case h.handler.HTTPGet != nil:
		o.Handler = "httpGet"
		fallback, err := r.httpGet(ctx, h)
		o.HTTPFallback = fallback
		if err != nil {
			o.Err = fmt.Errorf("HTTP lifecycle hook (%s) for %s failed - error: %w",
				h.handler.HTTPGet.Path, h.where(), err)
		}
	case h.handler.Sleep != nil:
		o.Handler = "sleep"
		if err := sleep(ctx, h.handler.Sleep.Seconds); err != nil {
			o.SleepTerminated = true
			o.Err = fmt.Errorf( //nolint:staticcheck // The kubelet's text.
				"Sleep lifecycle hook (%d) for %s failed - error: %w",
				h.handler.Sleep.Seconds, h.where(), err)
		}
	default:
		o.Handler = "invalid"
		o.Err = fmt.Errorf( //nolint:staticcheck // The kubelet's text.
			"Cannot run handler: invalid handler: %v",
			h.handler)
	}
	return o
}

// where names the container and its pod.
func (h hook) where() string {
	return fmt.Sprintf("Container %q in Pod %q", h.container.Name,
		fmt.Sprintf("%s_%s(%s)", h.pod.Name, h.pod.Namespace, h.pod.UID))
}

// exec runs the command. The command's output is recorded nowhere: it may hold the container's
// secrets.
func (r *Runner) exec(ctx context.Context, h hook) error {
	if r.deps.Exec == nil {
		return errors.New("exec is not available")
	}
	command := h.handler.Exec.Command
	exit, _, err := r.deps.Exec(ctx, h.containerID, command, 0)
	if err == nil && exit != 0 {
		err = &exitError{command: command, code: exit}
	}
	return err
}

// sleep waits for so many seconds, or until ctx ends.
func sleep(ctx context.Context, seconds int64) error {
	timer := time.NewTimer(time.Duration(seconds) * time.Second)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("container terminated before sleep hook finished: %w", context.Cause(ctx))
	}
}
