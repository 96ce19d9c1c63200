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

// The drivers, spelled as in KubeletConfiguration.cgroupDriver.
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

// QOSClasses returns all quality-of-service classes. RemovePod looks for a pod's cgroup in this
// order.
func QOSClasses() []corev1.PodQOSClass {
	return []corev1.PodQOSClass{corev1.PodQOSBurstable, corev1.PodQOSBestEffort, corev1.PodQOSGuaranteed}
}

// QOSClass returns a pod's quality-of-service class: from the pod's status, or else from its
// requests and limits.
func QOSClass(pod *corev1.Pod) corev1.PodQOSClass { return qos.GetPodQOS(pod) }

// Layout names cgroups. All paths begin with "/" and are relative to the mount point of a cgroup
// file system.
type Layout struct {
	Driver Driver
	// Root is the cgroup that holds all pods, as a cgroupfs path: "", "/" or "/a/b". With the
	// systemd driver "/a/b" is the slice a-b.slice; "/a.slice/a-b.slice" means the same.
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
			return fmt.Errorf(
				"cgroup root %q must not contain \"_\" with the systemd driver, which writes \"-\" that way", l.Root)
		}
	}
	return nil
}

// RootPath returns the path of the cgroup that holds all pods, "/" for the top.
func (l Layout) RootPath() string { return l.path(l.rootParts()) }

// PodsPath returns the path of the cgroup of all pods.
func (l Layout) PodsPath() string { return l.path(l.classParts(corev1.PodQOSGuaranteed)) }

// ClassPath returns the path of the cgroup that holds the pods of a class. [Layout.PodsPath] holds
// Guaranteed pods.
func (l Layout) ClassPath(class corev1.PodQOSClass) string { return l.path(l.classParts(class)) }

// PodPath returns the path of a pod's cgroup. With both drivers this is also the cgroup parent that
// the runtime gets for the sandbox.
func (l Layout) PodPath(uid types.UID, class corev1.PodQOSClass) string {
	return l.path(append(l.classParts(class), podPrefix+string(uid)))
}

// PodUID returns the UID of the pod whose cgroup has this name in the cgroup of a class. It returns
// false if the name is not that of a pod's cgroup.
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

// validUID refuses a UID that would name a directory other than the pod's own.
func validUID(uid types.UID) error {
	if uid == "" || len(uid) > 200 || strings.ContainsAny(string(uid), "/_\x00\n") ||
		strings.Contains(string(uid), "..") {
		return fmt.Errorf("pod UID %q cannot name a cgroup", uid)
	}
	return nil
}

// rootParts splits the root into directories, or into the names that make up a systemd slice.
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

// path joins the names. The name of a systemd slice contains the names of all slices above it,
// joined with "-". A "-" within a name is therefore written as "_": a, b-c becomes
// /a.slice/a-b_c.slice.
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
