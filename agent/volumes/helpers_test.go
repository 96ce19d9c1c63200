package volumes

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// needRoot skips a test that mounts or changes owners.
func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts file systems and changes owners")
	}
}

// mountDir returns a temporary directory; whatever is still mounted in it at the end is unmounted,
// before it is deleted.
func mountDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 8 {
			mounts, err := mountsBeneath(dir)
			if err != nil {
				t.Errorf("read mount table: %v", err)
			}
			for _, mount := range mounts {
				_ = unix.Unmount(mount, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
			}
			if len(mounts) == 0 {
				return
			}
		}
		t.Errorf("mounts are left beneath %s", dir)
	})
	return dir
}

func mustMount(t *testing.T, source, target, fstype string, options ...string) {
	t.Helper()
	if err := (KernelMounter{}).MountSensitiveWithoutSystemdWithMountFlags(source, target, fstype, options,
		nil, nil); err != nil {
		t.Fatal(err)
	}
}

// store is an Objects of fixed objects, by namespace/name.
type store struct {
	configMaps map[string]*v1.ConfigMap
	secrets    map[string]*v1.Secret
	err        error
}

func newStore() *store {
	return &store{configMaps: map[string]*v1.ConfigMap{}, secrets: map[string]*v1.Secret{}}
}

func (s *store) ConfigMap(pod *v1.Pod, name string) (*v1.ConfigMap, error) {
	return s.configMaps[pod.Namespace+"/"+name], s.err
}

func (s *store) Secret(pod *v1.Pod, name string) (*v1.Secret, error) {
	return s.secrets[pod.Namespace+"/"+name], s.err
}

func (s *store) setConfigMap(name string, data map[string]string) {
	s.configMaps["ns/"+name] = &v1.ConfigMap{Data: data}
}

func (s *store) setSecret(name string, data map[string]string) {
	secret := &v1.Secret{Data: map[string][]byte{}}
	for key, value := range data {
		secret.Data[key] = []byte(value)
	}
	s.secrets["ns/"+name] = secret
}

// countingMounter counts mounts and unmounts, and lets none of them fail silently.
type countingMounter struct {
	KernelMounter
	mounts, unmounts int
}

func (c *countingMounter) MountSensitiveWithoutSystemdWithMountFlags(
	source, target, fstype string, options, sensitive, flags []string,
) error {
	err := c.KernelMounter.MountSensitiveWithoutSystemdWithMountFlags(source, target, fstype, options, sensitive, flags)
	if err == nil {
		c.mounts++
	}
	return err
}

func (c *countingMounter) Unmount(target string) error {
	c.unmounts++
	return c.KernelMounter.Unmount(target)
}

// stubbornMounter never unmounts.
type stubbornMounter struct{ KernelMounter }

func (stubbornMounter) Unmount(target string) error {
	return &fs.PathError{Op: "unmount", Path: target, Err: unix.EBUSY}
}

func (stubbornMounter) Detach(target string) error {
	return &fs.PathError{Op: "detach", Path: target, Err: unix.EPERM}
}

// gidOf returns the group of a file.
func gidOf(t *testing.T, path string) uint32 {
	t.Helper()
	var stat unix.Stat_t
	must(t, unix.Lstat(path, &stat))
	return stat.Gid
}

func fixedNow() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

func testManager(root string, objects Objects, mounter Mounter) *Manager {
	return New(Config{RootDir: root}, Deps{
		Mounter: mounter,
		Objects: objects,
		Now:     fixedNow,
		FieldValue: func(pod *v1.Pod, ref *v1.ObjectFieldSelector, dynamic Dynamic) (string, error) {
			switch ref.FieldPath {
			case "metadata.name":
				return pod.Name, nil
			case "status.podIP":
				return dynamic.PodIPs[0], nil
			}
			return "", fmt.Errorf("unsupported fieldPath: %s", ref.FieldPath)
		},
		ResourceValue: func(_ *v1.Pod, ref *v1.ResourceFieldSelector) (string, error) {
			return ref.ContainerName + ":" + ref.Resource, nil
		},
	})
}

// testPod has a container of each kind; the app container mounts all volumes.
func testPod(volumes ...v1.Volume) *v1.Pod {
	main := v1.Container{Name: "main"}
	for i := range volumes {
		main.VolumeMounts = append(main.VolumeMounts,
			v1.VolumeMount{Name: volumes[i].Name, MountPath: "/" + volumes[i].Name})
	}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod", UID: types.UID("uid-1")},
		Spec: v1.PodSpec{
			InitContainers: []v1.Container{{Name: "init"}},
			Containers:     []v1.Container{main},
			EphemeralContainers: []v1.EphemeralContainer{
				{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "debug"}},
			},
			Volumes: volumes,
		},
	}
}

func configMapVolume(name, object string) v1.Volume {
	return v1.Volume{
		Name: name,
		VolumeSource: v1.VolumeSource{
			ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: object}},
		},
	}
}

func secretVolume(name, object string) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: object}}}
}

func emptyDirVolume(name string, medium v1.StorageMedium) v1.Volume {
	return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{Medium: medium}}}
}

func claimVolume(name, claim string) v1.Volume {
	return v1.Volume{
		Name:         name,
		VolumeSource: v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: claim}},
	}
}

func read(t *testing.T, parts ...string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(parts...))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func write(t *testing.T, path, data string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
