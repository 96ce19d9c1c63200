package cgroups

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// roots numbers the cgroup roots of this process's tests.
var roots atomic.Int32

// realManager returns a manager of this host's own cgroups. Its root is new, and the test removes
// the root with everything in it.
func realManager(t *testing.T, change func(*Config)) *Manager {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: makes cgroups on this host")
	}
	config := Config{
		Driver: Cgroupfs, Root: fmt.Sprintf("/berth-test-%d/%d", os.Getpid(), roots.Add(1)), CgroupsPerQOS: true,
		Options: Options{CPUQuota: true, PodPids: 500},
	}
	if change != nil {
		change(&config)
	}
	m, err := New(config, Deps{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := m.removeTree(ctx, m.layout.RootPath()); err != nil {
			t.Errorf("clean up: %v", err)
		}
		for _, dir := range m.host.dirs(filepath.Dir(m.layout.RootPath())) {
			_ = os.Remove(dir) // the root of another test may be in it
		}
	})
	return m
}

func (m *Manager) dir(t *testing.T, controller, path string) string {
	t.Helper()
	if !m.host.has(controller) {
		t.Skipf("this host has no %s controller", controller)
	}
	return filepath.Join(m.host.controllers[controller], path)
}

func read(t *testing.T, dir, file string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, file))
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(data))
}

func named(uid types.UID, pod *corev1.Pod) *corev1.Pod {
	pod.UID, pod.Namespace, pod.Name = uid, "default", "p-"+string(uid)
	return pod
}

func burstable(uid types.UID) *corev1.Pod {
	return named(uid, podOf(container(list{"cpu": "250m"}, list{"cpu": "500m", "memory": "64Mi"})))
}

func ensure(t *testing.T, m *Manager, pod *corev1.Pod) string {
	t.Helper()
	parent, err := m.EnsurePod(t.Context(), pod)
	if err != nil {
		t.Fatal(err)
	}
	return parent
}

// process starts a sleeping process in a container's cgroup below path, in every hierarchy.
func process(t *testing.T, m *Manager, path string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "300")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-ended })
	for _, dir := range m.host.dirs(path) {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			if value, err := os.ReadFile(filepath.Join(filepath.Dir(dir), file)); err == nil {
				_ = os.WriteFile(filepath.Join(dir, file), value, 0)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"),
			[]byte(strconv.Itoa(cmd.Process.Pid)), 0); err != nil {
			t.Fatal(err)
		}
	}
	return cmd
}

