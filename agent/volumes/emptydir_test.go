package volumes

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

func TestHugePageSize(t *testing.T) {
	requests := func(names ...v1.ResourceName) v1.ResourceList {
		list := v1.ResourceList{}
		for _, name := range names {
			list[name] = resource.MustParse("4Mi")
		}
		return list
	}
	pod := func(lists ...v1.ResourceList) *v1.Pod {
		p := &v1.Pod{}
		for _, list := range lists {
			p.Spec.Containers = append(p.Spec.Containers,
				v1.Container{Resources: v1.ResourceRequirements{Requests: list}})
		}
		return p
	}
	whole := pod(nil)
	whole.Spec.Resources = &v1.ResourceRequirements{Requests: requests("hugepages-2Mi")}
	initial := pod(nil)
	initial.Spec.InitContainers = []v1.Container{
		{Resources: v1.ResourceRequirements{Requests: requests("hugepages-1Gi")}},
	}
	both := pod(requests("hugepages-2Mi"), requests("hugepages-1Gi", "memory"))
	for _, test := range []struct {
		pod    *v1.Pod
		medium v1.StorageMedium
		want   int64
		err    string
	}{
		{pod(requests("hugepages-2Mi")), "HugePages", 2 << 20, ""},
		{pod(requests("hugepages-2Mi"), requests("hugepages-2Mi")), "HugePages", 2 << 20, ""},
		{whole, "HugePages", 2 << 20, ""},
		{initial, "HugePages-1Gi", 1 << 30, ""},
		{both, "HugePages-2Mi", 2 << 20, ""},
		{both, "HugePages-1Gi", 1 << 30, ""},
		{both, "HugePages", 0, "medium: HugePages can't be used if container requests multiple huge page sizes"},
		{
			pod(requests("memory")), "HugePages", 0,
			"medium HugePages: hugePages storage requested, but there is no resource request for huge pages",
		},
		{
			pod(requests("hugepages-2Mi")), "HugePages-1Gi", 0,
			"medium HugePages-1Gi: hugePages storage requested, but there is no resource request for huge pages",
		},
		{both, "HugePages-", 0, `medium HugePages-: "" is not a size of huge pages`},
		{both, "HugePages-x", 0, `medium HugePages-x: "x" is not a size of huge pages`},
	} {
		got, err := hugePageSize(test.pod, test.medium)
		if text := errorText(err); got != test.want || text != test.err {
			t.Errorf("%s: %d, %q, want %d, %q", test.medium, got, text, test.want, test.err)
		}
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func TestHugePages(t *testing.T) {
	needRoot(t)
	if _, err := os.Stat("/sys/kernel/mm/hugepages/hugepages-2048kB"); err != nil {
		t.Skip("this kernel has no huge pages of 2 MiB")
	}
	m := testManager(mountDir(t), newStore(), nil)
	mounter := &countingMounter{}
	m.deps.Mounter = mounter
	pod := testPod(emptyDirVolume("v", "HugePages-2Mi"))
	pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr.To[int64](4321)}
	pod.Spec.Containers[0].Resources.Requests = v1.ResourceList{"hugepages-2Mi": resource.MustParse("4Mi")}
	must(t, m.EnsureDirs(t.Context(), pod))
	var mounts Mounts
	for range 2 {
		var err error
		mounts, err = m.Ensure(t.Context(), pod, Dynamic{})
		must(t, err)
	}
	var stat unix.Statfs_t
	must(t, unix.Statfs(mounts["v"].HostPath, &stat))
	if mounter.mounts != 1 || stat.Type != unix.HUGETLBFS_MAGIC || stat.Bsize != 2<<20 {
		t.Errorf("%d mounts of type %#x with pages of %d bytes", mounter.mounts, stat.Type, stat.Bsize)
	}
	if gid, mode := owner(t, mounts["v"].HostPath); gid != 4321 || mode.Perm() != 0o777 {
		t.Errorf("its root is of group %d and has mode %v", gid, mode)
	}
	must(t, KernelMounter{}.Unmount(mounts["v"].HostPath))
	mustMount(t, "tmpfs", mounts["v"].HostPath, "tmpfs")
	if _, err := m.Ensure(t.Context(), pod, Dynamic{}); err == nil ||
		!strings.Contains(err.Error(), "something that is no hugetlbfs is mounted") {
		t.Errorf("error %v", err)
	}
	must(t, m.Remove(t.Context(), pod.UID))
}

// Mounts travel out of a volume and into it, when a container wants that; the volume goes with all
// that was mounted in it.
func TestShare(t *testing.T) {
	needRoot(t)
	dir := mountDir(t)
	mustMount(t, "tmpfs", dir, "tmpfs") // as on a host whose mounts are private
	must(t, unix.Mount("", dir, "", unix.MS_PRIVATE, ""))
	m := testManager(dir, newStore(), nil)
	pod := testPod(emptyDirVolume("disk", ""), emptyDirVolume("memory", v1.StorageMediumMemory),
		emptyDirVolume("private", ""), emptyDirVolume("none", ""))
	mount := func(volume string, mode v1.MountPropagationMode) v1.VolumeMount {
		return v1.VolumeMount{Name: volume, MountPath: "/" + volume, MountPropagation: &mode}
	}
	pod.Spec.InitContainers[0].VolumeMounts = []v1.VolumeMount{
		mount("disk", v1.MountPropagationHostToContainer), mount("private", v1.MountPropagationNone),
	}
	pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{
		mount("memory", v1.MountPropagationBidirectional),
		{Name: "private", MountPath: "/p"},
		{Name: "none", MountPath: "/none"},
	}
	must(t, m.EnsureDirs(t.Context(), pod))
	var mounts Mounts
	for range 2 {
		var err error
		mounts, err = m.Ensure(t.Context(), pod, Dynamic{})
		must(t, err)
	}
	elsewhere := filepath.Join(dir, "elsewhere")
	for volume, want := range map[string]bool{"disk": true, "memory": true, "private": false, "none": false} {
		path := mounts[volume].HostPath
		must(t, os.Mkdir(path+"/in", 0o755))
		must(t, os.MkdirAll(elsewhere, 0o755))
		mustMount(t, path, elsewhere, "", "bind") // as a runtime does for a container
		mustMount(t, "tmpfs", elsewhere+"/in", "tmpfs")
		if travelled, err := isMountPoint(path + "/in"); err != nil || travelled != want {
			t.Errorf("a mount in the container's %s is seen on the host: %v, want %v (%v)", volume, travelled,
				want, err)
		}
		// a container's end unmounts nothing on the host
		must(t, unix.Mount("", elsewhere, "", unix.MS_PRIVATE|unix.MS_REC, ""))
		must(t, KernelMounter{}.Detach(elsewhere))
	}
	// disk, memory, and one in each
	if have, err := mountsBeneath(m.PodDir(pod.UID)); err != nil || len(have) != 4 {
		t.Errorf("mounts %v, %v", have, err)
	}
	must(t, m.Remove(t.Context(), pod.UID))
	if exists(m.PodDir(pod.UID)) {
		t.Error("the pod's directory is left")
	}
}

// On a host whose mounts are shared, nothing is added to them.
func TestShareOnSharedHost(t *testing.T) {
	needRoot(t)
	dir := mountDir(t)
	mustMount(t, "tmpfs", dir, "tmpfs")
	must(t, unix.Mount("", dir, "", unix.MS_SHARED, ""))
	m := testManager(dir, newStore(), nil)
	pod := testPod(emptyDirVolume("v", ""))
	pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{
		Name:             "v",
		MountPath:        "/v",
		MountPropagation: ptr.To(v1.MountPropagationBidirectional),
	}}
	must(t, m.EnsureDirs(t.Context(), pod))
	_, err := m.Ensure(t.Context(), pod, Dynamic{})
	must(t, err)
	if have, err := mountsBeneath(m.PodDir(pod.UID)); err != nil || len(have) != 0 {
		t.Errorf("mounts %v, %v", have, err)
	}
	must(t, m.Remove(t.Context(), pod.UID))
}

