package native

import (
	"errors"
	"strings"
	"testing"

	tasksapi "github.com/containerd/containerd/api/services/tasks/v1"
	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/errdefs/pkg/errgrpc"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// A container shares the processes of another one, which ends between its creation and its start:
// it is not started, because the other one's process ID may be anybody's by then.
func TestTargetEndsBeforeStart(t *testing.T) {
	for name, ends := range map[string]bool{"it runs": false, "it has ended": true} {
		t.Run(name, func(t *testing.T) {
			made := 0
			tasks := &fakeTasks{
				create: func(*tasksapi.CreateTaskRequest) (*tasksapi.CreateTaskResponse, error) {
					made++
					return nil, errors.New("no shim")
				},
				get: func(request *tasksapi.GetRequest) (*tasksapi.GetResponse, error) {
					return nil, errgrpc.ToGRPC(notFound("task", request.GetContainerID()))
				},
			}
			r := fakeContainerd{services: []client.ServicesOpt{
				client.WithTaskClient(tasks), client.WithContainerStore(allContainers{}),
			}}.runtime(t)
			sb := r.has(t, "sb", nil)
			target := r.runs(t, "target", &fakeTask{id: "target", pid: 7})
			target.sandboxID = sb.id
			config := &runtimeapi.ContainerConfig{
				Metadata: &runtimeapi.ContainerMetadata{Name: "debug"},
				Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
					NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_TARGET, TargetId: target.id},
				}},
			}
			record := containerRecord{ID: "c", SandboxID: sb.id, Config: message[*runtimeapi.ContainerConfig]{config}}
			c := newContainer(record, "uid")
			if err := r.store.addContainer(c); err != nil {
				t.Fatal(err)
			}
			if _, err := r.containerNamespaces(sb, config.GetLinux().GetSecurityContext().GetNamespaceOptions()); err != nil {
				t.Fatal(err)
			}
			want, starts := "no shim", 1
			if ends {
				target.record.FinishedAt = 2
				want, starts = "target, whose processes are to be shared, does not run", 0
			}
			err := r.StartContainer(t.Context(), c.id)
			if err == nil || !strings.Contains(err.Error(), want) || made != starts {
				t.Errorf("got %v, want %q in it; the process was made %d times, want %d", err, want, made, starts)
			}
			status, err := r.ContainerStatus(t.Context(), c.id)
			if err != nil || status.GetReason() != reasonStartError {
				t.Errorf("it is %v, %v", status, err)
			}
		})
	}
}
