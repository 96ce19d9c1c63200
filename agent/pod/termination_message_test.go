package pod

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/pod/plan"
	"github.com/berthd/berth/agent/pod/steps"
	"github.com/berthd/berth/agent/pod/tasks"
	"github.com/berthd/berth/agent/volumes"
	"github.com/berthd/berth/cri"
)

// A pod keeps its termination message even if the file cannot be read for a moment.
func TestLastWordsAreReadAgain(t *testing.T) {
	root := t.TempDir()
	r := &reporter{deps: &Deps{Volumes: volumes.New(volumes.Config{RootDir: root}, volumes.Deps{})}}
	file := filepath.Join(root, "pods", "u", "message")
	if err := os.MkdirAll(file, 0o755); err != nil { // not a file: it cannot be read
		t.Fatal(err)
	}
	ended := &runtimeapi.ContainerStatus{
		Id:          "c1",
		State:       runtimeapi.ContainerState_CONTAINER_EXITED,
		Metadata:    &runtimeapi.ContainerMetadata{Name: "app"},
		Labels:      cri.ContainerLabels(testPod("u"), "app"),
		Annotations: map[string]string{cri.AnnotationTerminationMessagePath: "/dev/termination-log"},
		Mounts:      []*runtimeapi.Mount{{ContainerPath: "/dev/termination-log", HostPath: file}},
	}
	s := &podSync{state: &state{messages: map[string]string{}}, Sync: &steps.Sync{
		Given: steps.Given{
			Pod: testPod("u"), Log: slog.New(slog.DiscardHandler), Tasks: tasks.New(t.Context(), func() {}, nil),
		},
		Seen: steps.Seen{Observed: plan.Observed{Containers: []*plan.Container{{ContainerStatus: ended}}}},
	}}
	read := func() string { return r.terminationMessages(s)["c1"] }
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
	s.Early = true
	if got := read(); got != "farewell" {
		t.Errorf("what was read once is %q when another container's end is reported early", got)
	}
	s.Early = false
	s.Observed.Containers[0].Id = "c2"
	if got, known := r.terminationMessages(s)["c2"]; got != "" || !known {
		t.Errorf("a file that is gone for good says %q, known %v", got, known)
	}
}

func testPod(uid types.UID) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid, Namespace: "ns", Name: "pod-" + string(uid)}}
}
