package volumes

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/berthd/berth/test/csidriver"
)

// loopDevice returns a loop device on a file; the test is skipped where there are none.
func loopDevice(t *testing.T, file string) string {
	t.Helper()
	needRoot(t)
	return csidriver.Loop(t, file).Name()
}

// blockPod is a pod whose container gets the claim "c" as a device.
func blockPod(uid string) *v1.Pod {
	pod := podNamed(uid, claimVolume("v", "c"))
	pod.Spec.Containers[0].VolumeMounts = nil
	pod.Spec.Containers[0].VolumeDevices = []v1.VolumeDevice{{Name: "v", DevicePath: "/dev/v"}}
	return pod
}

func block(pv *v1.PersistentVolume) *v1.PersistentVolume {
	pv.Spec.VolumeMode = ptr.To(v1.PersistentVolumeBlock)
	return pv
}

// recordEvents returns the list to which a manager adds the events that it records from now on.
func recordEvents(m *Manager) *[]string {
	events := &[]string{}
	m.deps.Events = func(_ *v1.Pod, _, kind, reason, message string) {
		*events = append(*events, strings.Join([]string{kind, reason, message}, " "))
	}
	return events
}

// checkEvents compares the recorded events with those that are wanted.
func checkEvents(t *testing.T, got *[]string, want ...string) {
	t.Helper()
	if !slices.Equal(*got, want) {
		t.Errorf("events %q, want %q", *got, want)
	}
}

// A local device is a link in the pod's directory, as a kubelet has it; nothing is mounted. An
// event tells once that the pod has it.
func TestLocalDevice(t *testing.T) {
	device := loopDevice(t, t.TempDir()+"/disk")
	m, _ := claimant(t, block(localPV("pv-1", device)), nil)
	events := recordEvents(m)
	pod := blockPod("pod")
	pod.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true
	must(t, m.EnsureDirs(t.Context(), pod))
	for range 2 {
		mounts, err := m.Ensure(t.Context(), pod, Dynamic{})
		must(t, err)
		at := m.PodDir("pod") + "/volumeDevices/kubernetes.io~local-volume/pv-1"
		if want := (Mount{HostPath: at, Device: true, ReadOnly: true}); mounts["v"] != want {
			t.Errorf("got %+v, want %+v", mounts["v"], want)
		}
		if to, err := os.Readlink(at); err != nil || to != device {
			t.Errorf("it is a link to %s, %v", to, err)
		}
	}
	checkEvents(t, events, `Normal SuccessfulMountVolume MapVolume.MapPodDevice succeeded for volume "pv-1" `+
		`volumeMapPath "`+m.PodDir("pod")+`/volumeDevices/kubernetes.io~local-volume"`)
	m.deps.Claims = boundTo{} // what is up stays
	if mounts, err := m.Ensure(t.Context(), pod, Dynamic{}); !errors.Is(err, ErrUnprocessed) || !mounts["v"].Device {
		t.Errorf("without the claim: %+v, %v", mounts, err)
	}
	must(t, m.Remove(t.Context(), "pod"))
	if exists(m.PodDir("pod")) || !exists(device) {
		t.Error("the pod's directory is left, or its device is not")
	}
}

// What cannot be a device is refused with what it is.
func TestLocalDeviceErrors(t *testing.T) {
	dir := t.TempDir()
	nfs := &v1.PersistentVolume{}
	nfs.Name, nfs.Spec.NFS = "pv-1", &v1.NFSVolumeSource{Server: "s", Path: "/p"}
	for _, tc := range []struct {
		pv   *v1.PersistentVolume
		want string
	}{
		{
			localPV("pv-1", dir),
			`MapVolume.MapBlockVolume failed for volume "pv-1" : path "` + dir + `" is not a block device`,
		},
		{
			localPV("pv-1", "/dev/null"),
			`MapVolume.MapBlockVolume failed for volume "pv-1" : path "/dev/null" is not a block device`,
		},
		{
			localPV("pv-1", dir+"/none"),
			`MapVolume.MapBlockVolume failed for volume "pv-1" : path "` + dir + `/none" does not exist`,
		},
		{
			nfs,
			`MapVolume.FindMapperPluginBySpec failed for volume "pv-1" : failed to find BlockVolumeMapper plugin: ` +
				`PersistentVolume "pv-1" has volumeMode Block, and is of kind nfs`,
		},
	} {
		m, _ := claimant(t, block(tc.pv), nil)
		pod := blockPod("pod")
		must(t, m.EnsureDirs(t.Context(), pod))
		_, err := m.Ensure(t.Context(), pod, Dynamic{})
		if err == nil || err.Error() != tc.want {
			t.Errorf("error %v, want %s", err, tc.want)
		}
		if f := Failures(err); len(f) != 1 || f[0].Reason() != "FailedMapVolume" {
			t.Errorf("failures %v", f)
		}
		must(t, m.Remove(t.Context(), "pod"))
	}
}

// What a kubelet mounted of a local device outside of the pod's directory goes with the pod, and
// the loop device that it held on to it with.
func TestLocalDeviceFromKubelet(t *testing.T) {
	device := loopDevice(t, t.TempDir()+"/disk")
	m, _ := claimant(t, block(localPV("pv-1", device)), nil)
	pod := blockPod("pod")
	must(t, m.EnsureDirs(t.Context(), pod))
	_, err := m.Ensure(t.Context(), pod, Dynamic{})
	must(t, err)
	left := m.cfg.RootDir + "/plugins/kubernetes.io~local-volume/volumeDevices/pv-1/pod"
	must(t, os.MkdirAll(filepath.Dir(left), 0o750))
	write(t, left, "")
	mustMount(t, device, left, "", "bind")
	second := loopDevice(t, left)
	must(t, m.Remove(t.Context(), "pod"))
	if exists(left) {
		t.Error("what the kubelet mounted is left")
	}
	backing, err := os.ReadFile("/sys/block/" + filepath.Base(second) + "/loop/backing_file")
	if err == nil && strings.TrimSpace(string(backing)) == left {
		t.Logf("%s is detached when it is closed", second) // the test has it open, too
	}
}

