package csi

import (
	"os"
	"strings"
	"testing"
	"time"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"
	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/node/plugins"
	"github.com/berthd/berth/test/csidriver"
)

func TestDriversRegister(t *testing.T) {
	dir := t.TempDir()
	served := &csidriver.Driver{
		Dir:        dir,
		Registry:   dir + "/registry",
		Name:       "d",
		NodeID:     "id",
		MaxVolumes: 7,
		Topology:   map[string]string{"zone": "z"},
	}
	if err := served.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(served.Stop)
	changes := 0
	var observed []string
	d := NewDrivers(func() { changes++ }, func(driver, method, code string, _ time.Duration) {
		observed = append(observed, driver+" "+method+" "+code)
	}, nil)
	good := plugins.Plugin{Name: "d", Endpoint: dir + "/csi.sock", Versions: []string{"0.3.0", "1.0.0"}, Socket: "one"}
	if err := d.Register(t.Context(), good); err != nil {
		t.Fatal(err)
	}
	got, err := d.Get("d")
	if err != nil || got.NodeID != "id" || got.MaxVolumes != 7 || got.Topology["zone"] != "z" || changes != 1 {
		t.Errorf("%+v, %v, %d changes", got, err, changes)
	}
	if text := strings.Join(observed,
		","); text != "d /csi.v1.Node/NodeGetInfo OK,d /csi.v1.Node/NodeGetCapabilities OK" {
		t.Errorf("observed %s", text)
	}
	for want, bad := range map[string]plugins.Plugin{
		"speaks the versions":               {Name: "old", Endpoint: good.Endpoint, Versions: []string{"0.3.0"}},
		"cannot be a file name":             {Name: "../x", Endpoint: good.Endpoint, Versions: good.Versions},
		"CSI NodeGetInfo()":                 {Name: "dead", Endpoint: dir + "/none.sock", Versions: good.Versions},
		"is no absolute path of a unix soc": {Name: "tcp", Endpoint: "127.0.0.1:1", Versions: good.Versions},
	} {
		if err := d.Register(t.Context(), bad); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v", want, err)
		}
	}
	// A driver that has registered anew is not taken away with its old socket.
	again := good
	again.Socket = "two"
	if err := d.Register(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	d.Deregister(good)
	if _, err := d.Get("d"); err != nil {
		t.Error(err)
	}
	d.Deregister(again)
	if here, gone := d.List(); len(here) != 0 || len(gone) != 1 || changes != 3 {
		t.Errorf("%v, %v, %d changes", here, gone, changes)
	}
}

func TestAccessModes(t *testing.T) {
	for _, tc := range []struct {
		mode  v1.PersistentVolumeAccessMode
		knows bool
		want  csiapi.VolumeCapability_AccessMode_Mode
	}{
		{v1.ReadWriteOnce, false, csiapi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		{v1.ReadWriteOnce, true, csiapi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER},
		{v1.ReadWriteOncePod, false, csiapi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		{v1.ReadWriteOncePod, true, csiapi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER},
		{v1.ReadOnlyMany, true, csiapi.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY},
		{v1.ReadWriteMany, false, csiapi.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER},
	} {
		if got := accessMode(tc.mode, tc.knows); got != tc.want {
			t.Errorf("%s, %v: %s, want %s", tc.mode, tc.knows, got, tc.want)
		}
	}
}

// A damaged record is an error: what it was about must not be taken for nothing.
func TestDamagedRecord(t *testing.T) {
	dir := t.TempDir()
	for _, text := range []string{"", "{", `{"driverName":"../../x"}`} {
		if err := os.WriteFile(dir+"/vol_data.json", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if r, err := readRecord(dir); err == nil {
			t.Errorf("%q is %+v", text, r)
		}
	}
}
