package cgroups

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestMemoryUsage(t *testing.T) {
	for name, c := range map[string]struct {
		version           Version
		usage, stat, file string
	}{
		"v1": {V1, "3000\n", "inactive_file 1\ntotal_inactive_file 1000\n", "memory.usage_in_bytes"},
		"v2": {V2, "3000\n", "anon 5\ninactive_file 1000\n", "memory.current"},
	} {
		t.Run(name, func(t *testing.T) {
			mount := t.TempDir()
			m := &Manager{
				config: Config{CgroupsPerQOS: true}, layout: Layout{Driver: Cgroupfs},
				host: hierarchies{version: c.version, controllers: map[string]string{"memory": mount}},
			}
			pod := burstable("u1")
			dir := filepath.Join(mount, "kubepods/burstable/podu1")
			for at, usage := range map[string]string{
				dir: c.usage, filepath.Join(dir, "cri-containerd-abc.scope"): "1500\n",
			} {
				if err := os.MkdirAll(at, 0o755); err != nil {
					t.Fatal(err)
				}
				for file, text := range map[string]string{c.file: usage, "memory.stat": c.stat} {
					if err := os.WriteFile(filepath.Join(at, file), []byte(text), 0o600); err != nil {
						t.Fatal(err)
					}
				}
			}
			for id, want := range map[string]int64{"": 2000, "abc": 500} {
				if got, err := m.MemoryUsage(pod, id); err != nil || got != want {
					t.Errorf("%q: %d, %v, want %d", id, got, err, want)
				}
			}
			for _, missing := range []*corev1.Pod{burstable("u2"), burstable("../u1")} {
				if _, err := m.MemoryUsage(missing, ""); err == nil {
					t.Errorf("pod %s has a usage", missing.UID)
				}
			}
			if _, err := m.MemoryUsage(pod, "xyz"); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("a container that is not there: %v", err)
			}
		})
	}
}
