package agent

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/checkpoint"
	"github.com/berthd/berth/agent/plan"
	"github.com/berthd/berth/agent/steps"
	"github.com/berthd/berth/agent/tasks"
	"github.com/berthd/berth/agent/volumes"
	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/probes"
)

func TestHealthy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &Agent{}
		time.Sleep(time.Hour) // of waiting for the runtime
		if err := a.Healthy(time.Second); err != nil {
			t.Errorf("before the main loop began: %v", err)
		}
		now := time.Now()
		a.beat.Store(&now)
		if err := a.Healthy(time.Second); err != nil {
			t.Errorf("just after a turn: %v", err)
		}
		time.Sleep(2 * time.Second)
		if err := a.Healthy(time.Second); err == nil {
			t.Error("healthy though the main loop has stopped")
		}
	})
}

// A loop that gives up is told of once, not again when it is joined.
func TestLoopThatFailsIsToldOnce(t *testing.T) {
	broken := errors.New("broken")
	failed := make(chan error, 1)
	r := start(loop{"thing", func(context.Context) error { return broken }}, failed)
	if err := <-failed; !errors.Is(err, broken) {
		t.Errorf("told %v", err)
	}
	if err := r.stop(); err != nil {
		t.Errorf("told again: %v", err)
	}
	r = start(loop{"thing", func(ctx context.Context) error { <-ctx.Done(); return broken }}, failed)
	if err := r.stop(); !errors.Is(err, broken) {
		t.Errorf("an error on the way out is lost: %v", err)
	}
}

func TestTroubleIsLoggedOncePerChange(t *testing.T) {
	var tr trouble
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for _, step := range []struct {
		at   time.Duration
		text string // empty: it succeeds
		want bool
	}{
		{0, "", false},
		{0, "disk full", true},
		{time.Second, "disk full", false},
		{20 * time.Second, "disk full", false},
		{21 * time.Second, "no CNI", true},
		{22 * time.Second, "disk full", false}, // too soon
		{32 * time.Second, "disk full", true},
		{33 * time.Second, "", true},
		{34 * time.Second, "", false},
		{35 * time.Second, "disk full", false}, // too soon
		{43 * time.Second, "disk full", true},
		{5 * time.Minute, "disk full", false},
		{6 * time.Minute, "disk full", true},
	} {
		var got bool
		if step.text == "" {
			got = tr.over()
		} else {
			got = tr.worth(errors.New(step.text), begin.Add(step.at))
		}
		if got != step.want {
			t.Errorf("%q after %s: %v", step.text, step.at, got)
		}
	}
}

// A file that cannot be read for a moment must not cost the pod its last words.
func TestLastWordsAreReadAgain(t *testing.T) {
	root := t.TempDir()
	a := &Agent{
		cfg: &configs.Config{}, volumes: volumes.New(volumes.Config{RootDir: root}, volumes.Deps{}), pods: &podStates{
			byUID: map[podUID]*podState{}, group: func(podUID) *tasks.Group { return nil },
		},
	}
	file := filepath.Join(root, "pods", "u", "message")
	if err := os.MkdirAll(file, 0o755); err != nil { // not a file: it cannot be read
		t.Fatal(err)
	}
	ended := &runtimeapi.ContainerStatus{
		Id: "c1", State: runtimeapi.ContainerState_CONTAINER_EXITED, Metadata: &runtimeapi.ContainerMetadata{Name: "app"},
		Labels:      cri.ContainerLabels(testPod("u"), "app"),
		Annotations: map[string]string{cri.AnnotationTerminationMessagePath: "/dev/termination-log"},
		Mounts:      []*runtimeapi.Mount{{ContainerPath: "/dev/termination-log", HostPath: file}},
	}
	p := &steps.Pass{Pod: testPod("u"), Log: slog.New(slog.DiscardHandler), Observed: plan.Observed{Containers: []*plan.Container{{ContainerStatus: ended}}}}
	read := func() string { return a.terminationMessages(p)["c1"] }
	if got := read(); got != "" {
		t.Errorf("read %q of a directory", got)
	}
	if err := errors.Join(os.Remove(file), os.WriteFile(file, []byte("farewell"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if got := read(); got != "farewell" {
		t.Errorf("read %q", got)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if got := read(); got != "farewell" {
		t.Errorf("what was read once is %q after the file is gone", got)
	}
	p.Early = true
	if got := read(); got != "farewell" {
		t.Errorf("what was read once is %q when another container's end is told early", got)
	}
	p.Early = false
	p.Observed.Containers[0].Id = "c2"
	if got, known := a.terminationMessages(p)["c2"]; got != "" || !known {
		t.Errorf("a file that is gone for good says %q, known %v", got, known)
	}
}

func testPod(uid podUID) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid, Namespace: "ns", Name: "pod-" + string(uid)}}
}

func TestDismantleWhatWasNeverSetUp(t *testing.T) {
	a := &Agent{deps: Deps{Cgroups: &hostCgroups{}}}
	if err := a.Dismantle(t.Context()); err != nil {
		t.Error(err)
	}
}

// Whoever tidies up the runtime's records must not make a pod run twice.
func TestDecideRemembersEndsWithoutRecords(t *testing.T) {
	a := &Agent{cfg: &configs.Config{}, probes: probes.New(probes.Config{}, probes.Deps{})}
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{UID: "uid"},
		Spec:       v1.PodSpec{RestartPolicy: v1.RestartPolicyNever, Containers: []v1.Container{{Name: "app"}}},
	}
	ended := &v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{
		Name: "app", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 3}},
	}}}
	in := a.decide(&steps.Pass{Pod: pod, Record: &checkpoint.Record{Status: ended}, Tasks: tasks.New(t.Context(), func() {})})
	if code, ok := in.Ended["app"]; !ok || code != 3 {
		t.Errorf("Ended = %v, want app with 3", in.Ended)
	}
}
