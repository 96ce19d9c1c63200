package cgroups

import (
	"path"
	"testing"

	"github.com/opencontainers/cgroups/systemd"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestLayout(t *testing.T) {
	const uid = "1234-abcd-56"
	for _, test := range []struct {
		layout           Layout
		root, burstable  string
		guaranteed, best string
	}{
		{
			Layout{Cgroupfs, ""},
			"/", "/kubepods/burstable", "/kubepods/pod1234-abcd-56",
			"/kubepods/besteffort/pod1234-abcd-56",
		},
		{
			Layout{Cgroupfs, "/"},
			"/", "/kubepods/burstable", "/kubepods/pod1234-abcd-56",
			"/kubepods/besteffort/pod1234-abcd-56",
		},
		{
			Layout{Cgroupfs, "/a_b/c"},
			"/a_b/c", "/a_b/c/kubepods/burstable", "/a_b/c/kubepods/pod1234-abcd-56",
			"/a_b/c/kubepods/besteffort/pod1234-abcd-56",
		},
		{
			Layout{Systemd, "/"},
			"/", "/kubepods.slice/kubepods-burstable.slice",
			"/kubepods.slice/kubepods-pod1234_abcd_56.slice",
			"/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod1234_abcd_56.slice",
		},
		{
			Layout{Systemd, "/berth-1/x"},
			"/berth_1.slice/berth_1-x.slice",
			"/berth_1.slice/berth_1-x.slice/berth_1-x-kubepods.slice/berth_1-x-kubepods-burstable.slice",
			"/berth_1.slice/berth_1-x.slice/berth_1-x-kubepods.slice/berth_1-x-kubepods-pod1234_abcd_56.slice",
			"/berth_1.slice/berth_1-x.slice/berth_1-x-kubepods.slice/berth_1-x-kubepods-besteffort.slice/" +
				"berth_1-x-kubepods-besteffort-pod1234_abcd_56.slice",
		},
		{
			Layout{Systemd, "/a.slice/a-b_c.slice"},
			"/a.slice/a-b_c.slice", "/a.slice/a-b_c.slice/a-b_c-kubepods.slice/a-b_c-kubepods-burstable.slice",
			"/a.slice/a-b_c.slice/a-b_c-kubepods.slice/a-b_c-kubepods-pod1234_abcd_56.slice",
			"/a.slice/a-b_c.slice/a-b_c-kubepods.slice/a-b_c-kubepods-besteffort.slice/" +
				"a-b_c-kubepods-besteffort-pod1234_abcd_56.slice",
		},
	} {
		l := test.layout
		for what, pair := range map[string][2]string{
			"root":       {l.RootPath(), test.root},
			"burstable":  {l.ClassPath(corev1.PodQOSBurstable), test.burstable},
			"guaranteed": {l.PodPath(uid, corev1.PodQOSGuaranteed), test.guaranteed},
			"besteffort": {l.PodPath(uid, corev1.PodQOSBestEffort), test.best},
		} {
			if pair[0] != pair[1] {
				t.Errorf("%+v: %s is %s, want %s", l, what, pair[0], pair[1])
			}
		}
		for _, class := range QOSClasses() {
			dir := l.PodPath(uid, class)
			name := dir[len(l.ClassPath(class))+1:]
			if got, ok := l.PodUID(class, name); !ok || got != uid {
				t.Errorf("%+v: %s of %s reads back as %q, %t", l, name, class, got, ok)
			}
		}
	}
}

// TestSlicesAreSystemds compares the paths of slices with what the runtime's library makes of their
// names.
func TestSlicesAreSystemds(t *testing.T) {
	for _, root := range []string{"/", "/a", "/a/b-c", "/x.slice"} {
		l := Layout{Driver: Systemd, Root: root}
		for _, p := range []string{
			l.PodsPath(), l.ClassPath(corev1.PodQOSBestEffort), l.PodPath("1-2", corev1.PodQOSBurstable),
		} {
			if want, err := systemd.ExpandSlice(path.Base(p)); err != nil || p != want {
				t.Errorf("%s, want %s, %v", p, want, err)
			}
		}
	}
}

func TestNamesThatAreNoPods(t *testing.T) {
	for _, test := range []struct {
		driver Driver
		class  corev1.PodQOSClass
		name   string
	}{
		{Cgroupfs, corev1.PodQOSGuaranteed, "burstable"},
		{Cgroupfs, corev1.PodQOSGuaranteed, "pod"},
		{Cgroupfs, corev1.PodQOSGuaranteed, "cgroup.procs"},
		{Systemd, corev1.PodQOSGuaranteed, "kubepods-burstable.slice"},
		{Systemd, corev1.PodQOSGuaranteed, "kubepods-pod1.scope"},
		{Systemd, corev1.PodQOSGuaranteed, "kubepods-burstable-pod1.slice"},
		{Systemd, corev1.PodQOSBurstable, "kubepods-pod1.slice"},
		{Systemd, corev1.PodQOSBurstable, "kubepods-burstable-pod.slice"},
	} {
		if uid, ok := (Layout{Driver: test.driver}).PodUID(test.class, test.name); ok {
			t.Errorf("%s of %s reads as pod %q", test.name, test.class, uid)
		}
	}
}

func TestLayoutsThatAreRefused(t *testing.T) {
	for _, l := range []Layout{
		{"", "/"}, {"docker", "/"}, {Cgroupfs, "/a/../b"}, {Cgroupfs, "./x"}, {Systemd, "/a_b"}, {Cgroupfs, "/a\nb"},
	} {
		if err := l.Validate(); err == nil {
			t.Errorf("%+v is accepted", l)
		}
	}
	for _, uid := range []types.UID{"", "..", "a/b", "../x", "a_b", "x\n"} {
		if err := validUID(uid); err == nil {
			t.Errorf("UID %q is accepted", uid)
		}
	}
}
