package volumes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/berthd/berth/agent/volumes/expand"
	"github.com/berthd/berth/test/csidriver"
)

const growsVolumes = csiapi.NodeServiceCapability_RPC_EXPAND_VOLUME

// growing is a claim whose volume has grown, as the controllers leave it for the node.
type growing struct {
	*csiRig
	claim  *v1.PersistentVolumeClaim
	events []string
}

func newGrowing(t *testing.T, can ...csiapi.NodeServiceCapability_RPC_Type) *growing {
	t.Helper()
	g := &growing{csiRig: newCSIRig(t, can...), claim: &v1.PersistentVolumeClaim{}}
	g.claim.Namespace, g.claim.Name = "ns", "c"
	g.claim.Spec.AccessModes = g.pv.Spec.AccessModes
	g.pv.UID, g.pv.Spec.CSI.NodeExpandSecretRef = "pv-uid", &v1.SecretReference{Namespace: "other", Name: "expand"}
	g.size("1Gi")
	g.claim.Status.Capacity = g.pv.Spec.Capacity
	return g
}

// size makes the volume that large.
func (g *growing) size(size string) {
	g.pv = g.pv.DeepCopy()
	g.pv.Spec.Capacity = v1.ResourceList{v1.ResourceStorage: resource.MustParse(size)}
}

// grow makes the volume that large, and leaves the rest to the node.
func (g *growing) grow(size string) {
	g.size(size)
	g.claim.Status.AllocatedResources = g.pv.Spec.Capacity
	g.claim.Status.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{
		v1.ResourceStorage: v1.PersistentVolumeClaimNodeResizePending,
	}
}

// manager returns a new manager, as after a start of the agent.
func (g *growing) manager() *Manager {
	m := g.csiRig.manager()
	m.deps.Claims = g
	m.deps.Growth = expand.New(expand.Deps{
		Known: func(*v1.Pod, string) *v1.PersistentVolumeClaim { return g.claim },
		Claim: func(context.Context, string, string) (*v1.PersistentVolumeClaim, error) { return g.claim, nil },
		Patch: func(_ context.Context, _, _ string, patch []byte) (*v1.PersistentVolumeClaim, error) {
			before, _ := json.Marshal(g.claim)
			after, err := strategicpatch.StrategicMergePatch(before, patch, g.claim)
			g.claim = &v1.PersistentVolumeClaim{}
			return g.claim, errors.Join(err, json.Unmarshal(after, g.claim))
		},
		Learn:  func(*v1.PersistentVolumeClaim) {},
		Events: g,
	})
	return m
}

// Pod takes an event of a pod.
func (g *growing) Pod(_ *v1.Pod, _, _, reason, message string) {
	g.events = append(g.events, reason+": "+message)
}

// Claim takes an event of a claim.
func (g *growing) Claim(*v1.PersistentVolumeClaim, string, string, string) {}

// Resolve returns the volume.
func (g *growing) Resolve(*v1.Pod, string) (*v1.PersistentVolume, error) { return g.pv, nil }

// has checks what the claim says of its size.
func (g *growing) has(size string, state v1.ClaimResourceStatus) {
	g.t.Helper()
	if got, is := g.claim.Status.Capacity.Storage().String(),
		g.claim.Status.AllocatedResourceStatuses[v1.ResourceStorage]; got != size || is != state {
		g.t.Errorf("the claim has %s, %q", got, is)
	}
}

// A volume grows while a pod has it, also after the agent was killed, and before another pod has
// it; never twice.
func TestCSIGrows(t *testing.T) {
	g := newGrowing(t, stages, growsVolumes)
	m, pod := g.manager(), podNamed("pod", claimVolume("v", "c"))
	pod.Spec.NodeName = "node"
	_, err := g.ensure(m, pod)
	must(t, err)
	g.called("NodeStageVolume", "NodePublishVolume")
	for i, size := range []string{"2Gi", "3Gi"} {
		g.grow(size)
		if i > 0 {
			m = g.manager()
		}
		for range 3 {
			_, err = g.ensure(m, pod)
			must(t, err)
		}
		g.has(size, "")
		request := g.called("NodeExpandVolume")[0]
		want := fmt.Sprintf("map[capacityRange:map[requiredBytes:%d] secrets:map[key:other/expand] "+
			"stagingTargetPath:%s volumeCapability:map[accessMode:map[mode:SINGLE_NODE_WRITER] "+
			"mount:map[mountFlags:[noatime]]] volumeId:h volumePath:%s]",
			g.pv.Spec.Capacity.Storage().Value(),
			g.root+"/plugins/kubernetes.io/csi/"+testDriver+
				"/aaa9402664f1a41f40ebbc52c9993eb66aeb366602958fdfaa283b71e64db123/globalmount",
			m.PodDir("pod")+"/volumes/kubernetes.io~csi/pv/mount")
		if fmt.Sprint(request) != want {
			t.Errorf("the driver was asked for\n%v, want\n%s", request, want)
		}
	}
	if want := `FileSystemResizeSuccessful: MountVolume.NodeExpandVolume succeeded for volume "pv" node`; len(
		g.events) != 2 || g.events[1] != want {
		t.Errorf("events %q", g.events)
	}
	g.gone(m, pod)
	g.calls()
	g.grow("4Gi")
	next := podNamed("next", claimVolume("v", "c"))
	for range 2 {
		_, err = g.ensure(m, next)
		must(t, err)
	}
	g.called("NodeStageVolume", "NodePublishVolume", "NodeExpandVolume")
	g.has("4Gi", "")
	g.gone(m, next)
	g.nothingStaged()
}

