package expand

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/berthd/berth/agent/volumes/csi"
	"github.com/berthd/berth/test/leaks"
)

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

// rig is an API server with one claim, and a driver.
type rig struct {
	t     *testing.T
	claim *v1.PersistentVolumeClaim
	pv    *v1.PersistentVolume
	// known is what the node knows of the claim without asking.
	known *v1.PersistentVolumeClaim
	// reported are the events and the requests to the driver, in their order.
	reported []string
	// refuse is asked before each change, fail is what the driver says.
	refuse func(patch string) error
	fail   error
}

func newRig(t *testing.T, change func(*v1.PersistentVolumeClaim)) *rig {
	t.Helper()
	c := &v1.PersistentVolumeClaim{}
	c.Namespace, c.Name, c.UID, c.ResourceVersion = "ns", "c", "c1", "7"
	c.Labels = map[string]string{"kept": "yes"}
	c.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOnce}
	c.Spec.Resources.Requests = gi(2)
	c.Status.Phase, c.Status.Capacity = v1.ClaimBound, gi(1)
	pending(c)
	if change != nil {
		change(c)
	}
	pv := &v1.PersistentVolume{}
	pv.Name, pv.UID = "pv-1", "v1"
	pv.Spec.CSI, pv.Spec.Capacity = &v1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "h"}, gi(2)
	r := &rig{t: t, claim: c, pv: pv}
	r.known = c.DeepCopy()
	return r
}

// pending makes a claim as the controllers leave it for the node.
func pending(c *v1.PersistentVolumeClaim) {
	c.Status.AllocatedResources = gi(2)
	c.Status.AllocatedResourceStatuses = map[v1.ResourceName]v1.ClaimResourceStatus{
		v1.ResourceStorage: v1.PersistentVolumeClaimNodeResizePending,
	}
	c.Status.Conditions = []v1.PersistentVolumeClaimCondition{
		{Type: v1.PersistentVolumeClaimFileSystemResizePending, Status: v1.ConditionTrue},
		{Type: v1.PersistentVolumeClaimVolumeModifyingVolume, Status: v1.ConditionTrue},
	}
}

func gi(n int) v1.ResourceList {
	return v1.ResourceList{v1.ResourceStorage: resource.MustParse(fmt.Sprint(n) + "Gi")}
}

// expander returns a new one, as after a start of the agent.
func (r *rig) expander() *Expander {
	return New(Deps{
		Known: func(*v1.Pod, string) *v1.PersistentVolumeClaim { return r.known },
		Claim: func(context.Context, string, string) (*v1.PersistentVolumeClaim, error) {
			return r.claim.DeepCopy(), nil
		},
		Patch: func(_ context.Context, _, _ string, patch []byte) (*v1.PersistentVolumeClaim, error) {
			if r.refuse != nil {
				if err := r.refuse(string(patch)); err != nil {
					return nil, err
				}
			}
			return r.patch(patch)
		},
		Learn:  func(c *v1.PersistentVolumeClaim) { r.known = c },
		Events: r,
	})
}

// Pod takes an event of a pod.
func (r *rig) Pod(_ *v1.Pod, _, kind, reason, message string) { r.note("pod", kind, reason, message) }

// Claim takes an event of a claim.
func (r *rig) Claim(_ *v1.PersistentVolumeClaim, kind, reason, message string) {
	r.note("claim", kind, reason, message)
}

func (r *rig) note(words ...string) { r.reported = append(r.reported, strings.Join(words, " ")) }

