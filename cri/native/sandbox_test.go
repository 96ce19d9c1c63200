package native

import (
	"os"
	"path/filepath"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// has adds a sandbox that is up, and has its record on the disk.
func (r *Runtime) has(t *testing.T, id string, options *runtimeapi.NamespaceOption) *sandbox {
	t.Helper()
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: id, Namespace: "test", Uid: id},
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{NamespaceOptions: options},
		},
	}
	sb := newSandbox(sandboxRecord{ID: id, Config: message[*runtimeapi.PodSandboxConfig]{config}})
	err := r.store.addSandbox(sb)
	if err == nil {
		err = r.changeSandbox(sb, func(rec *sandboxRecord) { rec.Up = true })
	}
	if err != nil {
		t.Fatal(err)
	}
	return sb
}

// state returns the state of a sandbox, and what its record says.
func (r *Runtime) state(t *testing.T, id string) (runtimeapi.PodSandboxState, sandboxRecord) {
	t.Helper()
	status, err := r.PodSandboxStatus(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	list, err := r.store.sandboxRecords.all()
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range list {
		if rec.ID == id {
			return status.State, *rec
		}
	}
	t.Fatal("it has no record")
	return 0, sandboxRecord{}
}

// A stop that cannot give the network back has taken other namespaces already: the sandbox is not
// ready, also for the next process of berth, until a stop succeeds.
func TestStopFailsHalfway(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("an unmount needs root")
	}
	r := fakeContainerd{}.runtime(t)
	sb := r.has(t, "sb", nil)
	stuck := filepath.Join(r.netns(sb.id), "file") // a directory with something in it is not removed
	if err := os.MkdirAll(stuck, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := r.StopPodSandbox(t.Context(), sb.id); err == nil {
		t.Fatal("the stop has not failed")
	}
	if state, rec := r.state(t, sb.id); state != runtimeapi.PodSandboxState_SANDBOX_NOTREADY || rec.Up || rec.Stopped {
		t.Errorf("it is %v, and its record is %+v", state, rec)
	}
	if err := os.Remove(stuck); err != nil {
		t.Fatal(err)
	}
	if err := r.StopPodSandbox(t.Context(), sb.id); err != nil {
		t.Error(err)
	}
	if state, rec := r.state(t, sb.id); state != runtimeapi.PodSandboxState_SANDBOX_NOTREADY || !rec.Stopped {
		t.Errorf("after the next stop it is %v, and its record is %+v", state, rec)
	}
}
