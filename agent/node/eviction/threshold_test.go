package eviction

import (
	"fmt"
	"strings"
	"testing"
	"time"

	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/berthd/berth/agent/node/stats"
)

// text returns a threshold as a line.
func (t Threshold) text() string {
	out := string(t.Signal) + "<" + t.Least.text()
	if t.Grace > 0 {
		out += " after " + t.Grace.String()
	}
	if t.Reclaim != (Value{}) {
		out += " and " + t.Reclaim.text()
	}
	return out
}

func (v Value) text() string {
	if v.quantity != nil {
		return v.quantity.String()
	}
	return fmt.Sprintf("%.4g%%", v.share*100)
}

func texts(list []Threshold) string {
	var out []string
	for _, t := range list {
		out = append(out, t.text())
	}
	return strings.Join(out, "; ")
}

func TestThresholds(t *testing.T) {
	for name, c := range map[string]struct {
		config    kubeletconfigv1beta1.KubeletConfiguration
		want, err string
	}{
		"none": {},
		"the defaults, memory first": {
			config: kubeletconfigv1beta1.KubeletConfiguration{EvictionHard: map[string]string{
				"imagefs.available": "15%", "memory.available": "100Mi", "nodefs.inodesFree": "5%", "nodefs.available": "10%",
			}},
			want: "memory.available<100Mi; nodefs.available<10%; nodefs.inodesFree<5%; imagefs.available<15%",
		},
		"the pods' memory, where it is limited": {
			config: kubeletconfigv1beta1.KubeletConfiguration{
				EvictionHard:           map[string]string{"memory.available": "100Mi"},
				EvictionMinimumReclaim: map[string]string{"memory.available": "50Mi"},
				EnforceNodeAllocatable: []string{"pods"},
			},
			want: "memory.available<100Mi and 50Mi; allocatableMemory.available<100Mi and 50Mi",
		},
		"soft behind hard, with what to reclaim": {
			config: kubeletconfigv1beta1.KubeletConfiguration{
				EvictionHard:            map[string]string{"pid.available": "100", "memory.available": "100Mi"},
				EvictionSoft:            map[string]string{"memory.available": "1Gi"},
				EvictionSoftGracePeriod: map[string]string{"memory.available": "1m30s"},
				EvictionMinimumReclaim:  map[string]string{"memory.available": "1%"},
				EnforceNodeAllocatable:  []string{"none"},
			},
			want: "memory.available<100Mi and 1%; memory.available<1Gi after 1m30s and 1%; pid.available<100",
		},
		"switched off": {
			config: kubeletconfigv1beta1.KubeletConfiguration{
				EvictionHard: map[string]string{"memory.available": "0%", "nodefs.available": "100%"},
			},
		},
		"unknown": {
			config: kubeletconfigv1beta1.KubeletConfiguration{EvictionHard: map[string]string{"mem": "1"}},
			err:    "evictionHard[mem]: unsupported eviction signal mem",
		},
		"soft without grace": {
			config: kubeletconfigv1beta1.KubeletConfiguration{EvictionSoft: map[string]string{"pid.available": "5"}},
			err: "evictionSoft[pid.available]: " +
				"grace period must be specified for the soft eviction threshold pid.available",
		},
		"no amount": {
			config: kubeletconfigv1beta1.KubeletConfiguration{EvictionHard: map[string]string{"pid.available": "x"}},
			err:    `evictionHard[pid.available]: reading the amount "x"`,
		},
		"no percentage": {
			config: kubeletconfigv1beta1.KubeletConfiguration{EvictionHard: map[string]string{"pid.available": "x%"}},
			err:    `evictionHard[pid.available]: reading the percentage "x%"`,
		},
		"no grace": {
			config: kubeletconfigv1beta1.KubeletConfiguration{
				EvictionSoft:            map[string]string{"pid.available": "5"},
				EvictionSoftGracePeriod: map[string]string{"pid.available": "soon"},
			},
			err: `evictionSoft[pid.available]: time: invalid duration "soon"`,
		},
		"no reclaim": {
			config: kubeletconfigv1beta1.KubeletConfiguration{
				EvictionHard:           map[string]string{"pid.available": "5"},
				EvictionMinimumReclaim: map[string]string{"pid.available": "x"},
			},
			err: `evictionMinimumReclaim[pid.available]: reading the amount "x"`,
		},
	} {
		got, err := Thresholds(&c.config)
		if text := texts(got); text != c.want {
			t.Errorf("%s: %s\nwant %s", name, text, c.want)
		}
		if (err == nil) != (c.err == "") || err != nil && !strings.HasPrefix(err.Error(), c.err) {
			t.Errorf("%s: error %v, want %s", name, err, c.err)
		}
	}
}

