package volumes

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/mount-utils"
	"k8s.io/utils/ptr"
)

// Both kinds of mounter can be used.
var (
	_ Mounter = mount.Interface(nil)
	_ Mounter = KernelMounter{}
)

func TestEnsureDirs(t *testing.T) {
	root := t.TempDir()
	m := testManager(root, newStore(), nil)
	pod := testPod()
	for range 2 {
		must(t, m.EnsureDirs(t.Context(), pod))
	}
	for _, dir := range []string{"", "volumes", "plugins", "containers/main", "containers/init", "containers/debug"} {
		info, err := os.Stat(filepath.Join(root, "pods/uid-1", dir))
		must(t, err)
		if info.Mode() != fs.ModeDir|0o750 {
			t.Errorf("mode of %q = %v", dir, info.Mode())
		}
	}
	uids, err := m.List(t.Context())
	must(t, err)
	if len(uids) != 1 || uids[0] != "uid-1" {
		t.Errorf("List() = %v", uids)
	}
}

func TestBadNames(t *testing.T) {
	root := t.TempDir()
	write(t, filepath.Join(root, "precious"), "x")
	m := testManager(root, newStore(), nil)
	must(t, os.MkdirAll(filepath.Join(root, "pods"), 0o750))
	for _, uid := range []string{"", ".", "..", "../precious", "a/b", "a\x00b", strings.Repeat("u", 256)} {
		pod := testPod()
		pod.UID = types.UID(uid)
		if err := m.EnsureDirs(t.Context(), pod); err == nil {
			t.Errorf("EnsureDirs with UID %q succeeded", uid)
		}
		if err := m.Remove(t.Context(), pod.UID); err == nil {
			t.Errorf("Remove of UID %q succeeded", uid)
		}
		if _, err := m.Ensure(t.Context(), pod, Dynamic{}); err == nil {
			t.Errorf("Ensure with UID %q succeeded", uid)
		}
		if _, err := m.WriteHosts(pod, nil); err == nil {
			t.Errorf("WriteHosts with UID %q succeeded", uid)
		}
	}
	pod := testPod()
	pod.Spec.Containers[0].Name = "../../x"
	if err := m.EnsureDirs(t.Context(), pod); err == nil {
		t.Error("EnsureDirs with a container name that climbs succeeded")
	}
	if got := read(t, root, "precious"); got != "x" {
		t.Errorf("file outside = %q", got)
	}
}

func TestEnsureDirsRefusesLinks(t *testing.T) {
	root, outside := t.TempDir(), t.TempDir()
	m := testManager(root, newStore(), nil)
	must(t, os.MkdirAll(filepath.Join(root, "pods"), 0o750))
	must(t, os.Symlink(outside, filepath.Join(root, "pods/uid-1")))
	if err := m.EnsureDirs(t.Context(), testPod()); err == nil {
		t.Error("EnsureDirs through a symbolic link succeeded")
	}
	if entries, _ := os.ReadDir(outside); len(entries) > 0 {
		t.Errorf("EnsureDirs wrote outside: %v", entries)
	}
}

// allVolumes returns a pod with a volume of every kind that is supported, and the store that it
// reads.
func allVolumes(hostDir string) (*v1.Pod, *store) {
	objects := newStore()
	objects.setConfigMap("cm", map[string]string{"k1": "v1", "k2": "v2"})
	objects.setSecret("sec", map[string]string{"password": "hunter2"})
	pod := testPod(
		emptyDirVolume("disk", v1.StorageMediumDefault),
		emptyDirVolume("memory", v1.StorageMediumMemory),
		v1.Volume{Name: "host", VolumeSource: v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: hostDir}}},
		configMapVolume("config", "cm"),
		secretVolume("secret", "sec"),
		v1.Volume{
			Name:         "downward",
			VolumeSource: v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: downwardItems()}},
		},
		v1.Volume{
			Name: "projected",
			VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
				{ConfigMap: &v1.ConfigMapProjection{
					LocalObjectReference: v1.LocalObjectReference{Name: "cm"},
					Items:                []v1.KeyToPath{{Key: "k1", Path: "c/one", Mode: ptr.To[int32](0o600)}},
				}},
				{Secret: &v1.SecretProjection{LocalObjectReference: v1.LocalObjectReference{Name: "sec"}}},
				{DownwardAPI: &v1.DownwardAPIProjection{Items: downwardItems()}},
				{ConfigMap: &v1.ConfigMapProjection{
					LocalObjectReference: v1.LocalObjectReference{Name: "none"}, Optional: ptr.To(true),
				}},
			}}},
		},
	)
	return pod, objects
}

