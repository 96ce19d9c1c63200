package native

import (
	"testing"

	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/api/types/task"
	"github.com/containerd/containerd/v2/client"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Berth was killed after it had recorded a sandbox as up and before it let the pause process go on.
// That sandbox is not ready; one whose process runs is.
func TestRestorePause(t *testing.T) {
	for is, want := range map[task.Status]runtimeapi.PodSandboxState{
		task.Status_CREATED: runtimeapi.PodSandboxState_SANDBOX_NOTREADY,
		task.Status_RUNNING: runtimeapi.PodSandboxState_SANDBOX_READY,
	} {
		t.Run(is.String(), func(t *testing.T) {
			tasks := &fakeTasks{get: func(request *tasksapi.GetRequest) (*tasksapi.GetResponse, error) {
				return &tasksapi.GetResponse{Process: &task.Process{ID: request.GetContainerID(), Pid: 7, Status: is}}, nil
			}}
			r := fakeContainerd{services: []client.ServicesOpt{
				client.WithTaskClient(tasks), client.WithContainerStore(allContainers{}),
			}}.runtime(t)
			config := &runtimeapi.PodSandboxConfig{
				Metadata: &runtimeapi.PodSandboxMetadata{Name: "sb", Namespace: "test", Uid: "sb"},
			}
			record := sandboxRecord{ID: "sb", Config: message[*runtimeapi.PodSandboxConfig]{config}, Pause: true, Up: true}
			if err := r.store.sandboxRecords.save("sb", &record); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := r.bounded(t.Context())
			defer cancel()
			if err := r.restore(ctx); err != nil {
				t.Fatal(err)
			}
			if state, rec := r.state(t, "sb"); state != want ||
				rec.Up != (want == runtimeapi.PodSandboxState_SANDBOX_READY) {
				t.Errorf("it is %v, and its record is %+v, want %v", state, rec, want)
			}
		})
	}
}
