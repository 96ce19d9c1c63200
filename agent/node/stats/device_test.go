package stats

import (
	"os"
	"path/filepath"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/test/csidriver"
)

// A local volume that is a block device tells how large it is; what is no device, or none any more,
// tells nothing.
func TestLocalDevices(t *testing.T) {
	c, _ := driven(t)
	disk := filepath.Join(t.TempDir(), "disk")
	loop := csidriver.Loop(t, disk)
	info, err := os.Stat(disk)
	if err != nil {
		t.Fatal(err)
	}
	pod := c.deps.Pods()[0]
	dir := filepath.Join(c.cfg.RootDir, "pods/uid/volumeDevices/kubernetes.io~local-volume")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, to := range map[string]string{
		"pv-3": loop.Name(),
		"pv-4": disk,
		"pv-5": "/dev/null",
		"pv-6": "/nowhere",
	} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	before := c.deps.Claimed
	c.deps.Claimed = func(p *v1.Pod) map[string]string {
		out := before(p)
		out["pv-3"] = "one"
		return out
	}
	c.deps.Driver = nil
	stats, _ := c.volumes(t.Context(), pod, true)
	found := 0
	for _, v := range stats {
		if v.CapacityBytes == nil || *v.CapacityBytes != uint64(info.Size()) {
			continue
		}
		found++
		if v.Name != "one" || v.PVCRef == nil || v.PVCRef.Name != "files" || *v.UsedBytes != 0 ||
			*v.AvailableBytes != 0 || *v.Inodes != 0 || *v.InodesFree != 0 || *v.InodesUsed != 0 {
			t.Errorf("the device has %+v", v)
		}
	}
	if found != 1 || len(stats) != 1 {
		t.Errorf("stats %+v", stats)
	}
}