func mustBeGone(t *testing.T, m *Manager, path string) {
	t.Helper()
	if left := existing(m.host.dirs(path)); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestPodsLifeOnThisHost(t *testing.T) {
	m := realManager(t, nil)
	if m.Version() == V2 {
		t.Skip("reads the files of cgroup v1")
	}
	for range 2 { // Setup may run again
		if err := m.Setup(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if got := read(t, m.dir(t, "cpu", m.layout.ClassPath(corev1.PodQOSBestEffort)), "cpu.shares"); got != "2" {
		t.Errorf("BestEffort pods have %s shares", got)
	}
	pod := burstable("one-1")
	parent := ensure(t, m, pod)
	if want := m.config.Root + "/kubepods/burstable/podone-1"; parent != want {
		t.Errorf("parent %s, want %s", parent, want)
	}
	for file, want := range map[string]string{
		"cpu/cpu.shares": "256", "cpu/cpu.cfs_quota_us": "50000", "cpu/cpu.cfs_period_us": "100000",
		"memory/memory.limit_in_bytes": "67108864", "pids/pids.max": "500",
	} {
		controller, name, _ := strings.Cut(file, "/")
		if got := read(t, m.dir(t, controller, parent), name); got != want {
			t.Errorf("%s is %s, want %s", file, got, want)
		}
	}
	if m.host.has("cpuset") {
		dir := m.dir(t, "cpuset", parent)
		if read(t, dir, "cpuset.cpus") == "" || read(t, dir, "cpuset.mems") == "" {
			t.Error("the pod's cpuset is empty, nothing can run in it")
		}
	}
	if err := m.UpdateQoS(t.Context(), []*corev1.Pod{pod, burstable("two")}); err != nil {
		t.Fatal(err)
	}
	if got := read(t, m.dir(t, "cpu", m.layout.ClassPath(corev1.PodQOSBurstable)), "cpu.shares"); got != "512" {
		t.Errorf("Burstable pods have %s shares, want 512", got)
	}
	if uids, err := m.List(t.Context()); err != nil || !slices.Equal(uids, []types.UID{"one-1"}) {
		t.Errorf("pods %v, %v", uids, err)
	}
	for range 2 { // the second removal succeeds, too
		if err := m.RemovePod(t.Context(), pod.UID); err != nil {
			t.Fatal(err)
		}
	}
	mustBeGone(t, m, parent)
	if err := m.Teardown(t.Context()); err != nil {
		t.Error(err)
	}
	mustBeGone(t, m, m.layout.RootPath())
}

// A pod's cgroup is made, brought up to date and removed, and each of these is measured once.
func TestOperationsAreMeasured(t *testing.T) {
	m := realManager(t, nil)
	var got []string
	m.observe = func(operation string, took time.Duration) {
		if took > 0 {
			got = append(got, operation)
		}
	}
	pod := burstable("measured")
	ensure(t, m, pod)
	ensure(t, m, pod) // nothing to do
	ensure(t, m, named(pod.UID, podOf(container(list{"cpu": "250m"}, list{"cpu": "600m", "memory": "64Mi"}))))
	for range 2 {
		if err := m.RemovePod(t.Context(), pod.UID); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"create", "update", "destroy"}; !slices.Equal(got, want) {
		t.Errorf("measured %q, want %q", got, want)
	}
}

func TestRemoveKillsWhatIsLeft(t *testing.T) {
	m := realManager(t, nil)
	parent := ensure(t, m, burstable("busy"))
	running := process(t, m, parent+"/container")
	frozen := process(t, m, parent+"/frozen")
	if m.host.has("freezer") && m.Version() != V2 {
		if err := os.WriteFile(filepath.Join(m.dir(t, "freezer", parent+"/frozen"), "freezer.state"),
			[]byte("FROZEN"), 0); err != nil {
			t.Fatal(err)
		}
	}
	// Another process of the agent, which did not make the cgroup, removes it.
	other := realManager(t, func(c *Config) { c.Root = m.config.Root })
	if err := other.RemovePod(t.Context(), "busy"); err != nil {
		t.Fatal(err)
	}
	mustBeGone(t, m, parent)
	for _, cmd := range []*exec.Cmd{running, frozen} {
		if err := cmd.Process.Signal(os.Kill); err == nil {
			data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", cmd.Process.Pid))
			if len(data) > 0 && !strings.Contains(string(data), "State:\tZ") {
				t.Errorf("process %d survived", cmd.Process.Pid)
			}
		}
	}
}

func TestRemoveEndsWithItsContext(t *testing.T) {
	m := realManager(t, nil)
	parent := ensure(t, m, burstable("stuck"))
	process(t, m, parent+"/container")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := m.RemovePod(ctx, "stuck"); err != nil && !strings.Contains(err.Error(), "still in use by processes") {
		t.Errorf("got %v", err)
	}
	if err := m.RemovePod(t.Context(), "stuck"); err != nil {
		t.Errorf("the next attempt: %v", err)
	}
	mustBeGone(t, m, parent)
}

func TestEnsureCompletesWhatIsHalfMade(t *testing.T) {
	m := realManager(t, nil)
	if m.Version() == V2 {
		t.Skip("reads the files of cgroup v1")
	}
	pod := burstable("half")
	path := m.layout.PodPath(pod.UID, corev1.PodQOSBurstable)
	if err := os.MkdirAll(m.dir(t, "memory", path), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, breakIt := range []func() error{
		func() error { return nil },
		func() error { return os.Remove(m.dir(t, "memory", path)) },
		func() error { return os.Remove(m.dir(t, "cpu", path)) },
	} {
		if err := breakIt(); err != nil {
			t.Fatal(err)
		}
		ensure(t, m, pod)
		if got := read(t, m.dir(t, "memory", path), "memory.limit_in_bytes"); got != "67108864" {
			t.Errorf("memory limit %s", got)
		}
		if got := read(t, m.dir(t, "cpu", path), "cpu.shares"); got != "256" {
			t.Errorf("shares %s", got)
		}
	}
	// The cgroup of an unchanged pod is not written again.
	if err := os.WriteFile(filepath.Join(m.dir(t, "cpu", path), "cpu.shares"), []byte("300"), 0); err != nil {
		t.Fatal(err)
	}
	ensure(t, m, pod)
	if got := read(t, m.dir(t, "cpu", path), "cpu.shares"); got != "300" {
		t.Errorf("a settled pod was written again: shares %s", got)
	}
	pod.Spec.Containers[0].Resources.Requests["cpu"] = list{"cpu": "1"}.list()["cpu"]
	pod.Spec.Containers[0].Resources.Limits["cpu"] = list{"cpu": "1"}.list()["cpu"]
	ensure(t, m, pod)
	if got := read(t, m.dir(t, "cpu", path), "cpu.shares"); got != "1024" {
		t.Errorf("a changed pod was not written: shares %s", got)
	}
}

func TestListFindsPodsOnly(t *testing.T) {
	m := realManager(t, nil)
	ensure(t, m, burstable("wanted"))
	process(t, m, ensure(t, m, burstable("orphan"))+"/container")
	ensure(t, m, named("best", podOf(container(nil, nil))))
	// One pod is partly removed: it is left in one hierarchy only. And one directory is not that of
	// a pod.
	half := m.layout.PodPath("half", corev1.PodQOSGuaranteed)
	stranger := m.layout.PodsPath() + "/somebody"
	for _, path := range []string{half, stranger} {
		if err := os.MkdirAll(m.host.dirs(path)[0], 0o755); err != nil {
			t.Fatal(err)
		}
	}
	uids, err := m.List(t.Context())
	if err != nil || !slices.Equal(uids, []types.UID{"best", "half", "orphan", "wanted"}) {
		t.Errorf("found %v, %v", uids, err)
	}
	for _, uid := range []types.UID{"best", "half", "orphan"} {
		if err := m.RemovePod(t.Context(), uid); err != nil {
			t.Error(err)
		}
	}
	if uids, _ := m.List(t.Context()); !slices.Equal(uids, []types.UID{"wanted"}) {
		t.Errorf("left are %v", uids)
	}
	if len(existing(m.host.dirs(stranger))) == 0 {
		t.Error("a cgroup that is no pod's was removed")
	}
	if err := m.Teardown(t.Context()); err == nil {
		t.Error("Teardown succeeds with a pod left")
	}
}

func TestManyPodsAtOnce(t *testing.T) {
	m := realManager(t, nil)
	if err := m.Setup(t.Context()); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			pod := burstable(types.UID("n" + strconv.Itoa(i)))
			for range 3 {
				if _, err := m.EnsurePod(t.Context(), pod); err != nil {
					t.Error(err)
				}
				if err := m.RemovePod(t.Context(), pod.UID); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if uids, err := m.List(t.Context()); err != nil || len(uids) > 0 {
		t.Errorf("left are %v, %v", uids, err)
	}
}

func TestNodeLimitsAreTriedAgain(t *testing.T) {
	m := realManager(t, func(c *Config) { c.Allocatable = list{"cpu": "1", "memory": "1Gi", "pid": "2000"}.list() })
	if m.Version() == V2 {
		t.Skip("reads the files of cgroup v1")
	}
	if err := m.Setup(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := read(t, m.dir(t, "memory", m.layout.PodsPath()), "memory.limit_in_bytes"); got != "1073741824" {
		t.Errorf("memory of all pods %s", got)
	}
	if got := read(t, m.dir(t, "pids", m.layout.PodsPath()), "pids.max"); got != "2000" {
		t.Errorf("processes of all pods %s", got)
	}
	m.nodeLimited = false
	if err := os.WriteFile(filepath.Join(m.dir(t, "pids", m.layout.PodsPath()), "pids.max"),
		[]byte("max"), 0); err != nil {
		t.Fatal(err)
	}
	if err := m.UpdateQoS(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if got := read(t, m.dir(t, "pids", m.layout.PodsPath()), "pids.max"); got != "2000" {
		t.Errorf("processes of all pods %s", got)
	}
}

func TestWithoutPodCgroups(t *testing.T) {
	m, err := New(Config{Driver: Cgroupfs}, Deps{})
	if err != nil {
		t.Fatal(err)
	}
	parent, err := m.EnsurePod(t.Context(), burstable("x"))
	uids, listErr := m.List(t.Context())
	if parent != "" || err != nil || uids != nil || listErr != nil || m.Setup(t.Context()) != nil ||
		m.RemovePod(t.Context(), "x") != nil {
		t.Errorf("got %q, %v, %v, %v", parent, err, uids, listErr)
	}
}

func TestWhatNewAndTheMethodsRefuse(t *testing.T) {
	if _, err := New(Config{Driver: "x"}, Deps{}); err == nil {
		t.Error("an unknown driver is accepted")
	}
	if _, err := New(Config{Driver: Cgroupfs, RefuseV1: true}, Deps{}); HostVersion() != V2 && err == nil {
		t.Error("cgroup v1 is accepted where the configuration refuses it")
	}
	m, err := New(Config{Driver: Cgroupfs, CgroupsPerQOS: true, Root: "/berth-test-never"}, Deps{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.EnsurePod(t.Context(), burstable("../x")); err == nil {
		t.Error("a UID that is a path is accepted")
	}
	if err := m.RemovePod(t.Context(), ".."); err == nil {
		t.Error("a UID that is a path is removed")
	}
	if err := killPids([]int{1 << 30}, func() []int { return []int{1 << 30} }); err != nil {
		t.Errorf("killing what is gone: %v", err)
	}
}

// TestSetupAsksForTheRoot checks that Setup makes nothing in a root that somebody else has.
func TestSetupAsksForTheRoot(t *testing.T) {
	m := realManager(t, nil)
	taken, claimed := errors.New("another agent holds it"), ""
	m.claim = func(dir string) error {
		claimed = dir
		return taken
	}
	if err := m.Setup(t.Context()); !errors.Is(err, taken) {
		t.Fatalf("a root that is taken: %v", err)
	}
	if !strings.HasSuffix(claimed, m.layout.RootPath()) || len(existing([]string{claimed})) == 0 {
		t.Errorf("asked for %q, want a directory of %s", claimed, m.layout.RootPath())
	}
	if left := existing(m.host.dirs(m.layout.PodsPath())); len(left) > 0 {
		t.Errorf("made in a root that is taken: %q", left)
	}
	first := claimed
	m.claim = func(dir string) error {
		claimed = dir
		return nil
	}
	if err := m.Setup(t.Context()); err != nil || claimed != first {
		t.Errorf("the second time: asked for %q after %q, %v", claimed, first, err)
	}
}