// patch changes the claim as an API server does, and checks that nothing changes but what a node
// may change.
func (r *rig) patch(patch []byte) (*v1.PersistentVolumeClaim, error) {
	var of struct {
		Metadata struct{ ResourceVersion string }
	}
	before, err := json.Marshal(r.claim)
	if err = errors.Join(err, json.Unmarshal(patch, &of)); err != nil {
		r.t.Fatal(err)
	}
	if v := of.Metadata.ResourceVersion; v != "" && v != r.claim.ResourceVersion {
		return nil, apierrors.NewConflict(schema.GroupResource{Resource: "persistentvolumeclaims"}, "c",
			errors.New("it has changed"))
	}
	after, err := strategicpatch.StrategicMergePatch(before, patch, r.claim)
	now := &v1.PersistentVolumeClaim{}
	if err = errors.Join(err, json.Unmarshal(after, now)); err != nil {
		r.t.Fatal(err)
	}
	x, y := r.claim.DeepCopy(), now.DeepCopy()
	x.Status, y.Status = v1.PersistentVolumeClaimStatus{Phase: x.Status.Phase},
		v1.PersistentVolumeClaimStatus{Phase: y.Status.Phase}
	if !reflect.DeepEqual(x, y) {
		r.t.Errorf("%s changes what a node may not", patch)
	}
	version, _ := strconv.Atoi(r.claim.ResourceVersion)
	now.ResourceVersion = fmt.Sprint(version + 1)
	r.claim = now
	r.note("state", r.state())
	return now.DeepCopy(), nil
}

// state is what the claim says of its size.
func (r *rig) state() string {
	out := []string{
		r.claim.Status.Capacity.Storage().String(),
		string(r.claim.Status.AllocatedResourceStatuses[v1.ResourceStorage]),
	}
	for _, c := range r.claim.Status.Conditions {
		out = append(out, strings.TrimSuffix(string(c.Type)+" "+c.Message, " "))
	}
	return strings.Join(out, "|")
}

// use is a pod's; had is the size in Gi of the volume that it has, 0 for none.
func (r *rig) use(had int) Use {
	pod := &v1.Pod{}
	pod.Namespace, pod.Name, pod.Spec.NodeName = "ns", "p", "node-1"
	u := Use{Pod: pod, Claim: "c", Volume: r.pv, Expand: func(_ context.Context, size resource.Quantity) error {
		r.note("driver", size.String())
		return r.fail
	}}
	if had > 0 {
		u.Had = r.pv.DeepCopy()
		u.Had.Spec.Capacity = gi(had)
	}
	return u
}

// expect compares what was recorded since the last call.
func (r *rig) expect(want ...string) {
	r.t.Helper()
	if got := strings.Join(r.reported, "\n"); got != strings.Join(want, "\n") {
		r.t.Errorf("reported\n%s\nwant\n%s", got, strings.Join(want, "\n"))
	}
	r.reported = nil
}

func wants(t *testing.T, e *Expander, u Use, want bool) {
	t.Helper()
	if got, _ := e.Wanted(u); got != want {
		t.Errorf("wanted is %v", got)
	}
}

const (
	marked  = "state 1Gi|NodeResizeInProgress|FileSystemResizePending|ModifyingVolume"
	grown   = "state 2Gi||ModifyingVolume"
	success = ` Normal FileSystemResizeSuccessful MountVolume.NodeExpandVolume succeeded for volume "pv-1" node-1`
)

// A volume grows once, in use or before it is, and its claim says so as a kubelet would.
func TestGrow(t *testing.T) {
	for _, had := range []int{0, 1, 2} { // of 2: the agent that had it did not know how
		r := newRig(t, nil)
		e := r.expander()
		wants(t, e, r.use(had), true)
		if err := e.Grow(t.Context(), r.use(had)); err != nil {
			t.Fatal(err)
		}
		r.expect(marked, "driver 2Gi", "pod"+success, "claim"+success, grown)
		for _, e := range []*Expander{e, r.expander()} {
			wants(t, e, r.use(had), false)
			if err := e.Grow(t.Context(), r.use(had)); err != nil {
				t.Fatal(err)
			}
		}
		r.expect()
	}
}

