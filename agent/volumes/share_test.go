package volumes

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
)

// mountSilent mounts a file system that does not answer until the test ends.
func mountSilent(t *testing.T, target string) {
	t.Helper()
	fuse, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("the kernel has no FUSE: %v", err)
	}
	t.Cleanup(func() { _ = unix.Close(fuse) }) // which ends all that waits
	must(t, os.MkdirAll(target, 0o755))
	mustMount(t, "silent", target, "fuse", fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fuse))
}

// A server that does not answer does not hold up a pod whose container wants mount propagation.
func TestShareOfASilentServer(t *testing.T) {
	needRoot(t)
	m := testManager(mountDir(t), newStore(), nil)
	pod := testPod(nfsVolume("server", "/export", false))
	pod.Spec.Containers[0].VolumeMounts[0].MountPropagation = new(v1.MountPropagationHostToContainer)
	must(t, m.EnsureDirs(t.Context(), pod))
	mountSilent(t, m.PodDir(pod.UID)+"/volumes/kubernetes.io~nfs/v")
	done := make(chan error, 1)
	go func() {
		_, err := m.Ensure(t.Context(), pod, Dynamic{})
		done <- err
	}()
	select {
	case err := <-done:
		must(t, err)
	case <-time.After(5 * time.Minute):
		t.Error("Ensure waits for the server")
	}
}

// What the node mounts inside a volume while a pod has a part of it also appears in the pod's
// directory, if mounts are shared. It stays on the node when the pod goes.
func TestRemoveKeepsMountsOfTheNode(t *testing.T) {
	needRoot(t)
	root, host := mountDir(t), mountDir(t)
	mustMount(t, "tmpfs", host, "tmpfs")
	must(t, unix.Mount("", host, "", unix.MS_SHARED, ""))
	must(t, os.MkdirAll(host+"/data/disk", 0o755))
	m := testManager(root, newStore(), nil)
	pod := testPod()
	must(t, m.EnsureDirs(t.Context(), pod))
	part, err := m.SubPath(t.Context(), pod.UID,
		SubPathMount{Container: "main", Volume: "v", VolumePath: host, Path: "data"})
	must(t, err)
	mustMount(t, "tmpfs", host+"/data/disk", "tmpfs")
	write(t, host+"/data/disk/precious", "x")
	if !exists(part + "/disk/precious") {
		t.Fatal("the mount does not appear in the pod's directory")
	}
	must(t, m.Remove(t.Context(), pod.UID))
	if !exists(host + "/data/disk/precious") {
		t.Error("Remove unmounted what the node has mounted")
	}
	if exists(filepath.Join(root, "pods/uid-1")) {
		t.Error("the pod's directory is still there")
	}
}

// The same for a subPath that is mounted again because the volume has changed.
func TestSubPathKeepsMountsOfTheNode(t *testing.T) {
	needRoot(t)
	root, host := mountDir(t), mountDir(t)
	mustMount(t, "tmpfs", host, "tmpfs")
	must(t, unix.Mount("", host, "", unix.MS_SHARED, ""))
	must(t, os.MkdirAll(host+"/old/disk", 0o755))
	must(t, os.MkdirAll(host+"/new", 0o755))
	must(t, os.Symlink("old", host+"/data"))
	m := testManager(root, newStore(), nil)
	pod := testPod()
	must(t, m.EnsureDirs(t.Context(), pod))
	subPath := SubPathMount{Container: "main", Volume: "v", VolumePath: host, Path: "data"}
	_, err := m.SubPath(t.Context(), pod.UID, subPath)
	must(t, err)
	mustMount(t, "tmpfs", host+"/old/disk", "tmpfs")
	write(t, host+"/old/disk/precious", "x")
	must(t, os.Remove(host+"/data"))
	must(t, os.Symlink("new", host+"/data"))
	_, err = m.SubPath(t.Context(), pod.UID, subPath)
	must(t, err)
	if !exists(host + "/old/disk/precious") {
		t.Error("SubPath unmounted what the node has mounted")
	}
}
