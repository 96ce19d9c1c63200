package containerd

import (
	"context"
	"slices"
	"sync"
	"testing"

	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"
)

// keeper is a containerd that keeps the tasks of removed sandboxes. Such a task must be killed
// before it can be deleted.
type keeper struct {
	tasksapi.UnimplementedTasksServer

	mu    sync.Mutex
	tasks map[string]bool // by ID; whether it was killed
	calls []string
}

func (k *keeper) find(call, id string) error {
	k.calls = append(k.calls, call)
	if _, ok := k.tasks[id]; !ok {
		return status.Error(codes.NotFound, "no such task")
	}
	return nil
}

func (k *keeper) Get(_ context.Context, r *tasksapi.GetRequest) (*tasksapi.GetResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return &tasksapi.GetResponse{}, k.find("get", r.ContainerID)
}

func (k *keeper) Kill(_ context.Context, r *tasksapi.KillRequest) (*emptypb.Empty, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	err := k.find("kill", r.ContainerID)
	k.tasks[r.ContainerID] = err == nil
	return &emptypb.Empty{}, err
}

func (k *keeper) Delete(_ context.Context, r *tasksapi.DeleteTaskRequest) (*tasksapi.DeleteResponse, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err := k.find("delete", r.ContainerID); err != nil {
		return nil, err
	}
	if !k.tasks[r.ContainerID] {
		return nil, status.Error(codes.FailedPrecondition, "cannot delete running task")
	}
	delete(k.tasks, r.ContainerID)
	return &tasksapi.DeleteResponse{}, nil
}

func TestRemovedSandboxKeepsNoTask(t *testing.T) {
	path := socket(t)
	k := &keeper{tasks: map[string]bool{"kept": false, "other": false}}
	serve(t, path, &server{name: "containerd"}, k)
	r := dial(t, path, Config{})
	for _, id := range []string{"kept", "clean"} {
		if err := r.RemovePodSandbox(t.Context(), id); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	if want := []string{"get", "kill", "delete", "get"}; !slices.Equal(k.calls, want) || len(k.tasks) != 1 {
		t.Errorf("calls %q, want %q; left %v", k.calls, want, k.tasks)
	}
	other := socket(t)
	serve(t, other, &server{name: "other"})
	if err := dial(t, other, Config{}).RemovePodSandbox(t.Context(), "a"); err != nil {
		t.Errorf("on a runtime without tasks: %v", err)
	}
}