// An agent that is killed after the driver's answer asks the driver again, one that lives does not;
// both write the claim in the end.
func TestGrowIsCutOff(t *testing.T) {
	for _, killed := range []bool{true, false} {
		r := newRig(t, nil)
		e := r.expander()
		r.refuse = func(patch string) error {
			if strings.Contains(patch, "capacity") {
				return errors.New("away")
			}
			return nil
		}
		err := e.Grow(t.Context(), r.use(0))
		if want := `mountVolume.NodeExpandVolume update pvc status failed: patchPVCStatus failed to patch PVC ` +
			`"c": away`; err == nil || err.Error() != want {
			t.Errorf("error %v", err)
		}
		r.expect(marked, "driver 2Gi", "pod"+success, "claim"+success)
		r.refuse = nil
		if killed {
			e = r.expander()
		}
		wants(t, e, r.use(1), true)
		if err := e.Grow(t.Context(), r.use(1)); err != nil {
			t.Fatal(err)
		}
		if killed {
			r.expect("driver 2Gi", "pod"+success, "claim"+success, grown)
		} else {
			r.expect(grown)
		}
	}
}

// What the driver refuses is written to the claim, and tried again after longer and longer while
// the volume is in use.
func TestGrowFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		e := r.expander()
		r.fail = errors.New("no room")
		const reported = `pod Warning VolumeResizeFailed NodeExpandVolume.NodeExpandVolume failed for volume ` +
			`"pv-1" : ` +
			`no room`
		const state = "state 1Gi|NodeResizeInProgress|NodeResizeError failed to expand pvc with no " +
			"room|FileSystemResizePending|ModifyingVolume"
		wait := retryFirst
		for i := range 12 {
			if err := e.Grow(t.Context(), r.use(1)); err == nil {
				t.Error("no error")
			}
			if i == 0 {
				r.expect(marked, "driver 2Gi", state, reported)
			} else {
				r.expect("driver 2Gi", reported)
			}
			wanted, when := e.Wanted(r.use(1))
			if !wanted || time.Until(when) != wait {
				t.Errorf("wanted %v in %s, want in %s", wanted, time.Until(when), wait)
			}
			wait = min(2*wait, retryMost)
			time.Sleep(time.Until(when))
		}
		// Who comes now does not wait; the failure is for its own event.
		if _, when := e.Wanted(r.use(0)); !when.IsZero() {
			t.Errorf("not before %s", when)
		}
		if err := e.Grow(t.Context(), r.use(0)); err == nil || err.Error() != "no room" {
			t.Errorf("error %v", err)
		}
		r.expect("driver 2Gi")
		r.fail = nil
		if err := e.Grow(t.Context(), r.use(1)); err != nil {
			t.Fatal(err)
		}
		r.expect("driver 2Gi", "pod"+success, "claim"+success, grown)
	})
}

// What can never succeed is left to the controllers: a size that the driver cannot, and any size
// that is not wanted any more.
func TestGrowIsInfeasible(t *testing.T) {
	r := newRig(t, nil)
	e := r.expander()
	r.fail = fmt.Errorf("too large: %w", csi.ErrInfeasible)
	if err := e.Grow(t.Context(), r.use(1)); err == nil {
		t.Error("no error")
	}
	if !strings.HasPrefix(r.state(), "1Gi|NodeResizeInfeasible|NodeResizeError failed to expand pvc with too large: ") {
		t.Errorf("the claim is %s", r.state())
	}
	wants(t, e, r.use(1), false)

	r = newRig(t, func(c *v1.PersistentVolumeClaim) { c.Spec.Resources.Requests = gi(3) })
	e, r.fail = r.expander(), errors.New("no")
	for _, want := range []string{"NodeResizeInProgress", "NodeResizeInfeasible"} {
		if err := e.Grow(t.Context(), r.use(1)); err == nil || !strings.HasPrefix(r.state(), "1Gi|"+want) {
			t.Errorf("%v: the claim is %s, want %s", err, r.state(), want)
		}
	}
}

