package volumes

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	mount "k8s.io/mount-utils"
	"k8s.io/utils/ptr"
)

// localPV is a PersistentVolume on a directory or a device.
func localPV(name, path string, options ...string) *v1.PersistentVolume {
	pv := &v1.PersistentVolume{}
	pv.Name = name
	pv.Spec.Local = &v1.LocalVolumeSource{Path: path}
	pv.Spec.MountOptions = options
	return pv
}

// claimant returns a manager that knows one claim, "c", and a pod that mounts it with an fsGroup.
func claimant(t *testing.T, pv *v1.PersistentVolume, group *int64) (*Manager, *v1.Pod) {
	t.Helper()
	m := testManager(mountDir(t), newStore(), nil)
	m.deps.Claims = boundTo{"c": pv}
	pod := testPod(claimVolume("v", "c"))
	pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: group}
	must(t, m.EnsureDirs(t.Context(), pod))
	return m, pod
}

func owner(t *testing.T, path string) (gid int, mode fs.FileMode) {
	t.Helper()
	info, err := os.Lstat(path)
	must(t, err)
	var stat unix.Stat_t
	must(t, unix.Lstat(path, &stat))
	return int(stat.Gid), info.Mode()
}

func TestLocalVolume(t *testing.T) {
	needRoot(t)
	disk := t.TempDir()
	write(t, disk+"/data", "x")
	m, pod := claimant(t, localPV("pv-1", disk, "noexec"), ptr.To[int64](4321))
	mounter := &countingMounter{}
	m.deps.Mounter = mounter
	var mounts Mounts
	for range 2 {
		var err error
		mounts, err = m.Ensure(t.Context(), pod, Dynamic{})
		must(t, err)
	}
	path := m.PodDir(pod.UID) + "/volumes/kubernetes.io~local-volume/pv-1"
	if want := (Mount{HostPath: path, SELinuxRelabel: true}); mounts["v"] != want {
		t.Errorf("mount is %+v, want %+v", mounts["v"], want)
	}
	var stat unix.Statfs_t
	must(t, unix.Statfs(path, &stat))
	if mounter.mounts != 1 || stat.Flags&unix.ST_NOEXEC == 0 {
		t.Errorf("%d mounts, flags %#x", mounter.mounts, stat.Flags)
	}
	if gid, mode := owner(t, path+"/data"); gid != 4321 || mode != 0o664 {
		t.Errorf("the file is of group %d and has mode %v", gid, mode)
	}
	must(t, m.Remove(t.Context(), pod.UID))
	if exists(m.PodDir(pod.UID)) || read(t, disk, "data") != "x" {
		t.Error("the pod's directory is left, or the volume's data is not")
	}
}

func TestLocalVolumeReadOnly(t *testing.T) {
	needRoot(t)
	disk := t.TempDir()
	write(t, disk+"/data", "x")
	m, pod := claimant(t, localPV("pv-1", disk), ptr.To[int64](4321))
	pod.Spec.Volumes[0].PersistentVolumeClaim.ReadOnly = true
	mounts, err := m.Ensure(t.Context(), pod, Dynamic{})
	must(t, err)
	if !mounts["v"].ReadOnly || mounts["v"].SELinuxRelabel {
		t.Errorf("mount is %+v", mounts["v"])
	}
	if err := os.WriteFile(mounts["v"].HostPath+"/data", nil, 0); !errors.Is(err, unix.EROFS) {
		t.Errorf("writing to it: %v", err)
	}
	if gid, _ := owner(t, disk+"/data"); gid == 4321 {
		t.Error("the owner of what is only read was changed")
	}
}

func TestLocalVolumeErrors(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	write(t, dir+"/file", "x")
	for path, want := range map[string]string{
		dir + "/none": `MountVolume.NewMounter initialization failed for volume "pv-1" : path "` + dir +
			`/none" does not exist`,
		dir +
			"/file": `MountVolume.NewMounter initialization failed for volume "pv-1" : only directory and block ` +
			`device are supported`,
		dir + "/../file": `MountVolume.SetUp failed for volume "pv-1" : invalid path: ` + dir +
			`/../file must not contain '..'`,
	} {
		m, pod := claimant(t, localPV("pv-1", path), nil)
		if _, err := m.Ensure(t.Context(), pod, Dynamic{}); err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
		must(t, m.Remove(t.Context(), pod.UID))
	}
}

