//go:build integration

package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berthd/berth/test/csidriver"
	"github.com/berthd/berth/test/env"
)

// csiName is the name of the tests' CSI driver.
const csiName = "test.berth.dev"

// csiDriver is the tests' CSI driver as a program beside an agent. A test sets the driver's faults
// in its directory.
type csiDriver struct {
	*env.Program
	dir string
}

// newCSIDriver prepares a driver for an agent.
func newCSIDriver(t *testing.T, e *env.Env, a *env.Agent, flags ...string) csiDriver {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "csi-driver")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./test/csidriver/main")
	build.Dir, build.Env = e.Checkout, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the CSI driver: %v: %s", err, out)
	}
	dir := t.TempDir()
	args := append([]string{
		binary, "-dir", dir, "-registry", filepath.Join(a.RootDir, "plugins_registry"), "-name", csiName,
	}, flags...)
	d := csiDriver{Program: e.NewProgram("csi-driver", args...), dir: dir}
	t.Cleanup(func() { _ = d.Stop() })
	return d
}

func (d csiDriver) start(t *testing.T) {
	t.Helper()
	if err := d.Start(); err != nil {
		t.Fatal(err)
	}
}

// fault makes the calls of a method fail from now on. The empty fault ends that.
func (d csiDriver) fault(t *testing.T, method string, f csidriver.Fault) {
	t.Helper()
	if err := csidriver.Set(d.dir, method, f); err != nil {
		t.Fatal(err)
	}
}

// called waits until the driver has been called so often with a method.
func (d csiDriver) called(t *testing.T, method string, times int) {
	t.Helper()
	env.Eventually(t, "the driver to be called with "+method, func() error {
		calls, err := csidriver.Calls(d.dir)
		if err != nil {
			return err
		}
		calls = slices.DeleteFunc(calls, func(c csidriver.Call) bool { return c.Method != method })
		if len(calls) < times {
			return fmt.Errorf("it was %d times", len(calls))
		}
		return nil
	})
}

// csiPod is a pod with an inline volume.
func csiPod(grace string, volume string) string {
	return "terminationGracePeriodSeconds: " + grace + "\nsecurityContext: {fsGroup: 4321}\ncontainers:\n" +
		shell("main", "volumeMounts: [{name: v, mountPath: /v}]") + "volumes: [{name: v, " + volume + "}]\n"
}

const csiInline = "csi: {driver: " + csiName +
	", volumeAttributes: {inline: 'yes', greeting: hello}, fsType: ext3, nodePublishSecretRef: {name: csi-login}}"

// TestCSI uses volumes of a CSI driver on a node without a cluster, both inline volumes and
// PersistentVolumes, while the agent or the driver is killed.
func TestCSI(t *testing.T) {
	t.Parallel()
	e := env.Containerd(t, env.Options{})
	a := e.StartAgent(t, env.AgentOptions{})
	a.WaitUp(t)
	d := newCSIDriver(t, e, a, "-can", "STAGE_UNSTAGE_VOLUME,GET_VOLUME_STATS")
	a.WriteManifest(t, "csi-objects.yaml",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: csi-login}\nstringData: {user: berth}\n---\n"+
			"apiVersion: storage.k8s.io/v1\nkind: CSIDriver\nmetadata: {name: "+csiName+
			"}\nspec: {podInfoOnMount: true, fsGroupPolicy: File, volumeLifecycleModes: [Ephemeral, Persistent]}\n"+
			"---\n"+
			persistent("csi", "csi", "csi: {driver: "+csiName+", volumeHandle: disk}")+claim("csi", "csi", "")+
			persistent("raw", "raw", "volumeMode: Block\n  csi: {driver: "+csiName+", volumeHandle: raw}")+
			claim("raw", "raw", "volumeMode: Block"))
	for _, step := range []struct {
		name string
		test func(*testing.T, *env.Env, *env.Agent, csiDriver)
	}{
		{"driver comes late", csiDriverComesLate},
		{"inline", csiInlineVolume},
		{"claim", csiClaim},
		{"block", csiBlock},
		{"agent killed", csiAgentKilled},
		{"driver killed", csiDriverKilled},
		{"driver hangs", csiDriverHangs},
		{"driver goes", csiDriverGoes},
	} {
		t.Run(step.name, func(t *testing.T) { step.test(t, e, a, d) })
	}
	for _, at := range []string{csiName, "volumeDevices/*"} {
		if left, _ := filepath.Glob(filepath.Join(a.RootDir, "plugins/kubernetes.io/csi", at, "*")); len(left) > 0 {
			t.Errorf("staged volumes are left: %v", left)
		}
	}
	nothingLeft(t, e.Leaks)
}

