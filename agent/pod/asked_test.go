package pod

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/node/runtimestate"
	"github.com/berthd/berth/agent/pod/checkpoint"
	"github.com/berthd/berth/agent/pod/plan"
	"github.com/berthd/berth/agent/pod/tasks"
	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/internal/pods"
	"github.com/berthd/berth/probes"
)

// askRestart makes a sync that meets a request for a restart of containers of a pod with two
// containers, a and b, of which a runs. It returns the answer.
func askRestart(rec *checkpoint.Record, phase worker.Phase, save error, names ...string) restartAnswer {
	e := &Engine{
		deps: Deps{Probes: probes.New(probes.Config{}, probes.Deps{})}, ephemerals: &ephemerals{},
		restarts: &askedRestarts{},
	}
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u", Namespace: "ns", Name: "p"}}
	pod.Spec.Containers = []v1.Container{{Name: "a"}, {Name: "b"}}
	s := e.syncOf(worker.Work{UID: "u", Pod: pod, Phase: phase}, rec, save)
	s.Tasks = tasks.New(context.Background(), func() {}, func(any) error { return nil })
	s.Observed.Containers = []*plan.Container{{ContainerStatus: &runtimeapi.ContainerStatus{
		Id: "a0", Metadata: &runtimeapi.ContainerMetadata{Name: "a"},
		State: runtimeapi.ContainerState_CONTAINER_RUNNING,
	}}}
	r := &askedRestart{names: names, done: make(chan restartAnswer, 1)}
	e.restarts.ask("u", r)
	if _, err := e.noteAsked(context.Background(), s); err != nil {
		return restartAnswer{err: err}
	}
	return <-r.done
}

func TestAskedRestarts(t *testing.T) {
	for _, c := range []struct {
		name  string
		rec   checkpoint.Record
		phase worker.Phase
		save  error
		names []string
		want  string
		noted int
	}{
		{name: "all that can", want: "[a] <nil>", noted: 1},
		{name: "one", names: []string{"a"}, want: "[a] <nil>", noted: 1},
		{
			name: "one that cannot", names: []string{"a", "b"},
			want: "[] not restarted: container b has not started yet",
		},
		{name: "nobody", names: []string{"x"}, want: `[] not restarted: the pod has no container "x"`},
		{name: "a full disk", save: errors.New("no space left on device"), want: "[] no space left on device"},
		{name: "the pod ends", phase: worker.Terminating, want: "[] not restarted: the pod ends, or has ended"},
		{
			name: "the pod has ended", rec: checkpoint.Record{Ended: true},
			want: "[] not restarted: the pod ends, or has ended",
		},
	} {
		rec := c.rec
		got := askRestart(&rec, c.phase, c.save, c.names...)
		if text := fmt.Sprint(got.names, " ", got.err); text != c.want || len(rec.Asked) != c.noted {
			t.Errorf("%s: %s, noted %v; want %s", c.name, text, rec.Asked, c.want)
		}
	}
}

// A restart while the runtime is silent says so and is not recorded, long before its context ends:
// neither if the pod's syncs wait for the runtime, nor if they need it for no list, as with the
// native runtime.
func TestRestartWithASilentRuntime(t *testing.T) {
	for name, syncs := range map[string]func(*Engine) worker.Handler{
		"syncs wait":   func(*Engine) worker.Handler { return hangingSyncs{} },
		"syncs answer": func(e *Engine) worker.Handler { return answeringSyncs{restarts: e.restarts} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { restartOfASilentRuntime(t, syncs) })
		})
	}
}

