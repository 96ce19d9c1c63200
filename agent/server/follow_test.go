package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/internal/pods"
)

// restarting is a container of which the test makes one instance after the other.
type restarting struct {
	*fixture
	mu        sync.Mutex
	instances []*runtimeapi.ContainerStatus
}

func (r *restarting) ContainerStatus(_ context.Context, id string) (*runtimeapi.ContainerStatus, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, st := range r.instances {
		if st.Id == id {
			return &runtimeapi.ContainerStatus{
				Id:       st.Id,
				Metadata: st.Metadata,
				State:    st.State,
				ExitCode: st.ExitCode,
				LogPath:  st.LogPath,
			}, nil
		}
	}
	return nil, fmt.Errorf("no container %s", id)
}

func (r *restarting) ListContainers(context.Context, *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []*runtimeapi.Container
	for _, st := range r.instances {
		out = append(out, &runtimeapi.Container{
			Id:       st.Id,
			Metadata: st.Metadata,
			State:    st.State,
			Labels:   map[string]string{cri.LabelPodUID: "u1", cri.LabelContainerName: "main"},
		})
	}
	return out, nil
}

// begin makes the next instance with a log of these lines.
func (r *restarting) begin(t *testing.T, logs, lines string) {
	t.Helper()
	r.mu.Lock()
	n := len(r.instances)
	path := filepath.Join(logs, "default_web-node_u1", "main", fmt.Sprintf("%d.log", n))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	r.instances = append(r.instances, &runtimeapi.ContainerStatus{
		Id: fmt.Sprintf("id-%d", n), Metadata: &runtimeapi.ContainerMetadata{Attempt: uint32(n)}, LogPath: path,
		State: runtimeapi.ContainerState_CONTAINER_RUNNING,
	})
	r.mu.Unlock()
	r.tell(v1.PodRunning, false)
}

// end ends the last instance.
func (r *restarting) end(code int32) {
	r.mu.Lock()
	last := r.instances[len(r.instances)-1]
	last.State, last.ExitCode = runtimeapi.ContainerState_CONTAINER_EXITED, code
	r.mu.Unlock()
	r.tell(v1.PodRunning, false)
}

// tell updates the pod's status and notifies the watches.
func (r *restarting) tell(phase v1.PodPhase, leaving bool) {
	pod := webPod()
	pod.Spec.RestartPolicy = v1.RestartPolicyOnFailure
	pod.Status.Phase = phase
	pod.Status.ContainerStatuses = pod.Status.ContainerStatuses[:1]
	r.mu.Lock()
	pod.Status.ContainerStatuses[0].ContainerID = "fake://id-" + fmt.Sprint(len(r.instances)-1)
	r.mu.Unlock()
	if leaving {
		pod.DeletionTimestamp = &metav1.Time{}
	}
	r.setPods(pod)
}

// hold shows the pod as stopped by an operator.
func (r *restarting) hold() {
	pod := r.Pods()[0].DeepCopy()
	pod.Status.Reason = pods.ReasonStopped
	r.setPods(pod)
}

func line(n int, text string) string {
	return fmt.Sprintf("2026-01-01T00:00:%02d.000000000Z stdout F %s\n", n, text)
}

func TestFollowedLogGoesOnAfterARestart(t *testing.T) {
	for name, c := range map[string]struct {
		query string
		end   func(r *restarting)
		want  string
	}{
		"until it ends for good":   {"", func(r *restarting) { r.end(0) }, "last\n"},
		"until its pod has ended":  {"", func(r *restarting) { r.end(1); r.tell(v1.PodFailed, false) }, "last\n"},
		"until its pod has to go":  {"", func(r *restarting) { r.end(1); r.tell(v1.PodRunning, true) }, "last\n"},
		"until its pod is gone":    {"", func(r *restarting) { r.end(1); r.setPods() }, "last\n"},
		"until its pod is stopped": {"", func(r *restarting) { r.end(1); r.hold() }, "last\n"},
		"until there were so many": {"&limitBytes=16", func(*restarting) {}, "la"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fixture{}
			f.setPods(webPod())
			r := &restarting{fixture: f}
			rig := start(t, f)
			if err := rig.stop(); err != nil {
				t.Fatal(err)
			}
			rig.server.deps.Runtime, rig.server.containers = r, newRunningContainers(r, rig.server.log)
			rig.run(t)
			r.begin(t, rig.logs, line(1, "old")+line(2, "one"))
			resp, err := rig.http.Get("http://berth/containerLogs/default/web-node/main?follow=true&tailLines=1" +
				c.query)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			lines := bufio.NewReader(resp.Body)
			if text, err := lines.ReadString('\n'); err != nil || text != "one\n" {
				t.Fatalf("%q %v", text, err)
			}
			// Two instances come and go while the reader looks away: none is left out.
			r.end(1)
			r.begin(t, rig.logs, line(3, "two"))
			r.end(1)
			r.begin(t, rig.logs, line(4, "three")+line(5, "last"))
			for _, want := range []string{"two\n", "three\n"} {
				if text, err := lines.ReadString('\n'); err != nil || text != want {
					t.Fatalf("%q %v, want %q", text, err, want)
				}
			}
			c.end(r)
			if rest, err := io.ReadAll(lines); err != nil || string(rest) != c.want {
				t.Errorf("%q %v, want %q", rest, err, c.want)
			}
		})
	}
}