// csiDriverComesLate checks that a pod without its driver waits, reports which driver it waits for,
// and starts when the driver comes.
func csiDriverComesLate(t *testing.T, e *env.Env, a *env.Agent, d csiDriver) {
	put(t, a, "late-csi", csiPod("1", csiInline))
	const want = "driver name " + csiName + " not found in the list of registered CSI drivers"
	waitEvent(t, a, "FailedMount",
		`MountVolume.SetUp failed for volume "v" : kubernetes.io/csi: mounter.SetUpAt failed to get CSI client: `+want)
	waitPod(t, a, "late-csi", "waiting", waitingFor("ContainerCreating"))
	env.Eventually(t, "why to say so", func() error {
		if timeline := fmt.Sprintf("%+v", why(t, a, "late-csi")); !strings.Contains(timeline, want) {
			return errors.New(timeline)
		}
		return nil
	})
	d.start(t)
	a.WaitReady(t, "late-csi")
	removed(t, e, a, "late-csi")
}

// csiInlineVolume checks that an inline volume has what its driver wrote there about its attributes
// and its pod, and belongs to the pod's group.
func csiInlineVolume(t *testing.T, e *env.Env, a *env.Agent, d csiDriver) {
	put(t, a, "inline-csi", csiPod("1", csiInline))
	a.WaitReady(t, "inline-csi")
	seen(t, a, "inline-csi", "main", "cat /v/greeting", "hello", "cat /v/csi.storage.k8s.io_pod.name",
		"inline-csi-"+env.NodeName,
		"cat /v/csi.storage.k8s.io_ephemeral", "true", "stat -c %g /v/greeting", "4321")
	env.Eventually(t, "the driver to be told the secret and the fsType", func() error {
		calls, err := csidriver.Calls(d.dir)
		if err != nil {
			return err
		}
		calls = slices.DeleteFunc(calls, func(c csidriver.Call) bool { return c.Method != "NodePublishVolume" })
		if len(calls) == 0 {
			return errors.New("it was told nothing")
		}
		var got struct{ Secrets map[string]string }
		last := calls[len(calls)-1].Request
		if err := json.Unmarshal(last, &got); err != nil || got.Secrets["user"] != "berth" ||
			!strings.Contains(string(last), "ext3") {
			return fmt.Errorf("it was told %s, %w", last, err)
		}
		return nil
	})
	if err := a.Restart(); err != nil {
		t.Fatal(err)
	}
	a.WaitReady(t, "inline-csi")
	seen(t, a, "inline-csi", "main", "cat /v/greeting", "hello")
	removed(t, e, a, "inline-csi")
	log, err := os.ReadFile(a.Log)
	if err != nil || strings.Contains(string(log), "user:berth") {
		t.Errorf("the log quotes a secret, or cannot be read: %v", err)
	}
}

// csiClaim checks that a claim's volume of a driver is staged and published, and that its data
// stays after the pod's end.
func csiClaim(t *testing.T, e *env.Env, a *env.Agent, d csiDriver) {
	for _, text := range []string{"first", "second"} {
		put(t, a, "claim-csi", csiPod("1", "persistentVolumeClaim: {claimName: csi}"))
		a.WaitReady(t, "claim-csi")
		csiStats(t, a)
		if text == "second" {
			seen(t, a, "claim-csi", "main", "cat /v/file", "first")
		}
		seen(t, a, "claim-csi", "main", "echo "+text+" >/v/file; cat /v/file", text)
		removed(t, e, a, "claim-csi")
	}
	if text, err := os.ReadFile(filepath.Join(d.dir, "volumes/disk/file")); err != nil || string(text) != "second\n" {
		t.Errorf("the volume's data is %q, %v", text, err)
	}
}