// A driver that does it only for volumes that nobody uses is asked when the next pod comes; a
// driver that is away has not failed.
func TestGrowLater(t *testing.T) {
	r := newRig(t, nil)
	e := r.expander()
	r.fail = fmt.Errorf("in use: %w", csi.ErrInUse)
	if err := e.Grow(t.Context(), r.use(1)); err != nil {
		t.Error(err)
	}
	wants(t, e, r.use(1), false)
	wants(t, e, r.use(0), true)

	r = newRig(t, nil)
	e, r.fail = r.expander(), &csi.NotRegistered{Driver: "d"}
	if err := e.Grow(t.Context(), r.use(0)); err == nil {
		t.Error("no error")
	}
	r.expect(marked, "driver 2Gi")
}

// A pod that only reads gets an event that it does not see the new size. A pod that has the volume
// gets none.
func TestGrowReadOnly(t *testing.T) {
	r := newRig(t, nil)
	e := r.expander()
	u := r.use(1)
	u.ReadOnly = true
	wants(t, e, u, false)
	u.Had = nil
	wants(t, e, u, true)
	if err := e.Grow(t.Context(), u); err != nil {
		t.Error(err)
	}
	const reported = ` Warning FileSystemResizeFailed MountVolume.NodeExpandVolume failed for volume "pv-1" ` +
		`requested ` +
		`read-only file system`
	r.expect("pod"+reported, "claim"+reported)
}

// What other controllers, and other nodes, leave to this one.
func TestGrowOf(t *testing.T) {
	for _, c := range []struct {
		name     string
		change   func(*v1.PersistentVolumeClaim)
		fail     error
		had      int
		reported []string
	}{
		{"an older resizer", func(c *v1.PersistentVolumeClaim) {
			c.Status.AllocatedResources, c.Status.AllocatedResourceStatuses = nil, nil
		}, nil, 1, []string{"driver 2Gi", "pod" + success, "claim" + success, grown}},
		{"an older resizer, and a driver that has nothing to do", func(c *v1.PersistentVolumeClaim) {
			c.Status.AllocatedResources, c.Status.AllocatedResourceStatuses = nil, nil
		}, csi.ErrCannotExpand, 1, []string{"driver 2Gi"}},
		{"another node, too", shared, nil, 1, []string{"driver 2Gi", "pod" + success, "claim" + success}},
		{"another node, and a driver that has nothing to do", shared, csi.ErrCannotExpand, 1, []string{"driver 2Gi"}},
		{"another node, before this pod came", shared, nil, 0, nil},
		{"another node, where this one has no part", func(c *v1.PersistentVolumeClaim) {
			shared(c)
			c.Annotations = map[string]string{notRequired: "true"}
		}, nil, 1, nil},
		{"nobody yet", func(c *v1.PersistentVolumeClaim) {
			c.Status.AllocatedResourceStatuses[v1.ResourceStorage] = v1.PersistentVolumeClaimControllerResizeInProgress
		}, nil, 1, nil},
		{"nobody else, for it has no node's part", func(c *v1.PersistentVolumeClaim) {
			c.Status.Capacity, c.Status.AllocatedResourceStatuses = gi(2), nil
		}, nil, 1, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, c.change)
			e := r.expander()
			r.fail = c.fail
			wants(t, e, r.use(c.had), c.reported != nil)
			if err := e.Grow(t.Context(), r.use(c.had)); err != nil {
				t.Error(err)
			}
			r.expect(c.reported...)
			wants(t, e, r.use(c.had), false)
			if err := e.Grow(t.Context(), r.use(c.had)); err != nil {
				t.Error(err)
			}
			r.expect()
		})
	}
}

// shared makes a claim one of many nodes, of which another has done its part.
func shared(c *v1.PersistentVolumeClaim) {
	c.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteMany}
	c.Status.Capacity, c.Status.AllocatedResourceStatuses = gi(2), nil
}

// A claim of which nothing is known, and a volume of another kind, are left alone.
func TestNotWanted(t *testing.T) {
	r := newRig(t, nil)
	e := r.expander()
	r.known = nil
	wants(t, e, r.use(1), false)
	r = newRig(t, nil)
	e, r.pv.Spec.CSI = r.expander(), nil
	wants(t, e, r.use(1), false)
}