// The modes are those that kubelet 1.36 gives the roots of volumes.
func TestRootModes(t *testing.T) {
	needRoot(t)
	for name, c := range map[string]struct {
		group        *int64
		disk, memory os.FileMode
	}{
		"without a group": {nil, 0o777, 0o777 | os.ModeSticky},
		"with a group":    {ptr.To[int64](4321), 0o777 | os.ModeSetgid, 0o777 | os.ModeSetgid | os.ModeSticky},
	} {
		t.Run(name, func(t *testing.T) {
			m := testManager(mountDir(t), newStore(), nil)
			pod := testPod(emptyDirVolume("disk", ""), emptyDirVolume("memory", v1.StorageMediumMemory),
				v1.Volume{Name: "files", VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{}}})
			pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: c.group}
			must(t, m.EnsureDirs(t.Context(), pod))
			mounts, err := m.Ensure(t.Context(), pod, Dynamic{})
			must(t, err)
			for volume, want := range map[string]os.FileMode{"disk": c.disk, "memory": c.memory, "files": c.memory} {
				if _, mode := owner(t, mounts[volume].HostPath); mode&^os.ModeDir != want {
					t.Errorf("%s has mode %v, want %v", volume, mode, want)
				}
			}
			must(t, m.Remove(t.Context(), pod.UID))
		})
	}
}