func downwardItems() []v1.DownwardAPIVolumeFile {
	return []v1.DownwardAPIVolumeFile{
		{Path: "name", FieldRef: &v1.ObjectFieldSelector{FieldPath: "metadata.name"}},
		{
			Path:             "d/limit",
			ResourceFieldRef: &v1.ResourceFieldSelector{ContainerName: "main", Resource: "limits.cpu"},
			Mode:             ptr.To[int32](0o400),
		},
	}
}

func TestEnsureAllKinds(t *testing.T) {
	needRoot(t)
	root, host := mountDir(t), t.TempDir()
	pod, objects := allVolumes(host)
	pod.Spec.SecurityContext = &v1.PodSecurityContext{FSGroup: ptr.To[int64](4321)}
	mounter := &countingMounter{}
	m := testManager(root, objects, mounter)
	must(t, m.EnsureDirs(t.Context(), pod))
	mounts, err := m.Ensure(t.Context(), pod, Dynamic{})
	must(t, err)
	volumes := filepath.Join(root, "pods/uid-1/volumes")
	want := Mounts{
		"disk":      {HostPath: volumes + "/kubernetes.io~empty-dir/disk", SELinuxRelabel: true},
		"memory":    {HostPath: volumes + "/kubernetes.io~empty-dir/memory", SELinuxRelabel: true},
		"host":      {HostPath: host},
		"config":    {HostPath: volumes + "/kubernetes.io~configmap/config", ReadOnly: true, SELinuxRelabel: true},
		"secret":    {HostPath: volumes + "/kubernetes.io~secret/secret", ReadOnly: true, SELinuxRelabel: true},
		"downward":  {HostPath: volumes + "/kubernetes.io~downward-api/downward", ReadOnly: true, SELinuxRelabel: true},
		"projected": {HostPath: volumes + "/kubernetes.io~projected/projected", ReadOnly: true, SELinuxRelabel: true},
	}
	if !maps.Equal(mounts, want) {
		t.Errorf("mounts = %+v\nwant %+v", mounts, want)
	}
	checkHolds(t, mounts["config"].HostPath, files("k1", "v1", "k2", "v2"))
	checkHolds(t, mounts["secret"].HostPath, files("password", "hunter2"))
	checkHolds(t, mounts["downward"].HostPath, files("name", "pod", "d/limit", "main:limits.cpu"))
	checkHolds(t, mounts["projected"].HostPath,
		files("c/one", "v1", "password", "hunter2", "name", "pod", "d/limit", "main:limits.cpu"))
	for volume, wantTmpfs := range map[string]bool{
		"disk":      false,
		"memory":    true,
		"config":    false,
		"secret":    true,
		"downward":  true,
		"projected": true,
	} {
		if mounted, err := isMountPoint(mounts[volume].HostPath); err != nil || mounted != wantTmpfs {
			t.Errorf("volume %s is mounted: %v, %v", volume, mounted, err)
		}
		var stat unix.Stat_t
		must(t, unix.Stat(mounts[volume].HostPath, &stat))
		mode := uint32(0o2777)
		if wantTmpfs {
			mode = 0o3777 // as the kernel makes the root of a tmpfs
		}
		if stat.Mode&0o7777 != mode || stat.Gid != 4321 {
			t.Errorf("root of volume %s has mode %o and group %d", volume, stat.Mode&0o7777, stat.Gid)
		}
		meta := "plugins/kubernetes.io~empty-dir/" + volume
		if volume != "disk" && volume != "memory" {
			meta = "plugins/kubernetes.io~empty-dir/wrapped_" + volume
		}
		if !exists(filepath.Join(root, "pods/uid-1", meta, "ready")) {
			t.Errorf("no ready file for volume %s", volume)
		}
	}

	// Nothing is done twice, and what containers wrote or changed stays.
	write(t, mounts["disk"].HostPath+"/data", "x")
	must(t, os.Chmod(mounts["disk"].HostPath, 0o700))
	links := dataLinks(t, mounts)
	mounted := mounter.mounts
	_, err = m.Ensure(t.Context(), pod, Dynamic{})
	must(t, err)
	if again := dataLinks(t, mounts); !maps.Equal(links, again) || mounter.mounts != mounted {
		t.Errorf("a second call changed %v to %v, and made %d mounts", links, again, mounter.mounts-mounted)
	}
	if info, err := os.Stat(mounts["disk"].HostPath); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the container's mode of its emptyDir was changed: %v, %v", info.Mode(), err)
	}

	// What was taken away comes back.
	must(t, unix.Unmount(mounts["secret"].HostPath, 0))
	must(t, os.RemoveAll(mounts["config"].HostPath))
	_, err = m.Ensure(t.Context(), pod, Dynamic{})
	must(t, err)
	checkHolds(t, mounts["secret"].HostPath, files("password", "hunter2"))
	checkHolds(t, mounts["config"].HostPath, files("k1", "v1", "k2", "v2"))

	must(t, m.Remove(t.Context(), pod.UID))
	if left, _ := mountsBeneath(root); len(left) > 0 || exists(filepath.Join(root, "pods/uid-1")) {
		t.Errorf("Remove left mounts %v", left)
	}
	if !exists(host) {
		t.Error("Remove deleted the hostPath")
	}
}

