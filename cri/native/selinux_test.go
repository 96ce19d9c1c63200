package native

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/internal/flock"
)

// policy is a SELinux whose policy gives labels as container-selinux does. It numbers the levels
// that it chooses.
type policy struct {
	chosen int
	// levels are those that are reserved, and relabelled has the labels of files.
	levels     map[string]bool
	relabelled map[string]string
}

func newPolicy() *policy { return &policy{levels: map[string]bool{}, relabelled: map[string]string{}} }

func (p *policy) selinux() selinux {
	level := func(process string) string { return strings.SplitN(process, ":", 4)[3] }
	return selinux{
		choose:  p.choose,
		reserve: func(process string) { p.levels[level(process)] = true },
		release: func(process string) { delete(p.levels, level(process)) },
		relabel: func(_ context.Context, path, mount string) error { p.relabelled[path] = mount; return nil },
	}
}

func (p *policy) choose(options []string) (process, mount string, err error) {
	parts := map[string]string{"user": "system_u", "role": "system_r", "type": "container_t"}
	for _, o := range options {
		name, value, _ := strings.Cut(o, ":")
		parts[name] = value
	}
	if parts["type"] == "no such" {
		return "", "", errors.New("invalid context")
	}
	if parts["level"] == "" {
		p.chosen++
		parts["level"] = fmt.Sprintf("s0:c%d,c%d", p.chosen, p.chosen+1)
	}
	p.levels[parts["level"]] = true
	return parts["user"] + ":" + parts["role"] + ":" + parts["type"] + ":" + parts["level"],
		parts["user"] + ":object_r:container_file_t:" + parts["level"], nil
}

// newLabelled returns a runtime without a containerd, on a node with a policy.
func newLabelled(t *testing.T, p *policy, dir string) *Runtime {
	t.Helper()
	store, err := newStore(filepath.Join(dir, "root"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = flock.Release(store.lock) })
	return &Runtime{store: store, selinux: p.selinux(), cfg: Config{StateDir: filepath.Join(dir, "state")}}
}

// labelledPod records a sandbox that asks for a label.
func labelledPod(t *testing.T, r *Runtime, asked *runtimeapi.SELinuxOption) *sandbox {
	t.Helper()
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: newID()},
		Linux: &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
			SelinuxOptions:   asked,
			NamespaceOptions: &runtimeapi.NamespaceOption{Ipc: runtimeapi.NamespaceMode_NODE},
		}},
	}
	sb := newSandbox(sandboxRecord{ID: newID(), Config: message[*runtimeapi.PodSandboxConfig]{config}})
	if err := errors.Join(r.store.addSandbox(sb), r.recordSandbox(t.Context(), sb)); err != nil {
		t.Fatal(err)
	}
	return sb
}

// The containers of a pod share its level and differ from other pods'. What a container asks for
// changes only that part. A privileged one is not confined, and has files of the pod's label.
func TestSELinuxLabels(t *testing.T) {
	p := newPolicy()
	r := newLabelled(t, p, t.TempDir())
	first, second := labelledPod(t, r, nil), labelledPod(t, r, &runtimeapi.SELinuxOption{Type: "spc_t", Level: "s0:c7,c9"})
	for name, c := range map[string]struct {
		pod            *sandbox
		asked          *runtimeapi.SELinuxOption
		privileged     bool
		process, mount string
	}{
		"of the pod": {
			first, nil, false, "system_u:system_r:container_t:s0:c1,c2",
			"system_u:object_r:container_file_t:s0:c1,c2",
		},
		"of another pod": {
			second, nil, false, "system_u:system_r:spc_t:s0:c7,c9",
			"system_u:object_r:container_file_t:s0:c7,c9",
		},
		"of its own type": {
			first, &runtimeapi.SELinuxOption{Type: "own_t"}, false,
			"system_u:system_r:own_t:s0:c1,c2", "system_u:object_r:container_file_t:s0:c1,c2",
		},
		"all its own": {
			second, &runtimeapi.SELinuxOption{User: "u", Role: "r", Type: "t", Level: "s0:c5"}, false,
			"u:r:t:s0:c5", "u:object_r:container_file_t:s0:c5",
		},
		"privileged": {first, nil, true, "", "system_u:object_r:container_file_t:s0:c1,c2"},
	} {
		has, err := r.containerLabels(c.pod, &runtimeapi.ContainerConfig{Linux: &runtimeapi.LinuxContainerConfig{
			SecurityContext: &runtimeapi.LinuxContainerSecurityContext{SelinuxOptions: c.asked},
		}})
		if err != nil {
			t.Fatal(err)
		}
		spec := specOf(t, withLabels(has, c.privileged))
		if spec.Process.SelinuxLabel != c.process || spec.Linux.MountLabel != c.mount {
			t.Errorf("%s: the labels are %q and %q", name, spec.Process.SelinuxLabel, spec.Linux.MountLabel)
		}
	}
	if _, err := r.selinux.labels("", &runtimeapi.SELinuxOption{Type: "no such"}); !errdefs.IsInvalidArgument(err) {
		t.Errorf("a type that the policy does not know: %v", err)
	}
}