func TestClaimErrors(t *testing.T) {
	const prefix = `Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[], failed to ` +
		`process volumes=[v]: `
	block := localPV("pv-1", "/dev/null")
	block.Spec.VolumeMode = ptr.To(v1.PersistentVolumeBlock)
	mounting := []v1.VolumeMount{{Name: "v", MountPath: "/v"}}
	mapping := []v1.VolumeDevice{{Name: "v", DevicePath: "/dev/v"}}
	for name, test := range map[string]struct {
		pv      *v1.PersistentVolume
		mounts  []v1.VolumeMount
		devices []v1.VolumeDevice
		want    string
	}{
		"not bound": {nil, mounting, nil, "error processing PVC ns/c: PVC is not bound"},
		"block, mounted": {
			block, mounting, nil, "volume v has volumeMode Block, but is specified in volumeMounts",
		},
		"files, as a device": {
			localPV("pv-1", "/"), nil, mapping, "volume v has volumeMode Filesystem, but is specified in volumeDevices",
		},
		"a name with a climb":  {localPV("..", "/"), mounting, nil, ""},
		"a name with a folder": {localPV("a/b", "/"), mounting, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m, pod := claimant(t, test.pv, nil)
			pod.Spec.Containers[0].VolumeMounts, pod.Spec.Containers[0].VolumeDevices = test.mounts, test.devices
			_, err := m.Ensure(t.Context(), pod, Dynamic{})
			if err == nil || test.want != "" && err.Error() != prefix+test.want {
				t.Errorf("error %v, want %s", err, prefix+test.want)
			}
		})
	}
}

// Pods that share a volume do not fight over its owner: an event warns the second pod.
func TestLocalVolumeShared(t *testing.T) {
	needRoot(t)
	disk := t.TempDir()
	write(t, disk+"/data", "x")
	m, first := claimant(t, localPV("pv-1", disk), ptr.To[int64](1111))
	var events []string
	m.deps.Events = func(pod *v1.Pod, _, kind, reason, message string) {
		events = append(events, strings.Join([]string{pod.Name, kind, reason, message}, " "))
	}
	_, err := m.Ensure(t.Context(), first, Dynamic{})
	must(t, err)
	for i, group := range []int64{2222, 1111} {
		other := first.DeepCopy()
		other.UID, other.Name = types.UID([]string{"uid-2", "uid-3"}[i]), []string{"two", "three"}[i]
		other.Spec.SecurityContext.FSGroup = &group
		must(t, m.EnsureDirs(t.Context(), other))
		_, err := m.Ensure(t.Context(), other, Dynamic{})
		must(t, err)
	}
	if gid, _ := owner(t, disk+"/data"); gid != 1111 {
		t.Errorf("the file is of group %d", gid)
	}
	want := "two Warning AlreadyMountedVolume The requested fsGroup is 2222, but the volume pv-1 has GID 1111. The " +
		"volume may not be shareable."
	if len(events) != 1 || events[0] != want {
		t.Errorf("events %q, want %q", events, want)
	}
	for _, uid := range []types.UID{"uid-1", "uid-2", "uid-3"} {
		must(t, m.Remove(t.Context(), uid))
	}
}

// An agent that dies before the owner is set sets it when it is back; and again once the machine
// was down, when nothing is mounted any more.
func TestLocalVolumeCutOff(t *testing.T) {
	needRoot(t)
	disk := t.TempDir()
	write(t, disk+"/data", "x")
	m, pod := claimant(t, localPV("pv-1", disk), ptr.To[int64](4321))
	target := m.PodDir(pod.UID) + "/volumes/kubernetes.io~local-volume/pv-1"
	must(t, os.MkdirAll(target, 0o750))
	mustMount(t, disk, target, "", "bind")
	for range 2 {
		_, err := m.Ensure(t.Context(), pod, Dynamic{})
		must(t, err)
		if gid, _ := owner(t, target+"/data"); gid != 4321 {
			t.Errorf("the file is of group %d", gid)
		}
		must(t, os.Chown(disk+"/data", 0, 0))
		must(t, KernelMounter{}.Unmount(target))
	}
}