func dataLinks(t *testing.T, mounts Mounts) map[string]string {
	t.Helper()
	links := map[string]string{}
	for name, mount := range mounts {
		if mount.ReadOnly {
			target, err := os.Readlink(filepath.Join(mount.HostPath, dataLink))
			must(t, err)
			links[name] = target
		}
	}
	return links
}

func TestEnsureFollowsObjects(t *testing.T) {
	root := t.TempDir()
	objects := newStore()
	pod := testPod(configMapVolume("config", "cm"), emptyDirVolume("disk", ""))
	m := testManager(root, objects, nil)
	must(t, m.EnsureDirs(t.Context(), pod))

	mounts, err := m.Ensure(t.Context(), pod, Dynamic{})
	if !errors.Is(err, ErrNotFound) || errors.Is(err, ErrUnsupported) {
		t.Fatalf("error = %v, want not found", err)
	}
	if want := `MountVolume.SetUp failed for volume "config" : configmap "cm" not found`; err.Error() != want {
		t.Errorf("error = %q, want %q", err, want)
	}
	if _, ok := mounts["disk"]; !ok || len(mounts) != 1 {
		t.Errorf("mounts = %v, want only the emptyDir", mounts)
	}

	objects.setConfigMap("cm", map[string]string{"k": "1", "old": "1"})
	mounts, err = m.Ensure(t.Context(), pod, Dynamic{})
	must(t, err)
	checkHolds(t, mounts["config"].HostPath, files("k", "1", "old", "1"))

	objects.setConfigMap("cm", map[string]string{"k": "2"})
	_, err = m.Ensure(t.Context(), pod, Dynamic{})
	must(t, err)
	checkHolds(t, mounts["config"].HostPath, files("k", "2"))

	// An object that goes away takes nothing away from a running pod.
	delete(objects.configMaps, "ns/cm")
	mounts, err = m.Ensure(t.Context(), pod, Dynamic{})
	if !errors.Is(err, ErrNotFound) {
		t.Errorf("error = %v, want not found", err)
	}
	checkHolds(t, mounts["config"].HostPath, files("k", "2"))
}

