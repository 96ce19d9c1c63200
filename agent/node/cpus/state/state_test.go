package state

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/utils/cpuset"
)

// What a kubelet 1.36.3 writes.
const (
	none   = `{"policyName":"none","defaultCpuSet":"","checksum":1353318690}`
	static = `{"policyName":"static","defaultCpuSet":"0-1","entries":{"uid":{"app":"2-3"}},"checksum":3664591771}`
	// noPods and pods are written with the feature gate PodLevelResourceManagers.
	noPods = `{"policyName":"static","defaultCpuSet":"0-1","checksum":653018852}`
	pods   = `{"policyName":"static","defaultCpuSet":"0-1","entries":{"uid":{"app":"2-3","side":"4"}},` +
		`"podEntries":{"uid":{"cpuSet":"2-4"}},"checksum":1541501761}`
)

func TestFileIsTheKubelets(t *testing.T) {
	path := filepath.Join(t.TempDir(), File)
	if s, err := Read(path); s != nil || err != nil {
		t.Errorf("no file: %v, %v", s, err)
	}
	for want, s := range map[string]State{
		none: {Policy: "none"},
		static: {
			Policy: "static", Shared: cpuset.New(0, 1),
			Assigned: map[string]map[string]cpuset.CPUSet{"uid": {"app": cpuset.New(2, 3)}},
		},
		noPods: {Policy: "static", Shared: cpuset.New(0, 1), Pods: map[string]cpuset.CPUSet{}},
		pods: {
			Policy: "static", Shared: cpuset.New(0, 1), Pods: map[string]cpuset.CPUSet{"uid": cpuset.New(2, 3, 4)},
			Assigned: map[string]map[string]cpuset.CPUSet{"uid": {"app": cpuset.New(2, 3), "side": cpuset.New(4)}},
		},
	} {
		if err := Write(path, s); err != nil {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(path); err != nil || string(data) != want {
			t.Errorf("%s, %v\nwant %s", data, err, want)
		}
		got, err := Read(path)
		if err != nil || got.Policy != s.Policy || got.Shared.String() != s.Shared.String() ||
			got.Assigned["uid"]["app"].String() != s.Assigned["uid"]["app"].String() ||
			len(got.Pods) != len(s.Pods) || got.Pods["uid"].String() != s.Pods["uid"].String() {
			t.Errorf("%+v, %v", got, err)
		}
	}
}

func TestReadOddFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), File)
	for text, want := range map[string]string{
		"": "unexpected end of JSON input", static[:40]: "unexpected end of JSON input",
		strings.Replace(static, "0-1", "0-2", 1):                                    "its checksum is 3664591771, but",
		strings.Replace(pods, "2-4", "2-5", 1):                                      "its checksum is 1541501761, but",
		strings.Replace(pods, "2-4", "4-2", 1):                                      "the CPUs of a whole pod",
		strings.Replace(pods, `"podEntries":{"uid":{"cpuSet":"2-4"}},`, "", 1):      "its checksum is 1541501761, but",
		`{"policyName":"static","defaultCpuSet":"x"}`:                               "x",
		`{"policyName":"static","defaultCpuSet":"0","entries":{"u":{"app":"3-1"}}}`: "container app of pod u",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(path); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
