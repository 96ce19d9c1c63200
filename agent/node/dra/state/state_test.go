package state

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
)

// kubelets is what a kubelet 1.36.3 writes for claims.
const kubelets = `{"Data":"{\"kind\":\"DRACheckpoint\",\"apiVersion\":\"checkpoint.dra.kubelet.k8s.io/v1\",` +
	`\"ClaimInfoStateList\":[{\"ClaimUID\":\"u1\",\"ClaimName\":\"gpu\",\"Namespace\":\"ns\",\"PodUIDs\":{\"p1\":{}},` +
	`\"DriverState\":{\"gpu.example.com\":{\"Devices\":[{\"PoolName\":\"node\",\"DeviceName\":\"gpu-0\",` +
	`\"ShareID\":\"s\",\"RequestNames\":[\"one\"],\"CDIDeviceIDs\":[\"example.com/gpu=0\"]}]},` +
	`\"net.example.com\":{\"Devices\":null}}}]}","Checksum":3720464601}`

// kubeletsEmpty is what a kubelet 1.36.3 writes when it has no claims and no file.
const kubeletsEmpty = `{"Data":"{\"kind\":\"DRACheckpoint\",\"apiVersion\":\"checkpoint.dra.kubelet.k8s.io/v1\",` +
	`\"ClaimInfoStateList\":null}","Checksum":4010664294}`

func TestFileIsTheKubelets(t *testing.T) {
	path := filepath.Join(t.TempDir(), File)
	share := types.UID("s")
	claims := []Claim{{
		ClaimUID: "u1", ClaimName: "gpu", Namespace: "ns", PodUIDs: sets.New[types.UID]("p1"),
		DriverState: map[string]Driver{
			"gpu.example.com": {Devices: []Device{{
				PoolName: "node", DeviceName: "gpu-0", ShareID: &share, RequestNames: []string{"one"},
				CDIDeviceIDs: []string{"example.com/gpu=0"},
			}}},
			"net.example.com": {},
		},
	}}
	for text, list := range map[string][]Claim{kubelets: claims, kubeletsEmpty: nil} {
		if err := Write(path, list); err != nil {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(path); err != nil || string(data) != text {
			t.Errorf("%s, %v\nwant %s", data, err, text)
		}
		got, err := Read(path)
		if diff := cmp.Diff(list, got); diff != "" || err != nil {
			t.Error(diff, err)
		}
	}
}

func TestReadOddFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), File)
	if got, err := Read(path); got != nil || err != nil {
		t.Errorf("no file: %v, %v", got, err)
	}
	for text, want := range map[string]string{
		"": "unexpected end of JSON input", kubelets[:60]: "unexpected end of JSON input",
		strings.Replace(kubelets, "gpu-0", "gpu-1", 1): "its checksum is 3720464601, but its content has",
		`{"Data":"","Checksum":0}`:                     "unexpected end of JSON input",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(path); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}