// csiStats checks that the summary and the metrics have how full a claim's volume is, as the driver
// reports it.
func csiStats(t *testing.T, a *env.Agent) {
	t.Helper()
	var summary statsapi.Summary
	if err := json.Unmarshal([]byte(page(t, a, "/stats/summary")), &summary); err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(summary.Pods,
		func(p statsapi.PodStats) bool { return strings.HasPrefix(p.PodRef.Name, "claim-csi") })
	if at < 0 || len(summary.Pods[at].VolumeStats) != 1 {
		t.Fatalf("the summary has pods %+v", summary.Pods)
	}
	if v := summary.Pods[at].VolumeStats[0]; v.Name != "v" || v.PVCRef == nil || v.PVCRef.Name != "csi" ||
		*v.UsedBytes != 300 || *v.CapacityBytes != 1000 {
		t.Errorf("the volume is %+v", v)
	}
	const metric = `kubelet_volume_stats_used_bytes{namespace="default",persistentvolumeclaim="csi"} 300`
	if metrics := page(t, a, "/metrics"); !strings.Contains(metrics, metric) {
		t.Errorf("the metrics lack %s", metric)
	}
}

// csiBlock checks that containers get volumes as block devices, both a driver's and local ones, and
// that a read-only claim can only be read.
func csiBlock(t *testing.T, e *env.Env, a *env.Agent, d csiDriver) {
	disk := filepath.Join(t.TempDir(), "disk")
	loop := csidriver.Loop(t, disk)
	a.WriteManifest(t, "block-objects.yaml",
		persistent("local-raw", "local-raw",
			"volumeMode: Block\n  local: {path: "+loop.Name()+"}"+onNode(env.NodeName))+
			claim("local-raw", "local-raw", "volumeMode: Block"))
	pod := func(readOnly bool) string {
		return "terminationGracePeriodSeconds: 1\ncontainers:\n" +
			shell("main", "volumeDevices: [{name: v, devicePath: /dev/raw}, {name: l, devicePath: /dev/disk}]") +
			fmt.Sprintf("volumes: [{name: v, persistentVolumeClaim: {claimName: raw, readOnly: %v}}, {name: l, "+
				"persistentVolumeClaim: {claimName: local-raw}}]\n", readOnly)
	}
	put(t, a, "block-csi", pod(false))
	a.WaitReady(t, "block-csi")
	const read = "dd if=/dev/raw bs=5 count=1 2>/dev/null"
	seen(t, a, "block-csi", "main", "test -b /dev/raw && test -b /dev/disk; echo $?", "0",
		"echo hello | dd of=/dev/raw conv=fsync 2>/dev/null; "+read, "hello",
		"echo local | dd of=/dev/disk conv=fsync 2>/dev/null", "")
	for path, want := range map[string]string{filepath.Join(d.dir, "volumes/raw.img"): "hello\n", disk: "local\n"} {
		if data, err := os.ReadFile(path); err != nil || !strings.HasPrefix(string(data), want) {
			t.Errorf("%s does not begin with %q: %v", path, want, err)
		}
	}
	if err := a.Restart(); err != nil {
		t.Fatal(err)
	}
	a.WaitReady(t, "block-csi")
	seen(t, a, "block-csi", "main", read, "hello")
	removed(t, e, a, "block-csi")
	put(t, a, "read-csi", pod(true))
	a.WaitReady(t, "read-csi")
	seen(t, a, "read-csi", "main", read, "hello", "echo other >/dev/raw",
		"sh: can't create /dev/raw: Operation not permitted", read, "hello")
	removed(t, e, a, "read-csi")
	a.RemoveManifest(t, "block-objects.yaml")
}

// csiAgentKilled checks that an agent goes on where it was after it was killed, first between
// staging and publishing a volume, and then while it takes the volume down.
func csiAgentKilled(t *testing.T, e *env.Env, a *env.Agent, d csiDriver) {
	again := func() {
		t.Helper()
		a.Kill9()
		if err := a.Start(); err != nil {
			t.Fatal(err)
		}
		a.WaitUp(t)
	}
	if err := os.Remove(filepath.Join(d.dir, "calls")); err != nil {
		t.Fatal(err)
	}
	d.fault(t, "NodePublishVolume", csidriver.Hang)
	put(t, a, "killed-csi", csiPod("1", "persistentVolumeClaim: {claimName: csi}"))
	d.called(t, "NodeStageVolume", 1)
	again()
	d.called(t, "NodePublishVolume", 1) // the call that hung ends with the agent
	d.fault(t, "NodePublishVolume", "")
	again()
	a.WaitReady(t, "killed-csi")
	seen(t, a, "killed-csi", "main", "cat /v/file", "second")
	p := podOf(t, a, "killed-csi")
	d.fault(t, "NodeUnpublishVolume", csidriver.Fail)
	a.RemoveManifest(t, "killed-csi.yaml")
	d.called(t, "NodeUnpublishVolume", 1)
	again()
	d.called(t, "NodeUnpublishVolume", 2)
	d.fault(t, "NodeUnpublishVolume", "")
	d.fault(t, "NodeUnstageVolume", csidriver.Late)
	d.called(t, "NodeUnstageVolume", 1)
	d.fault(t, "NodeUnstageVolume", "")
	nothingLeft(t, func() []string { return e.LeaksOf(string(p.UID), "globalmount") })
}