// What a pod has behind a claim it keeps: when the claim has no volume any more, or another, as
// after a restart with bad manifests.
func TestClaimIsKept(t *testing.T) {
	needRoot(t)
	one, two := t.TempDir(), t.TempDir()
	host := &v1.PersistentVolume{}
	host.Name, host.Annotations = "pv-host", map[string]string{annotationGID: "777"}
	host.Spec.HostPath = &v1.HostPathVolumeSource{Path: one}
	for name, pv := range map[string]*v1.PersistentVolume{"local": localPV("pv-1", one), "hostPath": host} {
		t.Run(name, func(t *testing.T) {
			m, pod := claimant(t, pv, ptr.To[int64](4321))
			first, err := m.Ensure(t.Context(), pod, Dynamic{})
			must(t, err)
			m.deps.Claims = boundTo{}
			kept, err := m.Ensure(t.Context(), pod, Dynamic{})
			if !errors.Is(err, ErrUnprocessed) || kept["v"] != first["v"] {
				t.Errorf("without a volume: %+v, %v, want %+v", kept["v"], err, first["v"])
			}
			m.deps.Claims = boundTo{"c": localPV("pv-2", two)}
			if kept, err = m.Ensure(t.Context(), pod, Dynamic{}); err != nil || kept["v"] != first["v"] {
				t.Errorf("with another volume: %+v, %v, want %+v", kept["v"], err, first["v"])
			}
			must(t, m.Remove(t.Context(), pod.UID))
			if exists(m.PodDir(pod.UID)) {
				t.Error("the pod's directory is left")
			}
		})
	}
	// What is not mounted any more, as after the machine was down, is not kept.
	m, pod := claimant(t, localPV("pv-1", one), nil)
	first, err := m.Ensure(t.Context(), pod, Dynamic{})
	must(t, err)
	must(t, KernelMounter{}.Unmount(first["v"].HostPath))
	m.deps.Claims = boundTo{"c": localPV("pv-2", two)}
	next, err := m.Ensure(t.Context(), pod, Dynamic{})
	if err != nil || !strings.HasSuffix(next["v"].HostPath, "/pv-2") {
		t.Errorf("after the machine was down: %+v, %v", next["v"], err)
	}
	// A record that is no record is none.
	write(t, m.PodDir(pod.UID)+"/plugins/berth.dev~claim/v.json", `{"metadata":{"name":"../../x"}}`)
	if next, err = m.Ensure(t.Context(), pod, Dynamic{}); err != nil ||
		!strings.HasSuffix(next["v"].HostPath, "/pv-2") {
		t.Errorf("with a bad record: %+v, %v", next["v"], err)
	}
}

// What takes long runs beside the sync: the volume is not up before it has ended.
func TestSlowly(t *testing.T) {
	needRoot(t)
	disk := t.TempDir()
	m, pod := claimant(t, localPV("pv-1", disk), ptr.To[int64](4321))
	var tasks []func(context.Context) error
	ended, result := false, error(nil)
	slow := func(key string, do func(context.Context) error) (bool, error) {
		if key != "volumes/kubernetes.io~local-volume/pv-1" {
			t.Errorf("key %q", key)
		}
		if ended {
			return true, result
		}
		tasks = append(tasks, do)
		return false, nil
	}
	ensure := func() (Mounts, error) { return m.Ensure(t.Context(), pod, Dynamic{Slow: slow}) }
	mounts, err := ensure()
	if !errors.Is(err, ErrUnderWay) || len(mounts) > 0 || len(tasks) != 1 {
		t.Fatalf("mounts %v, error %v, %d tasks", mounts, err, len(tasks))
	}
	ended, result = true, errors.New("the disk is full")
	if _, err = ensure(); err == nil || errors.Is(err, ErrUnderWay) ||
		!strings.Contains(err.Error(), "the disk is full") {
		t.Errorf("after a failure: %v", err)
	}
	ended, result = false, nil
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := tasks[0](cancelled); !errors.Is(err, context.Canceled) {
		t.Errorf("a task that was ended: %v", err)
	}
	must(t, tasks[0](t.Context()))
	if mounts, err = ensure(); err != nil || len(mounts) != 1 || len(tasks) != 1 {
		t.Errorf("mounts %v, error %v, %d tasks", mounts, err, len(tasks))
	}
}

