package cgroups

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// systemCgroup makes a cgroup of another owner on this host, in all hierarchies but some, and
// returns its name.
func systemCgroup(t *testing.T, m *Manager, without ...string) string {
	t.Helper()
	name := fmt.Sprintf("/berth-reserved-%d-%d", os.Getpid(), roots.Add(1))
	for controller, mount := range m.host.controllers {
		dir := filepath.Join(mount, name)
		if strings.Contains(strings.Join(without, " "), controller) {
			continue
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Remove(dir) }) // two controllers may share a directory
	}
	return name
}

func TestReserve(t *testing.T) {
	m := realManager(t, nil)
	name := systemCgroup(t, m)
	all := list{"cpu": "500m", "memory": "96Mi", "pid": "77", "ephemeral-storage": "1Gi"}.list()
	cpu, memory, pids := m.dir(t, "cpu", name), m.dir(t, "memory", name), m.dir(t, "pids", name)
	weight, limit := "cpu.shares", "memory.limit_in_bytes"
	if m.Version() == V2 {
		weight, limit = "cpu.weight", "memory.max"
	}
	unlimited := read(t, memory, limit)
	if err := m.Reserve(Reservation{Cgroup: name, Resources: all, Compressible: true}); err != nil {
		t.Fatal(err)
	}
	want := map[Version]string{V2: "20"}[m.Version()]
	if want == "" {
		want = "512"
	}
	if got := read(t, cpu, weight); got != want {
		t.Errorf("%s is %s, want %s", weight, got, want)
	}
	if got := read(t, memory, limit); got != unlimited {
		t.Errorf("a compressible reservation limits memory to %s", got)
	}
	for range 2 { // the next agent sets the same
		if err := m.Reserve(Reservation{Cgroup: strings.TrimPrefix(name, "/"), Resources: all}); err != nil {
			t.Fatal(err)
		}
		if got := read(t, memory, limit) + " " + read(t, pids, "pids.max"); got != "100663296 77" {
			t.Errorf("memory and pids: %s", got)
		}
	}
}

func TestReserveNeedsTheCgroup(t *testing.T) {
	m := realManager(t, nil)
	amounts := list{"cpu": "1"}.list()
	if m.Version() == V2 {
		t.Skip("on v2 a cgroup has one directory")
	}
	half := systemCgroup(t, m, "memory")
	for name, c := range map[string]struct {
		cgroup  string
		amounts corev1.ResourceList
		want    string
	}{
		"no amounts": {half, nil, fmt.Sprintf("[%q] cgroup is not configured properly", half[1:])},
		"a part is missing": {
			half, amounts, fmt.Sprintf("cgroup [%q] has some missing paths: %s", half[1:], m.dir(t, "memory", half)),
		},
		"all of it is missing": {"/berth-reserved/none", amounts, `cgroup ["berth-reserved" "none"] has some missing paths: `},
		"no path":              {"/a/../b", amounts, "must not contain"},
	} {
		err := m.Reserve(Reservation{Cgroup: c.cgroup, Resources: c.amounts})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// On v2 a cgroup must have the controllers that the host has.
func TestControllersOfAReservation(t *testing.T) {
	h := hierarchies{version: V2, controllers: map[string]string{"cpu": "", "memory": "", "pids": "", "io": ""}}
	if err := h.enabled("x", []string{"cpu", "memory", "pids"}); err != nil {
		t.Error(err)
	}
	err := h.enabled(`["system"]`, []string{"cpu"})
	if want := `cgroup ["system"] has some missing controllers: memory, pids`; err == nil || err.Error() != want {
		t.Errorf("%v, want %q", err, want)
	}
}

func TestReservedLimits(t *testing.T) {
	all := list{"cpu": "2", "memory": "1Gi", "pid": "10"}.list()
	if got := fmt.Sprintf("%+v", reserved(Reservation{Resources: all})); got != fmt.Sprintf("%+v",
		Limits{CPUShares: 2048, Memory: 1 << 30, Pids: 10}) {
		t.Error(got)
	}
	if got := reserved(Reservation{Resources: list{"memory": "1Gi"}.list(), Compressible: true}); got.Memory != 0 ||
		got.CPUShares != 0 {
		t.Errorf("%+v", got)
	}
}
