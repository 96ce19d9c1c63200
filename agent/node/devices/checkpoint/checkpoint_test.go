package checkpoint

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// kubelets is what a kubelet 1.36.3 writes for entries.
const kubelets = `{"Data":{"PodDeviceEntries":[{"PodUID":"uid","ContainerName":"app","ResourceName":` +
	`"example.com/card","DeviceIDs":{"-1":["a"],"0":["b","c"]},"AllocResp":"CgUBAg=="}],"RegisteredDevices":` +
	`{"example.com/card":["a","b"]}},"Checksum":2029931619}`

func TestFileIsTheKubelets(t *testing.T) {
	path := filepath.Join(t.TempDir(), File)
	entries := []PodDevicesEntry{{
		PodUID: "uid", ContainerName: "app", ResourceName: "example.com/card",
		DeviceIDs: DevicesPerNUMA{-1: {"a"}, 0: {"b", "c"}}, AllocResp: []byte{10, 5, 1, 2},
	}}
	if err := Write(path, entries, map[string][]string{"example.com/card": {"a", "b"}}); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(path); err != nil || string(data) != kubelets {
		t.Errorf("%s, %v\nwant %s", data, err, kubelets)
	}
	got, registered, err := Read(path)
	if err != nil || len(got) != 1 || len(got[0].DeviceIDs[0]) != 2 || len(registered["example.com/card"]) != 2 {
		t.Errorf("%v, %v, %v", got, registered, err)
	}
}

func TestReadOddFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), File)
	if got, registered, err := Read(path); got != nil || registered != nil || err != nil {
		t.Errorf("no file: %v, %v, %v", got, registered, err)
	}
	for text, want := range map[string]string{
		"": "unexpected end of JSON input", kubelets[:60]: "unexpected end of JSON input",
		strings.Replace(kubelets, `"a"`, `"x"`, 1): "its checksum is 2029931619, but its content has",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Read(path); err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	for _, empty := range [][]PodDevicesEntry{nil, {}} {
		if err := Write(path, empty, nil); err != nil {
			t.Fatal(err)
		}
		if _, _, err := Read(path); err != nil {
			t.Error(err)
		}
	}
}
