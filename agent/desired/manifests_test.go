package desired

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/cri/fake"
	"github.com/berthd/berth/internal/pods"
)

// TestResultsNameTheirLineOnce checks the log lines and the events about manifests.
func TestResultsNameTheirLineOnce(t *testing.T) {
	var log bytes.Buffer
	var events []string
	r := &Reconciler{
		log: slog.New(slog.NewTextHandler(&log, nil)), reported: map[resultKey]bool{},
		deps: Deps{
			Event:   func(_, reason, message string) { events = append(events, reason+" "+message) },
			Refused: func(int) {},
		},
	}
	results := []source.Result{
		{
			File: "/m/a.yaml", Document: 1, Line: 1, Kind: "Pod", Name: "a", Accepted: true,
			Warnings: []string{`line 5: unknown field "x"`, "everybody may write to it"},
		},
		{File: "/m/b.yaml", Document: 1, Line: 7, Kind: "Pod", Field: "spec", Message: "spec: Required value"},
		{File: "/m/c.yaml", Message: "the manifest is empty"},
	}
	for range 2 {
		r.reportResults(results)
	}
	if want := []string{
		"FailedValidation /m/b.yaml:7: spec: Required value", "FailedValidation /m/c.yaml: the manifest is empty",
	}; !slices.Equal(events, want) {
		t.Errorf("events %q, want %q", events, want)
	}
	for _, want := range []string{
		`file=/m/a.yaml document=1 line=5 field="" message="unknown field \"x\""`,
		`file=/m/a.yaml document=1 line=0 field="" message="everybody may write to it"`,
		`file=/m/b.yaml document=1 line=7 field=spec message="spec: Required value"`,
	} {
		if strings.Count(log.String(), want) != 1 {
			t.Errorf("not once %s in %s", want, log.String())
		}
	}
}

// A manifest that is only renamed leaves its pod as it is; the record must name the new file.
func TestRenamedManifestWakesItsPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		syncs := 0
		n := newNode(t, fake.New(fake.Config{}), handler{sync: func(context.Context, worker.Work) worker.Result {
			syncs++
			return worker.Result{}
		}})
		results := func(file string) []source.Result {
			return []source.Result{{File: file, UID: "u", Accepted: true}}
		}
		n.workers.Set(podOf("u"))
		for _, step := range []struct {
			file string
			want int
		}{{"a.yaml", 1}, {"a.yaml", 1}, {"b.yaml", 2}, {"b.yaml", 2}} {
			n.reconciler.rememberFiles(results(step.file))
			synctest.Wait()
			if syncs != step.want {
				t.Errorf("%s: %d syncs, want %d", step.file, syncs, step.want)
			}
		}
		n.workers.Close()
	})
}

// A pod whose manifest was deleted and is there again starts anew, also if the agent saw nothing in
// between. It goes on if the arrival of its manifest is not known, as after a restart of the agent.
func TestReturnedManifestStartsItsPodAnew(t *testing.T) {
	pod := podOf("u")
	for _, test := range []struct {
		name     string
		next     source.Result
		replaced bool
	}{
		{name: "arrived again", next: source.Result{File: "a.yaml", Arrival: 2}, replaced: true},
		{name: "the same arrival", next: source.Result{File: "a.yaml", Arrival: 1}},
		{name: "renamed", next: source.Result{File: "b.yaml", Arrival: 2}},
		{name: "unknown arrival", next: source.Result{File: "a.yaml"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				gone := 0
				n := newNode(t, fake.New(fake.Config{}), handler{
					sync: func(_ context.Context, w worker.Work) worker.Result { return worker.Result{Done: w.Unwanted} },
					gone: func() { gone++ },
				})
				n.reconciler.deps.Refused, n.reconciler.deps.Changed = func(int) {}, func() {}
				n.reconciler.deps.Admitted = func(types.UID) bool { return true }
				apply := func(v source.Result) {
					v.UID, v.Accepted = "u", true
					n.reconciler.apply(source.Update{
						Pods: map[types.UID]*v1.Pod{"u": pod}, Results: []source.Result{v},
						Ready: map[string]bool{pods.SourceFile: true}, AllReady: true,
					})
					synctest.Wait()
				}
				apply(source.Result{File: "a.yaml", Arrival: 1})
				apply(test.next)
				if (gone == 1) != test.replaced || !n.workers.Has("u") {
					t.Errorf("the pod was removed %d times, and has a worker: %t", gone, n.workers.Has("u"))
				}
				n.workers.Close()
			})
		})
	}
}

// A drained node keeps a pod that has ended, but not one whose manifest was deleted and is there
// again: such a pod starts anew after the drain.
func TestReturnedManifestIsNotKept(t *testing.T) {
	n := newNode(t, fake.New(fake.Config{}), handler{})
	wanted := map[types.UID]*v1.Pod{"u": podOf("u")}
	known := map[types.UID]worker.Entry{"u": {Pod: wanted["u"], Phase: worker.Terminated}}
	for _, returned := range []bool{false, true} {
		kept := n.reconciler.keptOf(wanted, known, map[types.UID]bool{"u": returned})
		if _, ok := kept["u"]; ok == returned {
			t.Errorf("returned: %t, kept: %t", returned, ok)
		}
	}
}