// devices lists what is left of block devices in the node's directory.
func (r *csiRig) devices() []string {
	r.t.Helper()
	left, err := filepath.Glob(r.root + "/plugins/kubernetes.io/csi/volumeDevices/*/*")
	must(r.t, err)
	mounts, err := mountsBeneath(r.root)
	must(r.t, err)
	return slices.Concat(left, mounts)
}

func newBlockRig(t *testing.T) *csiRig {
	t.Helper()
	must(t, csidriver.Loop(t, t.TempDir()+"/probe").Close())
	r := newCSIRig(t, stages)
	block(r.pv)
	return r
}

// Two pods share a device: it is staged before the first has it, and unstaged after the last has
// had it, where a kubelet would have it. Two events tell once that a pod has it.
func TestCSIDevice(t *testing.T) {
	r := newBlockRig(t)
	m := r.manager()
	events := recordEvents(m)
	at, err := r.ensure(m, blockPod("one"))
	must(t, err)
	devices := r.root + "/plugins/kubernetes.io/csi/volumeDevices"
	for i, request := range r.called("NodeStageVolume", "NodePublishVolume") {
		capability, _ := request["volumeCapability"].(map[string]any)
		if request["stagingTargetPath"] != devices+"/staging/pv" || capability["block"] == nil ||
			capability["mount"] != nil || i == 1 && request["targetPath"] != devices+"/publish/pv/one" {
			t.Errorf("asked for %v", request)
		}
	}
	if want := m.PodDir("one") + "/volumeDevices/kubernetes.io~csi/pv"; at != want {
		t.Errorf("it is at %s, want %s", at, want)
	}
	if to, err := os.Readlink(at); err != nil || to != devices+"/publish/pv/one" {
		t.Errorf("it is a link to %s, %v", to, err)
	}
	if got := read(t, devices, "pv/data/vol_data.json"); !strings.HasPrefix(got,
		`{"specVolID":"pv","volumeHandle":"h","driverName":"test.berth.dev","nodeName":"node",`) {
		t.Errorf("on record is %s", got)
	}
	mapped := `Normal SuccessfulMountVolume MapVolume.MapPodDevice succeeded for volume "pv" `
	checkEvents(t, events, mapped+`globalMapPath "`+devices+`/pv/dev"`,
		mapped+`volumeMapPath "`+m.PodDir("one")+`/volumeDevices/kubernetes.io~csi"`)
	must(t, os.WriteFile(at, []byte("hello"), 0))
	again := r.manager() // after a restart of the agent
	events = recordEvents(again)
	_, err = r.ensure(again, blockPod("one"))
	must(t, err)
	r.called()
	checkEvents(t, events)
	two, err := r.ensure(m, blockPod("two"))
	must(t, err)
	r.called("NodePublishVolume")
	data := make([]byte, 5)
	f, err := os.Open(two)
	must(t, err)
	_, err = f.Read(data)
	must(t, errors.Join(err, f.Close()))
	if string(data) != "hello" {
		t.Errorf("the other pod reads %q", data)
	}
	r.gone(m, blockPod("one"))
	r.called("NodeUnpublishVolume")
	must(t, m.CSI().PruneStaged(t.Context()))
	r.called()
	r.gone(r.manager(), blockPod("two"))
	r.called("NodeUnpublishVolume", "NodeUnstageVolume")
	if left := r.devices(); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}

// What a kubelet has mapped is up, and is taken down like one's own; what it left staged is
// unstaged.
func TestCSIDeviceFromKubelet(t *testing.T) {
	r := newBlockRig(t)
	m, pod := r.manager(), blockPod("pod")
	_, err := r.ensure(m, pod)
	must(t, err)
	r.calls()
	must(t, os.RemoveAll(m.PodDir("pod")+"/plugins")) // all that is berth's own
	m = r.manager()
	_, err = r.ensure(m, pod)
	must(t, err)
	r.called()
	must(t, os.RemoveAll(m.PodDir("pod")+"/plugins"))
	r.gone(m, pod)
	r.called("NodeUnpublishVolume", "NodeUnstageVolume")
	if left := r.devices(); len(left) > 0 {
		t.Errorf("left are %v", left)
	}
}

// As TestCSIFaults, for a device.
func TestCSIDeviceFaults(t *testing.T) {
	faulty{
		rig: newBlockRig, pod: blockPod, faults: []csidriver.Fault{csidriver.Fail, csidriver.Late},
		up: map[string]string{
			"NodeStageVolume":   `MapVolume.SetUpDevice failed for volume "pv" : rpc error: code = `,
			"NodePublishVolume": `MapVolume.MapPodDevice failed for volume "pv" : rpc error: code = `,
		},
		down: `UnmapVolume.UnmapPodDevice failed for volume "pv" : kubernetes.io/csi: `,
		left: func(r *csiRig) {
			if left := r.devices(); len(left) > 0 {
				r.t.Errorf("left are %v", left)
			}
		},
	}.run(t)
}
