package probes

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const uid = types.UID("uid")

// call is one exec that the rig saw: which command, in which container, and how long after the
// rig's start.
type call struct {
	cmd, id string
	at      time.Duration
}

// rig is a Manager with a fake exec in a synctest bubble. A command is identified by its first
// word; answer defines what it does.
type rig struct {
	*Manager
	t     *testing.T
	start time.Time
	stop  func()
	// alive replaces Deps.Alive; nil means that the runtime answers.
	alive func(context.Context) error

	mu       sync.Mutex
	answer   map[string]func(ctx context.Context) (int, []byte, error)
	calls    []call
	events   []string
	observed []Observation
	changes  int
}

// newRig starts a Manager, which is stopped and joined when the test ends.
func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, start: time.Now(), answer: map[string]func(context.Context) (int, []byte, error){}}
	r.Manager = New(Config{}, Deps{
		Exec: r.exec,
		Alive: func(ctx context.Context) error {
			if r.alive == nil {
				return nil
			}
			return r.alive(ctx)
		},
		OnChange: func(types.UID) { r.mu.Lock(); r.changes++; r.mu.Unlock() },
		Events: func(_ *v1.Pod, container, eventType, reason, message string) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.events = append(r.events, strings.Join([]string{container, eventType, reason, message}, "|"))
		},
		Observe: func(o Observation) { r.mu.Lock(); r.observed = append(r.observed, o); r.mu.Unlock() },
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(r.stop)
	synctest.Wait()
	return r
}

func (r *rig) exec(ctx context.Context, id string, cmd []string, _ time.Duration) (int, []byte, error) {
	r.mu.Lock()
	r.calls = append(r.calls, call{cmd[0], id, time.Since(r.start)})
	answer := r.answer[cmd[0]]
	r.mu.Unlock()
	if answer == nil {
		return 0, nil, nil
	}
	return answer(ctx)
}

// set makes a command exit with code from now on.
func (r *rig) set(cmd string, code int) {
	r.setFunc(cmd, func(context.Context) (int, []byte, error) { return code, []byte("out of " + cmd), nil })
}

func (r *rig) setFunc(cmd string, f func(context.Context) (int, []byte, error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer[cmd] = f
}

// pass lets time pass.
func (r *rig) pass(d time.Duration) {
	time.Sleep(d) // The bubble's clock.
	synctest.Wait()
}

// times returns when a command ran, in seconds.
func (r *rig) times(cmd string) []float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []float64
	for _, c := range r.calls {
		if c.cmd == cmd {
			out = append(out, c.at.Seconds())
		}
	}
	return out
}

func (r *rig) wantTimes(cmd string, want ...float64) {
	r.t.Helper()
	if got := r.times(cmd); !slices.Equal(got, want) {
		r.t.Errorf("%s ran at %v s, want %v", cmd, got, want)
	}
}

func (r *rig) want(want Result) {
	r.t.Helper()
	if got := r.Results(uid)["c"]; got != want {
		r.t.Errorf("at %v: result %+v, want %+v", time.Since(r.start), got, want)
	}
}

func (r *rig) wantChanges(n int) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changes != n {
		r.t.Errorf("OnChange called %d times, want %d", r.changes, n)
	}
}

func (r *rig) wantEvents(want ...string) {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if !slices.Equal(r.events, want) {
		r.t.Errorf("events:\n%s\nwant:\n%s", strings.Join(r.events, "\n"), strings.Join(want, "\n"))
	}
}

// sync syncs pod with its container c running as id since now.
func (r *rig) sync(pod *v1.Pod, id string) {
	r.Sync(pod, "10.0.0.1", []Target{{Name: "c", ContainerID: id, StartedAt: time.Now()}})
	synctest.Wait()
}

func execProbe(cmd string, period, failures int32) *v1.Probe {
	return &v1.Probe{
		ProbeHandler:  v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{cmd}}},
		PeriodSeconds: period, FailureThreshold: failures, SuccessThreshold: 1, TimeoutSeconds: 1,
	}
}

func podOf(c v1.Container) *v1.Pod {
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{c}}}
	pod.Name, pod.Namespace, pod.UID = "pod", "ns", uid
	pod.Spec.Containers[0].Name = "c"
	return pod
}