// The thresholds of containerfs are those of the file system that has the writable layers.
func TestContainerFsThresholds(t *testing.T) {
	given := []Threshold{
		{Signal: NodeFsAvailable, Least: Value{share: 0.5}},
		{Signal: NodeFsAvailable, Least: Value{share: 0.25}, Grace: time.Minute},
		{Signal: ImageFsAvailable, Least: Value{share: 0.125}},
		{Signal: ImageFsInodesFree, Least: Value{share: 0.75}},
		{Signal: ContainerFsAvailable, Least: Value{share: 1}},
	}
	const common = "nodefs.available<50%; nodefs.available<25% after 1m0s; imagefs.available<12.5%; " +
		"imagefs.inodesFree<75%; "
	onNode := common + "containerfs.available<50%; containerfs.available<25% after 1m0s"
	for disks, want := range map[stats.Disks]string{
		{}:                             onNode,
		{ImageFs: true, SplitFs: true}: onNode,
		{ImageFs: true}:                common + "containerfs.available<12.5%; containerfs.inodesFree<75%",
	} {
		if got := texts(withContainerFs(given, disks)); got != want {
			t.Errorf("%+v: %s\nwant %s", disks, got, want)
		}
	}
}

func TestWhatIsOnAFileSystem(t *testing.T) {
	everything, node, images := usage{true, true, true}, usage{logs: true, volumes: true}, usage{layers: true}
	for _, c := range []struct {
		disks    stats.Disks
		signal   Signal
		files    usage
		reclaims reclaims
	}{
		{stats.Disks{}, NodeFsAvailable, everything, reclaims{true, true}},
		{stats.Disks{}, ImageFsInodesFree, everything, reclaims{true, true}},
		{stats.Disks{}, ContainerFsAvailable, everything, reclaims{true, true}},
		{stats.Disks{ImageFs: true}, NodeFsInodesFree, node, reclaims{}},
		{stats.Disks{ImageFs: true}, ImageFsAvailable, images, reclaims{true, true}},
		{stats.Disks{ImageFs: true}, ContainerFsInodesFree, images, reclaims{true, true}},
		{stats.Disks{ImageFs: true, SplitFs: true}, NodeFsAvailable, everything, reclaims{containers: true}},
		{stats.Disks{ImageFs: true, SplitFs: true}, ImageFsAvailable, usage{}, reclaims{images: true}},
		{stats.Disks{ImageFs: true, SplitFs: true}, ContainerFsAvailable, everything, reclaims{containers: true}},
	} {
		if got := occupies(c.signal, c.disks); got != c.files {
			t.Errorf("%s on %+v: counts %+v, want %+v", c.signal, c.disks, got, c.files)
		}
		if got := reclaimable(c.signal, c.disks); got != c.reclaims {
			t.Errorf("%s on %+v: reclaims %+v, want %+v", c.signal, c.disks, got, c.reclaims)
		}
	}
	for _, s := range []Signal{MemoryAvailable, AllocatableMemoryAvailable, PIDAvailable} {
		if got := reclaimable(s, stats.Disks{}); got != (reclaims{}) {
			t.Errorf("%s: reclaims %+v", s, got)
		}
	}
}