// A level is reserved until its sandbox is forgotten, also over a restart. One that a config names
// stays reserved: another pod may have it, too.
func TestSELinuxLevels(t *testing.T) {
	before, dir := newPolicy(), t.TempDir()
	r := newLabelled(t, before, dir)
	labelledPod(t, r, nil)
	labelledPod(t, r, &runtimeapi.SELinuxOption{Level: "s0:c7"})
	if err := flock.Release(r.store.lock); err != nil {
		t.Fatal(err)
	}
	after := newPolicy()
	r = newLabelled(t, after, dir)
	if err := r.restore(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(after.levels, before.levels) || len(after.levels) != 2 {
		t.Errorf("before the restart the levels were %v, after it %v", before.levels, after.levels)
	}
	for _, sb := range r.store.allSandboxes() {
		if err := r.forgetSandbox(t.Context(), sb); err != nil {
			t.Error(err)
		}
	}
	if got := slices.Collect(maps.Keys(after.levels)); !slices.Equal(got, []string{"s0:c7"}) {
		t.Errorf("reserved stay %v", got)
	}
}

// The pod's own files get the pod's label, and the volumes that ask for it that of the container.
func TestSELinuxFiles(t *testing.T) {
	p, dir := newPolicy(), t.TempDir()
	r := newLabelled(t, p, dir)
	sb := labelledPod(t, r, nil)
	if err := r.makeSandboxFiles(t.Context(), sb); err != nil {
		t.Fatal(err)
	}
	var mounts []*runtimeapi.Mount
	for _, name := range []string{"asks", "silent"} {
		path := filepath.Join(dir, name)
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
		mounts = append(mounts, &runtimeapi.Mount{HostPath: path, ContainerPath: "/" + name, SelinuxRelabel: name == "asks"})
	}
	has := labels{Mount: "a:b:c:s0"}
	if _, err := r.mounts(t.Context(), sb, &runtimeapi.ContainerConfig{Mounts: mounts}, nil, has); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		r.sandboxDir(sb.id): "system_u:object_r:container_file_t:s0:c1,c2", mounts[0].HostPath: has.Mount,
	}
	if !maps.Equal(p.relabelled, want) {
		t.Errorf("relabelled are %v, want %v", p.relabelled, want)
	}
}

// The pod's shared memory is a mount of its own, and gets the pod's label, too.
func TestSELinuxSharedMemory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	p := newPolicy()
	r := newLabelled(t, p, t.TempDir())
	sb := labelledPod(t, r, nil)
	sb.namespaces().Ipc = runtimeapi.NamespaceMode_POD
	if err := r.makeSandboxFiles(t.Context(), sb); err != nil {
		t.Skipf("mounting is not allowed: %v", err)
	}
	defer func() {
		if err := r.removeSandboxFiles(context.Background(), sb); err != nil {
			t.Error(err)
		}
	}()
	dir := r.sandboxDir(sb.id)
	label := "system_u:object_r:container_file_t:s0:c1,c2"
	if want := map[string]string{dir: label, filepath.Join(dir, shmDir): label}; !maps.Equal(p.relabelled, want) {
		t.Errorf("relabelled are %v, want %v", p.relabelled, want)
	}
}