// A block device without anything on it gets a file system; one with files keeps them, for one pod
// after the other and for two at once.
func TestLocalVolumeOnDevice(t *testing.T) {
	needRoot(t)
	for _, program := range []string{"losetup", "mkfs.ext4", "blkid"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("needs %s", program)
		}
	}
	image := filepath.Join(t.TempDir(), "image")
	must(t, os.WriteFile(image, nil, 0o600))
	must(t, os.Truncate(image, 16<<20))
	out, err := exec.CommandContext(t.Context(), "losetup", "--find", "--show", image).Output()
	if err != nil {
		t.Skipf("no loop device: %v", err)
	}
	device := strings.TrimSpace(string(out))
	t.Cleanup(func() { _ = exec.CommandContext(context.Background(), "losetup", "--detach", device).Run() })
	m, first := claimant(t, localPV("pv-1", device), ptr.To[int64](4321))
	second := first.DeepCopy()
	second.UID = "uid-2"
	must(t, m.EnsureDirs(t.Context(), second))
	mounts, err := m.Ensure(t.Context(), first, Dynamic{})
	must(t, err)
	write(t, mounts["v"].HostPath+"/data", "x")
	if gid, mode := owner(t, mounts["v"].HostPath); gid != 4321 || mode&fs.ModeSetgid == 0 {
		t.Errorf("its root is of group %d and has mode %v", gid, mode)
	}
	for range 2 { // beside the first pod, and after it
		mounts, err = m.Ensure(t.Context(), second, Dynamic{})
		must(t, err)
		if got := read(t, mounts["v"].HostPath, "data"); got != "x" {
			t.Errorf("it holds %q", got)
		}
		must(t, m.Remove(t.Context(), first.UID))
	}
	must(t, m.Remove(t.Context(), second.UID))
}

// The claim of a template is made by a cluster's controllers, and has the pod's name.
func TestEphemeralVolumes(t *testing.T) {
	dir := t.TempDir()
	pv := &v1.PersistentVolume{
		Spec: v1.PersistentVolumeSpec{
			PersistentVolumeSource: v1.PersistentVolumeSource{HostPath: &v1.HostPathVolumeSource{Path: dir}},
		},
	}
	pv.Name = "pv"
	pod := testPod(v1.Volume{Name: "scratch", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}})
	for _, c := range []struct {
		name      string
		templates bool
		claims    boundTo
		want      string
	}{
		{"without a cluster", false, boundTo{pod.Name + "-scratch": pv}, "needs a cluster's provisioner"},
		{"bound", true, boundTo{pod.Name + "-scratch": pv}, ""},
		{
			"not bound yet", true,
			boundTo{},
			"error processing PVC " + pod.Namespace + "/" + pod.Name + "-scratch: PVC is not bound",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := testManager(t.TempDir(), newStore(), mount.NewFakeMounter(nil))
			m.deps.Claims, m.cfg.Templates = c.claims, c.templates
			must(t, m.EnsureDirs(t.Context(), pod))
			mounts, err := m.Ensure(t.Context(), pod, Dynamic{})
			if c.want == "" && (err != nil || mounts["scratch"].HostPath != dir) ||
				c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, %v; want %q", mounts, err, c.want)
			}
		})
	}
}
