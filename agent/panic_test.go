package agent

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/cri/fake"
)

// A defect that one pod meets fails the syncs of that pod: it is reported, it is tried again later,
// and all other pods run.
func TestPanicFailsOnePod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var repaired atomic.Bool
		var panics atomic.Int32
		cgroups := noCgroups{made: func(pod *v1.Pod) {
			if pod.Name == "bad-node" && !repaired.Load() {
				panics.Add(1)
				panic("index out of range")
			}
		}}
		pod := func(name string) string {
			return fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {name: %s}, "+
				"spec: {containers: [{name: app, image: app}]}}\n", name)
		}
		a, end := liveWith(t, t.TempDir(), fake.New(fake.Config{}), manifest(pod("bad")+"---\n"+pod("good")),
			Deps{Cgroups: cgroups}, nil)
		defer end()
		time.Sleep(5 * time.Minute)
		phases := func() string {
			var out []string
			for _, p := range a.Pods() {
				out = append(out, p.Name+" "+string(p.Status.Phase))
			}
			return strings.Join(out, ", ")
		}
		if got := phases(); got != "bad-node Pending, good-node Running" {
			t.Errorf("pods: %s", got)
		}
		if n := panics.Load(); n < 10 || n > 60 {
			t.Errorf("%d panics in five minutes", n)
		}
		counted, err := a.deps.Metrics.Registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range counted {
			if f.GetName() == "berth_pod_sync_panics_total" && f.Metric[0].GetCounter().GetValue() != float64(panics.Load()) {
				t.Errorf("counted %s of %d panics", f.Metric[0], panics.Load())
			}
		}
		reported := false
		for _, e := range a.Events() {
			reported = reported || e.Reason == "FailedSync" && e.InvolvedObject.Name == "bad-node" &&
				strings.Contains(e.Message, "panic: index out of range")
		}
		if !reported {
			t.Errorf("no event tells of it: %v", a.Events())
		}
		repaired.Store(true)
		time.Sleep(time.Minute)
		if got := phases(); got != "bad-node Running, good-node Running" {
			t.Errorf("without the defect: %s", got)
		}
	})
}

// failDeep panics below another function.
func failDeep(of []int) int { return of[len(of)] }

// The log of a panic has the pod, what the panic said and the stack that panicked: without it,
// nobody can find the defect that a user reports.
func TestPanicIsLoggedWithItsStack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		cgroups := noCgroups{made: func(*v1.Pod) { failDeep(nil) }}
		_, end := liveWith(t, t.TempDir(), fake.New(fake.Config{}), onePod,
			Deps{Cgroups: cgroups, Logger: slog.New(slog.NewJSONHandler(&log, nil))}, nil)
		time.Sleep(time.Minute)
		end()
		logged := 0
		for text := range strings.Lines(log.String()) {
			var line struct{ Level, Msg, Pod, UID, Panic, Stack string }
			if err := json.Unmarshal([]byte(text), &line); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			if !strings.HasPrefix(line.Msg, "panic in a pod's sync") {
				continue
			}
			logged++
			if line.Level != "ERROR" || line.Pod != "default/web-node" || line.UID == "" ||
				!strings.Contains(line.Panic, "index out of range [0] with length 0") {
				t.Errorf("logged %s", text)
			}
			if !strings.Contains(line.Stack, "agent.failDeep(") || !strings.Contains(line.Stack, "panic_test.go:") {
				t.Errorf("the stack does not lead to what panicked: %q", line.Stack)
			}
		}
		if logged == 0 {
			t.Errorf("no panic in the log: %s", log.String())
		}
	})
}
