package cgroups

import (
	"os"
	"path/filepath"
	"strings"
)

// lifted is a limit of memory or processes that is taken back: there is none any more.
const lifted = -1

// lift takes back the limits of all pods together that are in force and that the node does not want
// any more. An agent or a kubelet with other reservations has set them, and without this they would
// stay until the machine starts anew. A limit that a unit file of the slice sets stays: it is the
// administrator's.
func (m *Manager) lift(l Limits) Limits {
	c := counters{host: m.host, path: m.layout.PodsPath()}
	memory := "memory.limit_in_bytes"
	if m.host.version == V2 {
		memory = "memory.max"
	}
	if _, limited := c.bound("memory", memory); limited && l.Memory == 0 && !m.declared("MemoryMax", "MemoryLimit") {
		m.log.Info("The memory of all pods together is not limited any more", "cgroup", c.path)
		l.Memory = lifted
	}
	if _, limited := c.bound("pids", "pids.max"); limited && l.Pids == 0 && !m.declared("TasksMax") {
		m.log.Info("The number of processes of all pods together is not limited any more", "cgroup", c.path)
		l.Pids = lifted
	}
	return l
}

// declared reports whether a unit file of the slice of all pods has one of the settings.
func (m *Manager) declared(settings ...string) bool {
	return m.layout.Driver == Systemd && declares(unitDirs(), filepath.Base(m.layout.PodsPath()), settings)
}

// unitDirs returns the directories of unit files (systemd.unit(5)). /run/systemd/system.control and
// /run/systemd/transient are not among them: they have what an agent or a kubelet sets.
func unitDirs() []string {
	return []string{
		"/etc/systemd/system.control", "/etc/systemd/system", "/run/systemd/system", "/run/systemd/generator",
		"/run/systemd/generator.early", "/run/systemd/generator.late", "/usr/local/lib/systemd/system",
		"/usr/lib/systemd/system", "/lib/systemd/system",
	}
}

// declares reports whether a slice's unit file or drop-in in one of the directories limits one of
// the settings. The slice a-b.slice has the drop-ins of a-.slice.d and slice.d, too.
func declares(dirs []string, slice string, settings []string) bool {
	drops := []string{slice + ".d", "slice.d"}
	for i := range slice {
		if slice[i] == '-' {
			drops = append(drops, slice[:i+1]+sliceSuffix+".d")
		}
	}
	for _, dir := range dirs {
		files := []string{filepath.Join(dir, slice)}
		for _, drop := range drops {
			found, _ := filepath.Glob(filepath.Join(dir, drop, "*.conf")) // the pattern is well formed
			files = append(files, found...)
		}
		for _, file := range files {
			if text, err := os.ReadFile(file); err == nil && sets(string(text), settings) {
				return true
			}
		}
	}
	return false
}

// sets reports whether a unit file gives one of the settings a limit.
func sets(unit string, settings []string) bool {
	for line := range strings.Lines(unit) {
		name, value, found := strings.Cut(line, "=")
		value = strings.TrimSpace(value)
		if !found || value == "" || value == "infinity" {
			continue
		}
		for _, setting := range settings {
			if strings.TrimSpace(name) == setting {
				return true
			}
		}
	}
	return false
}