func restartOfASilentRuntime(t *testing.T, syncs func(*Engine) worker.Handler) {
	log := slog.New(slog.DiscardHandler)
	pool := worker.New(t.Context(), worker.Config{}, log)
	defer pool.Close()
	e := &Engine{restarts: &askedRestarts{}, deps: Deps{
		Workers: pool,
		Runtime: Runtime{State: runtimestate.New(runtimestate.Deps{Runtime: hangingRuntime{}, Logger: log})},
	}}
	pool.Start(syncs(e))
	pool.Set(&v1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: "u", Namespace: "ns", Name: "p"},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "a"}}},
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	names, err := e.Restart(ctx, "u", nil, nil)
	silence := (*runtimestate.Silence)(nil)
	if !errors.As(err, &silence) || !strings.Contains(err.Error(), "the restart is not recorded") || ctx.Err() != nil {
		t.Errorf("restarts %v: %v", names, err)
	}
	if left := e.restarts.take("u"); len(left) > 0 {
		t.Errorf("%d requests are left", len(left))
	}
}

// answeringSyncs are syncs that answer every request.
type answeringSyncs struct {
	hangingSyncs
	restarts *askedRestarts
}

func (a answeringSyncs) Sync(_ context.Context, w worker.Work) worker.Result {
	for _, r := range a.restarts.take(w.UID) {
		r.done <- restartAnswer{names: []string{"a"}}
	}
	return worker.Result{}
}

// hangingSyncs are syncs that wait for the runtime.
type hangingSyncs struct{}

func (hangingSyncs) Sync(ctx context.Context, _ worker.Work) worker.Result {
	<-ctx.Done()
	return worker.Result{Err: ctx.Err()}
}

func (hangingSyncs) Gone(types.UID, *v1.Pod) {}

// hangingRuntime never answers.
type hangingRuntime struct{ runtimestate.Runtime }

func (hangingRuntime) Version(ctx context.Context) (*runtimeapi.VersionResponse, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// A request that nobody waits for any more restarts nothing, and one of a pod that is gone is
// answered.
func TestForgottenRestarts(t *testing.T) {
	a := &askedRestarts{}
	first, second := &askedRestart{done: make(chan restartAnswer, 1)}, &askedRestart{done: make(chan restartAnswer, 1)}
	a.ask("u", first)
	a.ask("u", second)
	if !a.withdraw("u", first) || a.withdraw("u", first) {
		t.Error("the first is withdrawn, and only once")
	}
	a.drop("u")
	if answer := <-second.done; !errors.Is(answer.err, ErrNotRestarted) || len(first.done) > 0 || len(a.byUID) > 0 {
		t.Errorf("%v, %d answers to the first, %v left", answer.err, len(first.done), a.byUID)
	}
}

// Who restarts a pod that does not run learns what starts it.
func TestNotRunning(t *testing.T) {
	static := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p"}}
	ofAPI := static.DeepCopy()
	ofAPI.Annotations = map[string]string{pods.AnnotationSource: pods.SourceAPI}
	for _, c := range []struct {
		entry worker.Entry
		want  string
	}{
		{worker.Entry{Pod: static, Phase: worker.Terminating}, "the pod ends, or has ended"},
		{worker.Entry{Pod: static, Phase: worker.Terminated, Unwanted: true}, "the pod ends, or has ended"},
		{worker.Entry{Pod: ofAPI, Phase: worker.Terminated}, "the pod ends, or has ended"},
		{worker.Entry{Pod: static, Phase: worker.Terminated}, `the pod has ended: "berth start ns/p" runs it anew`},
		{
			worker.Entry{Pod: static, Phase: worker.Terminated, Stop: &worker.Stop{Cause: worker.CauseEvicted}},
			`the pod has ended: "berth start ns/p" runs it anew`,
		},
		{
			worker.Entry{Pod: static, Phase: worker.Terminating, Stop: &worker.Stop{Cause: worker.CauseOperator}},
			`an operator has stopped the pod: "berth start ns/p" starts it`,
		},
		{
			worker.Entry{Pod: static, Phase: worker.Terminated, Stop: &worker.Stop{Cause: worker.CauseDrain}},
			`the node is drained: "berth drain --undo" lets its pods run again`,
		},
	} {
		if got := notRunning(c.entry); got != c.want {
			t.Errorf("%+v: %q, want %q", c.entry, got, c.want)
		}
	}
}