// csiDriverKilled checks that the agent repeats a call in which the driver died when the driver is
// back, and that pods that have their volumes are not affected.
func csiDriverKilled(t *testing.T, e *env.Env, a *env.Agent, d csiDriver) {
	put(t, a, "has-csi", csiPod("1", csiInline))
	a.WaitReady(t, "has-csi")
	d.fault(t, "NodePublishVolume", csidriver.Crash)
	put(t, a, "crash-csi", csiPod("1", "persistentVolumeClaim: {claimName: csi}"))
	waitEvent(t, a, "FailedMount", `rpc error: code = Unavailable`)
	env.Eventually(t, "the driver to have crashed", func() error {
		if d.Running() {
			return errors.New("it runs")
		}
		return nil
	})
	d.start(t)
	a.WaitReady(t, "crash-csi")
	if p := podOf(t, a, "has-csi"); statusOf(p, "main").RestartCount != 0 || !statusOf(p, "main").Ready {
		t.Errorf("the other pod: %s", env.Describe([]corev1.Pod{*p}))
	}
	seen(t, a, "has-csi", "main", "cat /v/greeting", "hello")
	removed(t, e, a, "crash-csi")
	removed(t, e, a, "has-csi")
}

// csiDriverHangs checks that a driver that does not answer delays its own pod and no other, also
// while its pod is being deleted, and that nothing of the pod is left.
func csiDriverHangs(t *testing.T, e *env.Env, a *env.Agent, d csiDriver) {
	d.fault(t, "NodePublishVolume", csidriver.Hang)
	put(t, a, "hangs-csi", csiPod("1", csiInline))
	env.Eventually(t, "why to say what is waited for", func() error {
		if timeline := fmt.Sprintf("%+v", why(t, a, "hangs-csi")); !strings.Contains(timeline,
			"CSI driver "+csiName+" is bringing up volume v") {
			return errors.New(timeline)
		}
		return nil
	})
	put(t, a, "beside-csi", sleeper)
	a.WaitReady(t, "beside-csi")
	p := podOf(t, a, "hangs-csi")
	a.RemoveManifest(t, "hangs-csi.yaml")
	if err := d.Stop(); err != nil { // the call that hangs ends with the driver
		t.Fatal(err)
	}
	d.fault(t, "NodePublishVolume", "")
	d.start(t)
	nothingLeft(t, func() []string { return e.LeaksOf(string(p.UID)) })
	removed(t, e, a, "beside-csi")
}

// csiDriverGoes checks that a volume whose driver is gone is taken down when the driver is back,
// and not before.
func csiDriverGoes(t *testing.T, e *env.Env, a *env.Agent, d csiDriver) {
	put(t, a, "goes-csi", csiPod("1", "persistentVolumeClaim: {claimName: csi}"))
	a.WaitReady(t, "goes-csi")
	p := podOf(t, a, "goes-csi")
	if err := d.Stop(); err != nil {
		t.Fatal(err)
	}
	a.RemoveManifest(t, "goes-csi.yaml")
	env.Eventually(t, "why to say which driver is missing", func() error {
		if timeline := fmt.Sprintf("%+v", why(t, a, "goes-csi")); !strings.Contains(timeline,
			"Unmounter.TearDownAt failed to get CSI client: driver name "+csiName+" not found") {
			return errors.New(timeline)
		}
		return nil
	})
	d.start(t)
	nothingLeft(t, func() []string { return e.LeaksOf(string(p.UID), "globalmount") })
}