func TestEnsureErrors(t *testing.T) {
	objects := newStore()
	objects.setConfigMap("cm", map[string]string{"k": "v"})
	objects.setSecret("sec", map[string]string{"k": "v"})
	objects.setConfigMap("big", map[string]string{"k": strings.Repeat("x", v1.MaxSecretSize+1)})
	objects.setConfigMap("evil", map[string]string{"../../../etc": "x"})
	item := []v1.KeyToPath{{Key: "none", Path: "p"}}
	volume := func(source v1.VolumeSource) v1.Volume { return v1.Volume{Name: "v", VolumeSource: source} }
	ref := func(name string) v1.LocalObjectReference { return v1.LocalObjectReference{Name: name} }
	projected := func(sources ...v1.VolumeProjection) v1.Volume {
		return volume(v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: sources}})
	}
	tests := map[string]struct {
		volume v1.Volume
		want   string
		class  error
	}{
		"secret": {secretVolume("v", "none"), `secret "none" not found`, ErrNotFound},
		"configmap key": {
			volume(v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: ref("cm"), Items: item}}),
			"configmap references non-existent config key: none", ErrNotFound,
		},
		"secret key": {
			volume(v1.VolumeSource{Secret: &v1.SecretVolumeSource{SecretName: "sec", Items: item}}),
			"references non-existent secret key: none", ErrNotFound,
		},
		"projected two": {
			projected(v1.VolumeProjection{ConfigMap: &v1.ConfigMapProjection{LocalObjectReference: ref("x")}},
				v1.VolumeProjection{Secret: &v1.SecretProjection{LocalObjectReference: ref("y")}}),
			`[configmap "x" not found, secret "y" not found]`, ErrNotFound,
		},
		"token": {
			projected(v1.VolumeProjection{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Path: "t"}}),
			"spec.volumes[0].projected.sources[0].serviceAccountToken: tokens need an API server, and static " +
				"pods may " +
				"not use them", ErrUnsupported,
		},
		"trust bundle": {
			projected(v1.VolumeProjection{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{Path: "t"}}),
			"spec.volumes[0].projected.sources[0].clusterTrustBundle: trust bundles need an API server and the feature gate " +
				"ClusterTrustBundleProjection, and static " +
				"pods may not use them", ErrUnsupported,
		},
		"nfs option": {
			volume(v1.VolumeSource{NFS: &v1.NFSVolumeSource{Server: "-o", Path: "/"}}),
			`nfs server "-o" and path "/" name no export`, nil,
		},
		"claim": {
			claimVolume("v", "c"), `error processing PVC ns/c: persistentvolumeclaim "c" not found`, ErrUnprocessed,
		},
		"medium": {
			emptyDirVolume("v", "Tape"), `spec.volumes[0].emptyDir.medium: unknown storage medium "Tape"`,
			ErrUnsupported,
		},
		"git": {
			volume(v1.VolumeSource{GitRepo: &v1.GitRepoVolumeSource{}}),
			"spec.volumes[0].gitRepo: git-repo volume plugin has been disabled: it lets a pod run commands as " +
				"root on " +
				"the node; clone in an init container instead", ErrUnsupported,
		},
		"no source": {
			volume(v1.VolumeSource{}), "spec.volumes[0]: the volume has no source that this release knows",
			ErrUnsupported,
		},
		"too large": {
			configMapVolume("v", "big"), `configmap "big" holds 1048577 bytes, more than the 1048576 that are allowed`,
			nil,
		},
		"climbing key": {configMapVolume("v", "evil"), "invalid path: must not contain '..': ../../../etc", nil},
		"climbing item": {
			volume(v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{
				LocalObjectReference: ref("cm"), Items: []v1.KeyToPath{{Key: "k", Path: "a/../../x"}},
			}}), "invalid path: must not contain '..': ../x", nil,
		},
		"downward field": {
			volume(v1.VolumeSource{DownwardAPI: &v1.DownwardAPIVolumeSource{Items: []v1.DownwardAPIVolumeFile{{
				Path: "p", FieldRef: &v1.ObjectFieldSelector{FieldPath: "no"},
			}}}}), "unsupported fieldPath: no", nil,
		},
		"host path": {
			volume(v1.VolumeSource{HostPath: &v1.HostPathVolumeSource{Path: "/a/../b"}}),
			"invalid HostPath `/a/../b`: must not contain '..'", nil,
		},
		"name that climbs": {
			v1.Volume{Name: "../x", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
			`volume name "../x" cannot be a file name`, nil,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			m := testManager(root, objects, mount.NewFakeMounter(nil))
			pod := testPod(test.volume)
			must(t, m.EnsureDirs(t.Context(), pod))
			mounts, err := m.Ensure(t.Context(), pod, Dynamic{})
			failures := Failures(err)
			if len(failures) != 1 || failures[0].Err.Error() != test.want || len(mounts) > 0 {
				t.Fatalf("failures = %v, mounts = %v, want %q", failures, mounts, test.want)
			}
			for _, class := range []error{ErrNotFound, ErrUnsupported, ErrUnprocessed} {
				if errors.Is(err, class) != errors.Is(test.class, class) {
					t.Errorf("error is %v: %v", class, errors.Is(err, class))
				}
			}
			must(t, m.Remove(t.Context(), pod.UID))
		})
	}
}

