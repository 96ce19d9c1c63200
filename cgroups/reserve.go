package cgroups

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/opencontainers/cgroups/manager"
	corev1 "k8s.io/api/core/v1"
)

// Reservation is what a cgroup outside of the pods' cgroup has for its own processes. The cgroup is
// made and filled by somebody else, for example by systemd (system.slice).
type Reservation struct {
	// Cgroup names the cgroup, in the form of [Layout.Root].
	Cgroup string
	// Resources are the amounts: cpu, memory and pid.
	Resources corev1.ResourceList
	// Compressible says that only the weight for cpu is set, so that the processes are not killed
	// for using more than their part.
	Compressible bool
}

// Reserve sets the limits of a cgroup that has a reservation. It sets no other limit of the cgroup,
// and none of huge pages. The cgroup must exist in all hierarchies in which a kubelet looks for it.
func (m *Manager) Reserve(r Reservation) error {
	place := Layout{Driver: m.config.Driver, Root: r.Cgroup}
	name := fmt.Sprintf("%q", place.rootParts()) // as a kubelet writes it
	if len(r.Resources) == 0 {
		return fmt.Errorf("%s cgroup is not configured properly", name)
	}
	if err := place.Validate(); err != nil {
		return err
	}
	path := place.RootPath()
	if err := m.host.complete(name, path); err != nil {
		return err
	}
	resources := m.host.resources(reserved(r), nil)
	mgr, err := manager.New(place.cgroup(path, resources))
	if err == nil {
		err = mgr.Set(resources)
	}
	if err != nil {
		return fmt.Errorf("setting the limits of cgroup %s: %w", path, err)
	}
	return nil
}

// reserved returns the limits that a reservation gives.
func reserved(r Reservation) Limits {
	var l Limits
	if cpu, ok := r.Resources[corev1.ResourceCPU]; ok {
		l.CPUShares = cpuShares(cpu.MilliValue())
	}
	if r.Compressible {
		return l
	}
	l.Memory = r.Resources.Memory().Value()
	if pids, ok := r.Resources["pid"]; ok {
		l.Pids = pids.Value()
	}
	return l
}

// reservable returns the controllers in which a cgroup with a reservation must exist.
func reservable() []string {
	return []string{"cpu", "cpuacct", "cpuset", "hugetlb", "memory", "pids"}
}

// complete returns an error, in the kubelet's words, if a cgroup does not exist in a hierarchy that
// limits it. name is the cgroup's name in the error.
func (h hierarchies) complete(name, path string) error {
	if h.version == V2 {
		text, err := os.ReadFile(filepath.Join(unifiedMount, path, "cgroup.controllers"))
		if err != nil {
			return fmt.Errorf("could not read controllers for cgroup %s: %w", name, err)
		}
		return h.enabled(name, strings.Fields(string(text)))
	}
	var missing []string
	for _, controller := range reservable() {
		dir := filepath.Join(h.controllers[controller], path)
		if _, err := os.Stat(dir); h.has(controller) && err != nil {
			missing = append(missing, dir)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("cgroup %s has some missing paths: %s", name, strings.Join(missing, ", "))
	}
	return nil
}

// enabled returns an error if a cgroup of v2 lacks a controller that the host has.
func (h hierarchies) enabled(name string, have []string) error {
	var missing []string
	for _, controller := range reservable() {
		if h.has(controller) && controller != "cpuacct" && !slices.Contains(have, controller) {
			missing = append(missing, controller)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("cgroup %s has some missing controllers: %s", name, strings.Join(missing, ", "))
	}
	return nil
}