// A driver that fails keeps a pod that comes from its volume, and one that has it only waits for it
// to be larger.
func TestCSIGrowthFaults(t *testing.T) {
	for _, fault := range []csidriver.Fault{
		csidriver.Fail, csidriver.Late, csidriver.Crash, csidriver.Refuse(codes.OutOfRange),
		csidriver.Refuse(codes.FailedPrecondition),
	} {
		t.Run(string(fault), func(t *testing.T) {
			g := newGrowing(t, stages, growsVolumes)
			m, pod := g.manager(), podNamed("pod", claimVolume("v", "c"))
			g.grow("2Gi")
			must(t, csidriver.Set(g.driver.Dir, "NodeExpandVolume", fault))
			_, err := g.ensure(m, pod)
			inUse := fault == csidriver.Refuse(codes.FailedPrecondition)
			const words = `MountVolume.Setup failed while expanding volume for volume "pv" : Expander.NodeExpand ` +
				`failed to expand the volume `
			if inUse != (err == nil) || err != nil && !strings.HasPrefix(err.Error(), words) {
				t.Errorf("error %v", err)
			}
			must(t, csidriver.Set(g.driver.Dir, "NodeExpandVolume", ""))
			if fault == csidriver.Refuse(codes.OutOfRange) {
				g.has("1Gi", v1.PersistentVolumeClaimNodeResizeInfeasible)
			}
			m = g.manager()
			at, err := g.ensure(m, pod)
			must(t, err)
			if inUse { // by what its claim says of it, and another agent
				_, err = g.ensure(m, pod)
				must(t, err)
			}
			if fault != csidriver.Refuse(codes.OutOfRange) {
				g.has("2Gi", "")
			}

			g.grow("3Gi")
			must(t, csidriver.Set(g.driver.Dir, "NodeExpandVolume", fault))
			m.deps.Growth = g.manager().deps.Growth
			g.events = nil
			again, err := g.ensure(m, pod)
			if err != nil || again != at || inUse != (g.events == nil) {
				t.Errorf("it is at %s, %v, events %q", again, err, g.events)
			}
			for _, e := range g.events {
				if !strings.HasPrefix(e,
					`VolumeResizeFailed: NodeExpandVolume.NodeExpandVolume failed for volume "pv" : `+
						`Expander.NodeExpand failed to expand the volume `) {
					t.Errorf("event %s", e)
				}
			}
			must(t, csidriver.Set(g.driver.Dir, "NodeExpandVolume", ""))
			g.gone(m, pod)
			g.nothingStaged()
		})
	}
}

// A volume grows beside the sync: a slow driver delays nobody, and a failed attempt is followed by
// another.
func TestCSIGrowsBeside(t *testing.T) {
	g := newGrowing(t, growsVolumes)
	m, pod := g.manager(), podNamed("pod", claimVolume("v", "c"))
	_, err := g.ensure(m, pod)
	must(t, err)
	g.grow("2Gi")
	var tasks []func(context.Context) error
	ended := false
	look := func() Mount {
		t.Helper()
		mounts, err := m.Ensure(t.Context(), pod,
			Dynamic{Slow: func(key string, do func(context.Context) error) (bool, error) {
				if Interruptible(key) {
					t.Errorf("%s may be interrupted", key)
				}
				if !ended {
					tasks = append(tasks, do)
				}
				return ended, nil
			}})
		must(t, err)
		return mounts["v"]
	}
	if mount := look(); len(tasks) != 1 || !mount.Again.IsZero() {
		t.Fatalf("%d tasks, %+v", len(tasks), mount)
	}
	must(t, csidriver.Set(g.driver.Dir, "NodeExpandVolume", csidriver.Fail))
	if tasks[0](t.Context()) == nil {
		t.Error("no error")
	}
	ended = true
	if mount := look(); mount.Again.IsZero() { // before the next try is due, or at once
		t.Errorf("%+v", mount)
	}
	m.deps.Growth = g.manager().deps.Growth
	if mount := look(); mount.Again.IsZero() || time.Until(mount.Again) > 0 {
		t.Errorf("%+v", mount)
	}
	r := g.csiRig
	r.drivers.Deregister(r.plugin())
	if mount := look(); !mount.Again.IsZero() { // its driver notifies the pod
		t.Errorf("%+v", mount)
	}
	r.register()
	must(t, csidriver.Set(g.driver.Dir, "NodeExpandVolume", ""))
	g.gone(m, pod)
}

// A block device grows, too.
func TestCSIDeviceGrows(t *testing.T) {
	loopDevice(t, t.TempDir()+"/probe")
	g := newGrowing(t, stages, growsVolumes)
	block(g.pv)
	m, pod := g.manager(), blockPod("pod")
	g.grow("2Gi")
	must(t, csidriver.Set(g.driver.Dir, "NodeExpandVolume", csidriver.Fail))
	_, err := g.ensure(m, pod)
	if f := Failures(err); len(f) != 1 || f[0].Reason() != "FailedMapVolume" ||
		!strings.HasPrefix(f[0].Error(),
			`MapVolume.MarkVolumeAsMounted failed while expanding volume for volume "pv" : `) {
		t.Errorf("error %v", err)
	}
	must(t, csidriver.Set(g.driver.Dir, "NodeExpandVolume", ""))
	g.calls()
	_, err = g.ensure(m, pod)
	must(t, err)
	g.has("2Gi", "")
	calls := g.calls()
	last := string(calls[len(calls)-1].Request)
	for _, part := range []string{
		"/plugins/kubernetes.io/csi/volumeDevices/publish/pv/pod",
		"/plugins/kubernetes.io/csi/volumeDevices/staging/pv", `"block"`,
	} {
		if !strings.Contains(last, part) {
			t.Errorf("the driver was asked for %s", last)
		}
	}
	g.gone(m, pod)
}