func TestEnsureOptional(t *testing.T) {
	objects := newStore()
	objects.setConfigMap("cm", map[string]string{"k": "v"})
	optional := configMapVolume("missing", "none")
	optional.ConfigMap.Optional = ptr.To(true)
	key := configMapVolume("key", "cm")
	key.ConfigMap.Optional = ptr.To(true)
	key.ConfigMap.Items = []v1.KeyToPath{{Key: "none", Path: "p"}, {Key: "k", Path: "q", Mode: ptr.To[int32](0o400)}}
	key.ConfigMap.DefaultMode = ptr.To[int32](0o777)
	pod := testPod(optional, key)
	m := testManager(t.TempDir(), objects, nil)
	must(t, m.EnsureDirs(t.Context(), pod))
	mounts, err := m.Ensure(t.Context(), pod, Dynamic{})
	must(t, err)
	checkHolds(t, mounts["missing"].HostPath, files())
	checkHolds(t, mounts["key"].HostPath, files("q", "v"))
	if info, err := os.Stat(mounts["key"].HostPath + "/q"); err != nil || info.Mode() != 0o400 {
		t.Errorf("mode = %v, %v", info.Mode(), err)
	}
}

func TestEnsureCancelled(t *testing.T) {
	m := testManager(t.TempDir(), newStore(), nil)
	pod := testPod(emptyDirVolume("a", ""))
	must(t, m.EnsureDirs(t.Context(), pod))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := m.Ensure(ctx, pod, Dynamic{}); !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v", err)
	}
}

func TestSecretNeverOnDisk(t *testing.T) {
	objects := newStore()
	objects.setSecret("sec", map[string]string{"k": "v"})
	m := testManager(t.TempDir(), objects, failingMounter{})
	pod := testPod(secretVolume("secret", "sec"))
	must(t, m.EnsureDirs(t.Context(), pod))
	mounts, err := m.Ensure(t.Context(), pod, Dynamic{})
	if err == nil || len(mounts) > 0 {
		t.Fatalf("Ensure without a tmpfs = %v, %v", mounts, err)
	}
	if entries, _ := os.ReadDir(filepath.Join(m.PodDir(pod.UID),
		"volumes/kubernetes.io~secret/secret")); len(entries) > 0 {
		t.Errorf("the secret was written to disk: %v", entries)
	}
}

// failingMounter mounts nothing.
type failingMounter struct{ KernelMounter }

func (failingMounter) MountSensitiveWithoutSystemdWithMountFlags(_, target, _ string, _, _, _ []string) error {
	return &fs.PathError{Op: "mount", Path: target, Err: unix.EPERM}
}

func TestMemorySize(t *testing.T) {
	node := v1.ResourceList{v1.ResourceMemory: resource.MustParse("8Gi")}
	limit := func(q string) v1.ResourceRequirements {
		return v1.ResourceRequirements{Limits: v1.ResourceList{v1.ResourceMemory: resource.MustParse(q)}}
	}
	size := func(q string) *v1.EmptyDirVolumeSource {
		return &v1.EmptyDirVolumeSource{SizeLimit: ptr.To(resource.MustParse(q))}
	}
	spec := func(own *v1.ResourceRequirements, containers ...v1.ResourceRequirements) *v1.Pod {
		pod := &v1.Pod{Spec: v1.PodSpec{Resources: own}}
		for _, c := range containers {
			pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{Resources: c})
		}
		return pod
	}
	const mi = 1 << 20
	tests := map[string]struct {
		pod    *v1.Pod
		source *v1.EmptyDirVolumeSource
		node   v1.ResourceList
		want   int64
	}{
		"node":                     {spec(nil, v1.ResourceRequirements{}), nil, node, 8192 * mi},
		"nothing known":            {spec(nil), nil, nil, 0},
		"own limit":                {spec(nil, v1.ResourceRequirements{}), size("5Mi"), node, 5 * mi},
		"own limit above the node": {spec(nil), size("10Gi"), node, 8192 * mi},
		"zero is no limit":         {spec(nil), size("0"), node, 8192 * mi},
		"containers":               {spec(nil, limit("3Mi"), limit("4Mi")), nil, node, 7 * mi},
		"own below containers":     {spec(nil, limit("3Mi"), limit("4Mi")), size("1Mi"), node, mi},
		"one without a limit":      {spec(nil, limit("3Mi"), v1.ResourceRequirements{}), nil, node, 8192 * mi},
		"pod level":                {spec(ptr.To(limit("9Mi")), v1.ResourceRequirements{}), nil, node, 9 * mi},
		"own without a node":       {spec(nil), size("5Mi"), nil, 5 * mi},
	}
	for name, test := range tests {
		if got := memorySize(test.pod, test.source, test.node); got != test.want {
			t.Errorf("%s: size = %d, want %d", name, got, test.want)
		}
	}
}

