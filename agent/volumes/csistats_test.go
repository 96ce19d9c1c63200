package volumes

import (
	"testing"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"

	"github.com/berthd/berth/test/csidriver"
)

// A driver that can report how full a volume is does so; a driver that cannot is not asked.
func TestCSIStats(t *testing.T) {
	r := newCSIRig(t, stages, csiapi.NodeServiceCapability_RPC_GET_VOLUME_STATS)
	m, pod := r.manager(), podNamed("pod", claimVolume("v", "c"))
	_, err := r.ensure(m, pod)
	must(t, err)
	if got := m.Claimed(pod); len(got) != 1 || got["pv"] != "v" {
		t.Errorf("claimed is %v", got)
	}
	stats, err := m.CSI().Stats(t.Context(), "pod", "pv", false)
	must(t, err)
	if *stats.CapacityBytes != 1000 || *stats.UsedBytes != 300 || *stats.AvailableBytes != 700 || *stats.Inodes != 10 ||
		*stats.InodesUsed != 3 || *stats.InodesFree != 7 {
		t.Errorf("stats %+v", stats)
	}
	if stats, err := m.CSI().Stats(t.Context(), "pod", "pv", true); err != nil || stats != nil {
		t.Errorf("of what is no device: %+v, %v", stats, err)
	}
	must(t, csidriver.Set(r.driver.Dir, "NodeGetVolumeStats", csidriver.Fail))
	if _, err := m.CSI().Stats(t.Context(), "pod", "pv", false); err == nil {
		t.Error("no error")
	}
	r.driver.Can = r.driver.Can[:1]
	if stats, err := m.CSI().Stats(t.Context(), "pod", "pv", false); err != nil || stats != nil {
		t.Errorf("of a driver that cannot: %+v, %v", stats, err)
	}
	r.gone(m, pod)
}
