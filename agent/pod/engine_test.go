package pod

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/pod/checkpoint"
	"github.com/berthd/berth/agent/pod/steps"
	"github.com/berthd/berth/agent/pod/tasks"
	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/agent/telemetry/metrics"
)

// stuckSyncs are syncs that wait for a file system, whatever their context says.
type stuckSyncs struct{ begun, answers chan struct{} }

func (s stuckSyncs) Sync(context.Context, worker.Work) worker.Result {
	close(s.begun)
	<-s.answers
	return worker.Result{}
}

func (stuckSyncs) Gone(types.UID, *v1.Pod) {}

// The end of a pod does not wait for a look at a file system that does not answer.
func TestDropLeavesLooksBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStates(func(types.UID) *tasks.Group { return tasks.New(t.Context(), func() {}, nil) })
		answers := make(chan struct{})
		if ended, _ := s.of("v").tasks.Brief(t.Context(), "look/message/id", time.Second, func(context.Context) error {
			<-answers
			return nil
		}); ended {
			t.Error("it answers")
		}
		if s.drop("v") == nil {
			t.Error("the pod had no record")
		}
		close(answers)
	})
}

// The end of the agent waits for a sync and a task, but not for ever.
func TestEndLeavesBehindWhatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		log := slog.New(slog.NewTextHandler(&out, nil))
		pool := worker.New(t.Context(), worker.Config{}, log)
		syncs := stuckSyncs{begun: make(chan struct{}), answers: make(chan struct{})}
		pool.Start(syncs)
		pool.Set(testPod("u"))
		<-syncs.begun
		e := &Engine{log: log, deps: Deps{Workers: pool}, states: newStates(func(types.UID) *tasks.Group {
			return tasks.New(t.Context(), func() {}, nil)
		})}
		group := e.states.of("v").tasks
		group.Start("look/subPath/app/0", func(context.Context) error { <-syncs.answers; return nil })
		began := time.Now()
		e.End()
		if time.Since(began) != endLimit || !strings.Contains(out.String(), "look/subPath/app/0") {
			t.Errorf("it took %v, and says %s", time.Since(began), out.String())
		}
		close(syncs.answers)
		synctest.Wait()
		began = time.Now()
		out.Reset()
		if e.End(); time.Since(began) != 0 || out.Len() > 0 {
			t.Errorf("without what hangs it took %v, and says %s", time.Since(began), out.String())
		}
	})
}

// A defect in what is forgotten of a pod keeps nothing else from being forgotten, and the worker
// goes on.
func TestGoneGoesOnAfterPanics(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	pool := worker.New(t.Context(), worker.Config{}, log)
	defer pool.Close()
	told := 0
	set := metrics.New("node", "v1")
	e := &Engine{log: log, deps: Deps{ // without most parts, whose calls panic
		Desired:   nothingWanted{},
		Telemetry: Telemetry{Metrics: set, Log: log},
		Workers:   pool, StaticChanged: func() { told++ },
	}}
	e.Gone("u", nil)
	if told != 1 {
		t.Errorf("the last to be told was told %d times", told)
	}
	families, err := set.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "berth_pod_sync_panics_total" && f.Metric[0].GetCounter().GetValue() == 0 {
			t.Error("no panic is counted")
		}
	}
}

// A sync that is cut short between the take-down and the status has not ended the pod: a record of
// the end without the status would keep the API server waiting for ever.
func TestTakeDownAloneIsNoEnd(t *testing.T) {
	s := &podSync{work: worker.Work{Phase: worker.Terminating}, Sync: &steps.Sync{
		Given: steps.Given{Record: &checkpoint.Record{}},
	}}
	(&Engine{}).takeDown(t.Context(), s)
	if !s.res.Done || s.Record.Ended {
		t.Errorf("taken down: %v, ended on record: %v", s.res.Done, s.Record.Ended)
	}
}
