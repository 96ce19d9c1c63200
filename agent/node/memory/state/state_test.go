package state

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// What a kubelet 1.36.3 writes.
const static = `{"policyName":"Static","machineState":{"0":{"numberOfAssignments":0,"memoryMap":{"memory":` +
	`{"total":2048,"systemReserved":512,"allocatable":1536,"reserved":512,"free":1024}},"cells":[]}},` +
	`"entries":{"pod":{"container1":[{"numaAffinity":[0],"type":"memory","size":512}]}},"checksum":46685113}`

// What it writes with the feature gate PodLevelResourceManagers, without and with pods.
const (
	noPods = `{"policyName":"Static","machineState":{"0":{"numberOfAssignments":0,"memoryMap":{"memory":` +
		`{"total":2048,"systemReserved":512,"allocatable":1536,"reserved":512,"free":1024}},"cells":[]}},` +
		`"checksum":2239003346}`
	pods = `{"policyName":"Static","machineState":{"0":{"numberOfAssignments":0,"memoryMap":{"memory":` +
		`{"total":2048,"systemReserved":512,"allocatable":1536,"reserved":512,"free":1024}},"cells":[]}},` +
		`"entries":{"pod":{"container1":[{"numaAffinity":[0],"type":"memory","size":512}]}},` +
		`"podEntries":{"pod":{"memoryBlocks":[{"numaAffinity":[0],"type":"memory","size":1024}]}},"checksum":139359989}`
)

func TestFileIsTheKubelets(t *testing.T) {
	path := filepath.Join(t.TempDir(), File)
	if s, err := Read(path); s != nil || err != nil {
		t.Errorf("no file: %v, %v", s, err)
	}
	c := MemoryManagerCheckpoint{
		PolicyName: "Static",
		MachineState: NUMANodeMap{0: {
			MemoryMap: map[v1.ResourceName]*MemoryTable{v1.ResourceMemory: {2048, 512, 1536, 512, 1024}}, Cells: []int{},
		}},
		Entries: ContainerMemoryAssignments{"pod": {"container1": {{[]int{0}, v1.ResourceMemory, 512}}}},
	}
	without, with := c, c
	without.Entries, without.PodEntries = nil, PodMemoryAssignments{}
	with.PodEntries = PodMemoryAssignments{"pod": {[]Block{{[]int{0}, v1.ResourceMemory, 1024}}}}
	for want, c := range map[string]MemoryManagerCheckpoint{static: c, noPods: without, pods: with} {
		if err := Write(path, c); err != nil {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(path); err != nil || string(data) != want {
			t.Errorf("%s, %v\nwant %s", data, err, want)
		}
		got, err := Read(path)
		if err != nil {
			t.Fatal(err)
		}
		if len(c.PodEntries) == 0 {
			c.PodEntries = nil // the file says nothing of pods where there are none
		}
		if got.Checksum = 0; !reflect.DeepEqual(*got, c) {
			t.Errorf("%+v", got)
		}
	}
}

func TestReadOddFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), File)
	for text, want := range map[string]string{
		"": "unexpected end of JSON input", static[:40]: "unexpected end of JSON input",
		strings.Replace(static, "2048", "2049", 1):       "its checksum is 46685113, but",
		strings.Replace(pods, "1024}]}}", "1025}]}}", 1): "its checksum is 139359989, but",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(path); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
