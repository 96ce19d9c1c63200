package cgroups

import (
	"fmt"
	"path"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/kubernetes/pkg/apis/core/v1/helper/qos"
)

// Driver says who makes cgroups.
type Driver string

// The drivers, spelt as in KubeletConfiguration.cgroupDriver.
const (
	// Cgroupfs makes directories in the cgroup file systems.
	Cgroupfs Driver = "cgroupfs"
	// Systemd asks systemd for slices.
	Systemd Driver = "systemd"
)

const (
	podsName    = "kubepods"
	podPrefix   = "pod"
	sliceSuffix = ".slice"
)

// QOSClasses are all quality-of-service classes, in the order in which a pod's cgroup is looked for.
func QOSClasses() []corev1.PodQOSClass {
	return []corev1.PodQOSClass{corev1.PodQOSBurstable, corev1.PodQOSBestEffort, corev1.PodQOSGuaranteed}
}

// QOSClass returns a pod's quality-of-service class: the one in its status, else the one its requests and limits give.
func QOSClass(pod *corev1.Pod) corev1.PodQOSClass { return qos.GetPodQOS(pod) }

// Layout names cgroups. All paths begin with "/" and are relative to the mount point of a cgroup file system.
type Layout struct {
	Driver Driver
	// Root is the cgroup below which all pods live, as a cgroupfs path: "", "/" or "/a/b". With the systemd driver "/a/b"
	// is the slice a-b.slice; it may also be written "/a.slice/a-b.slice".
	Root string
}

// Validate checks the driver and the root.
func (l Layout) Validate() error {
	if l.Driver != Cgroupfs && l.Driver != Systemd {
		return fmt.Errorf("cgroup driver %q is not known: must be %q or %q", l.Driver, Cgroupfs, Systemd)
	}
	for _, part := range l.rootParts() {
		if part == "." || part == ".." || strings.ContainsAny(part, "\x00\n") {
			return fmt.Errorf("cgroup root %q must not contain %q", l.Root, part)
		}
		if l.Driver == Systemd && strings.Contains(part, "_") {
			return fmt.Errorf("cgroup root %q must not contain \"_\" with the systemd driver, which writes \"-\" that way", l.Root)
		}
	}
	return nil
}

// RootPath returns the path of the cgroup below which all pods live, "/" for the top.
func (l Layout) RootPath() string { return l.path(l.rootParts()) }

// PodsPath returns the path of the cgroup of all pods.
func (l Layout) PodsPath() string { return l.path(l.classParts(corev1.PodQOSGuaranteed)) }

// ClassPath returns the path of the cgroup that holds the pods of a class. Guaranteed pods are held by [Layout.PodsPath].
func (l Layout) ClassPath(class corev1.PodQOSClass) string { return l.path(l.classParts(class)) }

// PodPath returns the path of a pod's cgroup. It is also what the runtime is told as the sandbox's cgroup parent, with
// both drivers.
func (l Layout) PodPath(uid types.UID, class corev1.PodQOSClass) string {
	return l.path(append(l.classParts(class), podPrefix+string(uid)))
}

// PodUID returns the pod whose cgroup has this name in the cgroup of a class, and false where it is no pod's.
func (l Layout) PodUID(class corev1.PodQOSClass, name string) (types.UID, bool) {
	rest := name
	if l.Driver == Systemd {
		var ok bool
		rest, ok = strings.CutPrefix(name, strings.TrimSuffix(path.Base(l.ClassPath(class)), sliceSuffix)+"-")
		if !ok {
			return "", false
		}
		if rest, ok = strings.CutSuffix(rest, sliceSuffix); !ok || strings.Contains(rest, "-") {
			return "", false
		}
		rest = strings.ReplaceAll(rest, "_", "-")
	}
	uid, ok := strings.CutPrefix(rest, podPrefix)
	return types.UID(uid), ok && validUID(types.UID(uid)) == nil
}

// validUID refuses what would name another directory than the pod's own.
func validUID(uid types.UID) error {
	if uid == "" || len(uid) > 200 || strings.ContainsAny(string(uid), "/_\x00\n") || strings.Contains(string(uid), "..") {
		return fmt.Errorf("pod UID %q cannot name a cgroup", uid)
	}
	return nil
}

// rootParts splits the root into the names a systemd slice is made of, or into directories.
func (l Layout) rootParts() []string {
	clean := strings.Trim(l.Root, "/")
	if clean == "" {
		return nil
	}
	if last := path.Base(clean); l.Driver == Systemd && strings.HasSuffix(last, sliceSuffix) {
		parts := strings.Split(strings.TrimSuffix(last, sliceSuffix), "-")
		for i := range parts {
			parts[i] = strings.ReplaceAll(parts[i], "_", "-")
		}
		return parts
	}
	return strings.Split(clean, "/")
}

func (l Layout) classParts(class corev1.PodQOSClass) []string {
	parts := append(l.rootParts(), podsName)
	if class == corev1.PodQOSGuaranteed {
		return parts
	}
	return append(parts, strings.ToLower(string(class)))
}

// path joins the names. A systemd slice carries the names of all slices above it, joined with "-", so a "-" within a name
// is written "_": a, b-c is /a.slice/a-b_c.slice.
func (l Layout) path(parts []string) string {
	if l.Driver != Systemd {
		return "/" + path.Join(parts...)
	}
	full, name := "/", ""
	for i, part := range parts {
		if i > 0 {
			name += "-"
		}
		name += strings.ReplaceAll(part, "-", "_")
		full = path.Join(full, name+sliceSuffix)
	}
	return full
}