func TestMemorySizeIsMounted(t *testing.T) {
	needRoot(t)
	root := mountDir(t)
	volume := emptyDirVolume("v", v1.StorageMediumMemory)
	volume.EmptyDir.SizeLimit = ptr.To(resource.MustParse("64Ki"))
	pod := testPod(volume)
	m := testManager(root, newStore(), nil)
	must(t, m.EnsureDirs(t.Context(), pod))
	mounts, err := m.Ensure(t.Context(), pod, Dynamic{})
	must(t, err)
	err = os.WriteFile(mounts["v"].HostPath+"/big", make([]byte, 1<<20), 0o644)
	if !errors.Is(err, unix.ENOSPC) {
		t.Errorf("writing more than the limit: %v", err)
	}
}

func TestNestedMountPoints(t *testing.T) {
	container := func(mounts ...string) v1.Container {
		var c v1.Container
		for i := 0; i < len(mounts); i += 2 {
			c.VolumeMounts = append(c.VolumeMounts, v1.VolumeMount{Name: mounts[i], MountPath: mounts[i+1]})
		}
		return c
	}
	tests := map[string]struct {
		containers []v1.Container
		want       []string
	}{
		"none":        {[]v1.Container{container("v", "/dir", "o", "/other")}, nil},
		"one":         {[]v1.Container{container("v", "/dir", "o", "/dir/in")}, []string{"in"}},
		"prefix only": {[]v1.Container{container("v", "/dir", "o", "/dir2/in")}, nil},
		"outermost": {
			[]v1.Container{container("o", "/dir/in/deep", "v", "/dir/", "p", "/dir/in", "q", "/dir/in.x")},
			[]string{"in", "in.x"},
		},
		"in other containers": {[]v1.Container{container("v", "/dir"), container("o", "/dir/in")}, nil},
		"two containers": {
			[]v1.Container{container("v", "/a", "o", "/a/x"), container("v", "/b", "o", "/b/y")}, []string{"x", "y"},
		},
		"root":     {[]v1.Container{container("v", "/", "o", "/in")}, []string{"in"}},
		"climbing": {[]v1.Container{container("v", "/dir", "o", "/dir/../../in")}, nil},
	}
	for name, test := range tests {
		if got := nestedMountPoints(&v1.PodSpec{InitContainers: test.containers}, "v"); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// TestManyNestedMountPoints checks that what a pod can name costs in proportion to its size: each
// mount of the volume has every other one in it.
func TestManyNestedMountPoints(t *testing.T) {
	const n = 8000
	var c v1.Container
	for i := range n {
		c.VolumeMounts = append(c.VolumeMounts,
			v1.VolumeMount{Name: "v", MountPath: "/a" + strings.Repeat("/", i%50) + strings.Repeat("/.", i/50)},
			v1.VolumeMount{Name: "o", MountPath: "/a/" + strconv.Itoa(i)})
	}
	spec := &v1.PodSpec{Containers: []v1.Container{c}}
	var got []string
	if allocated := testing.AllocsPerRun(1, func() { got = nestedMountPoints(spec, "v") }); allocated > 10*n {
		t.Errorf("%.0f allocations for %d mounts", allocated, 2*n)
	}
	if len(got) != n {
		t.Errorf("%d mount points, want %d", len(got), n)
	}
}

func TestEnsureMakesNestedMountPoints(t *testing.T) {
	objects := newStore()
	objects.setConfigMap("cm", map[string]string{"k": "v"})
	volume := configMapVolume("v", "cm")
	volume.ConfigMap.Items = []v1.KeyToPath{{Key: "k", Path: "d/k"}, {Key: "k", Path: "file"}}
	pod := testPod(volume)
	pod.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{
		{Name: "v", MountPath: "/etc/cfg"},
		{Name: "a", MountPath: "/etc/cfg/x/y"},
		{Name: "b", MountPath: "/etc/cfg/d/in"},
		{Name: "c", MountPath: "/etc/cfg/file"},
	}
	m := testManager(t.TempDir(), objects, nil)
	must(t, m.EnsureDirs(t.Context(), pod))
	for range 2 {
		mounts, err := m.Ensure(t.Context(), pod, Dynamic{})
		must(t, err)
		checkHolds(t, mounts["v"].HostPath, files("d/k", "v", "file", "v"))
		for _, dir := range []string{"x/y", "d/in"} {
			if info, err := os.Stat(filepath.Join(mounts["v"].HostPath, dir)); err != nil || !info.IsDir() {
				t.Errorf("mount point %s: %v", dir, err)
			}
		}
	}
	pod.Spec.Containers[0].VolumeMounts[1].MountPath = "/etc/cfg/..data"
	if _, err := m.Ensure(t.Context(), pod, Dynamic{}); err == nil {
		t.Error("a mount point over the writer's own link was accepted")
	}
}

// What an object holds that cannot be known now is neither missing, also where it is optional, nor
// taken away from a pod that has it.
func TestObjectsThatCannotBeKnownNow(t *testing.T) {
	objects := newStore()
	objects.setConfigMap("cm", map[string]string{"k": "1"})
	optional := true
	pod := testPod(configMapVolume("config", "cm"), v1.Volume{Name: "more", VolumeSource: v1.VolumeSource{
		ConfigMap: &v1.ConfigMapVolumeSource{
			LocalObjectReference: v1.LocalObjectReference{Name: "cm"}, Optional: &optional,
		},
	}})
	for _, c := range []struct {
		name     string
		err      error
		underWay bool
	}{
		{"refused", errors.New(`configmaps "cm" is forbidden`), false},
		{"on its way", fmt.Errorf("%w: configmap ns/cm", ErrUnderWay), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			objects.err = c.err
			m := testManager(t.TempDir(), objects, nil)
			must(t, m.EnsureDirs(t.Context(), pod))
			mounts, err := m.Ensure(t.Context(), pod, Dynamic{})
			if len(mounts) != 0 || len(Failures(err)) != 2 || errors.Is(err, ErrNotFound) ||
				errors.Is(err, ErrUnderWay) != c.underWay || !errors.Is(err, c.err) {
				t.Errorf("new pod: %v, %v", mounts, err)
			}
			objects.err = nil
			_, err = m.Ensure(t.Context(), pod, Dynamic{})
			must(t, err)
			objects.err = c.err
			mounts, err = m.Ensure(t.Context(), pod, Dynamic{})
			if len(mounts) != 2 || len(Failures(err)) != 2 {
				t.Errorf("pod that has them: %v, %v", mounts, err)
			}
			checkHolds(t, mounts["config"].HostPath, files("k", "1"))
		})
	}
}

// A volume that no container uses is not brought up, as with a kubelet: what it needs may never
// come.
func TestUnusedVolume(t *testing.T) {
	m := testManager(t.TempDir(), newStore(), nil)
	pod := testPod(configMapVolume("missing", "none"), emptyDirVolume("disk", ""))
	main := &pod.Spec.Containers[0]
	main.VolumeMounts = main.VolumeMounts[1:]
	must(t, m.EnsureDirs(t.Context(), pod))
	mounts, err := m.Ensure(t.Context(), pod, Dynamic{})
	if len(mounts) != 1 || err != nil {
		t.Errorf("mounts %v, %v", mounts, err)
	}
	debug := &pod.Spec.EphemeralContainers[0]
	debug.VolumeMounts = []v1.VolumeMount{{Name: "missing", MountPath: "/m"}}
	if _, err := m.Ensure(t.Context(), pod, Dynamic{}); !errors.Is(err, ErrNotFound) {
		t.Errorf("used by an ephemeral container: %v", err)
	}
	must(t, m.Remove(t.Context(), pod.UID))
}
