package expand

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/tasks"
	"github.com/berthd/berth/agent/volumes/csi"
)

// retryFirst and retryMost bound the wait after a failure while a volume is in use, twice as long after each: the kubelet's.
const (
	retryFirst = 500 * time.Millisecond
	retryMost  = 2*time.Minute + 2*time.Second
)

// Deps are an Expander's surroundings.
type Deps struct {
	// Known returns what is known of a pod's claim without asking for it, nil for nothing. The claim must not be changed.
	Known func(pod *v1.Pod, claim string) *v1.PersistentVolumeClaim
	// Claim asks the API server for a claim, and Patch changes the status of one. Both return it as it is then.
	Claim func(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error)
	Patch func(ctx context.Context, namespace, name string, patch []byte) (*v1.PersistentVolumeClaim, error)
	// Learn takes a claim as the API server has it now.
	Learn  func(claim *v1.PersistentVolumeClaim)
	Events Events
	// Logger may be nil.
	Logger *slog.Logger
}

// Events takes events. container is empty.
type Events interface {
	Pod(pod *v1.Pod, container, kind, reason, message string)
	Claim(claim *v1.PersistentVolumeClaim, kind, reason, message string)
}

// Use is a pod's use of a volume by a claim.
type Use struct {
	Pod *v1.Pod
	// Claim is the claim's name, Volume what it is bound to.
	Claim  string
	Volume *v1.PersistentVolume
	// Had is the volume as it was when the pod got it; nil for one that the pod does not have yet.
	Had *v1.PersistentVolume
	// ReadOnly says that the pod only reads.
	ReadOnly bool
	// Expand has the volume's driver do it.
	Expand func(ctx context.Context, size resource.Quantity) error
}

// Expander has volumes grow. Make it with [New].
type Expander struct {
	deps  Deps
	turns tasks.Turns[types.UID]

	mu sync.Mutex
	// volumes are those that this process had to do with, by the PersistentVolumes' UIDs.
	volumes map[types.UID]*volume
}

// volume is what is remembered of one.
type volume struct {
	// size is what it was given, none the size for which its driver has nothing to do; zero for nothing yet.
	size, none resource.Quantity
	// final says that the driver has refused with certainty, inUse that it does not do it while the volume is in use.
	final, inUse bool
	// failures in a row while it was in use, the next try not before next.
	failures int
	next     time.Time
}

// New returns an Expander.
func New(deps Deps) *Expander {
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	return &Expander{deps: deps, volumes: map[types.UID]*volume{}}
}

// Wanted says from memory whether a volume is to grow on this node, and not before when. Of one that the pod has, it is asked what it was made so far; of one that
// it gets, what its claim says.
func (e *Expander) Wanted(u Use) (wanted bool, when time.Time) {
	claim := e.deps.Known(u.Pod, u.Claim)
	if claim == nil || u.Volume.Spec.CSI == nil || u.ReadOnly && u.Had != nil {
		return false, time.Time{}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	v := e.volumes[u.Volume.UID]
	if v == nil {
		v = &volume{} // nothing to remember of most
	}
	_, asked := v.asked(u, claim)
	if u.Had == nil {
		return asked, time.Time{}
	}
	return asked && !v.inUse, v.next
}

// of returns what is remembered of a volume; the mutex is held.
func (e *Expander) of(pv *v1.PersistentVolume) *volume {
	v := e.volumes[pv.UID]
	if v == nil {
		v = &volume{}
		e.volumes[pv.UID] = v
	}
	return v
}

// asked says what is asked of this node for a use of the volume.
func (v *volume) asked(u Use, claim *v1.PersistentVolumeClaim) (todo, bool) {
	grown, told := sizeOf(u.Volume), claim.Status.Capacity[v1.ResourceStorage]
	before := told
	if had := sizeOf(u.Had); u.Had != nil && had.Cmp(told) < 0 {
		before = had
	}
	if grown.Cmp(before) <= 0 {
		return todo{}, false
	}
	do, asked := decide(claim, u.Volume)
	if !do.update && v.size.Cmp(do.size) >= 0 { // another node's claim, and this node has done its part
		return todo{}, false
	}
	return do, asked && v.none.Cmp(do.size) < 0
}

// Grow has a volume grow that Wanted wants to. It asks the driver no second time where only the claim is left to be written. Of a volume that the pod has, a failure
// has been told of in an event, and is tried again after a while; that of one that it gets is for the caller's event.
func (e *Expander) Grow(ctx context.Context, u Use) error {
	release, err := e.turns.Take(ctx, u.Volume.UID)
	if err != nil {
		return err
	}
	defer release()
	err = e.grow(ctx, u)
	e.mu.Lock()
	defer e.mu.Unlock()
	v := e.of(u.Volume)
	if err == nil {
		v.failures, v.next = 0, time.Time{}
		return nil
	}
	if u.Had == nil {
		return err
	}
	v.next = time.Now().Add(min(retryFirst<<min(v.failures, 16), retryMost))
	v.failures++
	if ctx.Err() == nil { // else the agent ends
		e.deps.Events.Pod(u.Pod, "", v1.EventTypeWarning, "VolumeResizeFailed", fmt.Sprintf("NodeExpandVolume.NodeExpandVolume failed for volume %q : %v", u.Volume.Name, err))
	}
	return err
}

// remember changes what is remembered of a volume.
func (e *Expander) remember(pv *v1.PersistentVolume, do func(*volume)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	do(e.of(pv))
}

// grow is Grow for who has the volume's turn.
func (e *Expander) grow(ctx context.Context, u Use) error {
	claim, err := e.deps.Claim(ctx, u.Pod.Namespace, u.Claim)
	if err != nil {
		return fmt.Errorf("mountVolume.NodeExpandVolume get PVC failed : %w", err)
	}
	e.deps.Learn(claim)
	var do todo
	asked, done := false, false
	e.remember(u.Volume, func(v *volume) {
		do, asked = v.asked(u, claim)
		done = asked && v.size.Cmp(do.size) >= 0
	})
	if !asked {
		return nil
	}
	if u.ReadOnly {
		e.tell(u, claim, v1.EventTypeWarning, "FileSystemResizeFailed", fmt.Sprintf("MountVolume.NodeExpandVolume failed for volume %q requested read-only file system", u.Volume.Name))
		return nil
	}
	if !done {
		if claim, err = e.ask(ctx, u, claim, do); err != nil || claim == nil {
			return err
		}
	}
	if !do.update {
		return nil
	}
	change, err := finished(claim, do.size)
	if err == nil {
		_, err = e.patch(ctx, claim, change)
	}
	if err != nil {
		return fmt.Errorf("mountVolume.NodeExpandVolume update pvc status failed: %w", err)
	}
	return nil
}

// ask has the driver do it, and returns the claim as it is then; nil where the driver does not do it, which is no failure.
func (e *Expander) ask(ctx context.Context, u Use, claim *v1.PersistentVolumeClaim, do todo) (*v1.PersistentVolumeClaim, error) {
	if do.mark {
		change, err := inProgress(claim)
		if err == nil {
			claim, err = e.patch(ctx, claim, change)
		}
		if err != nil {
			return nil, err
		}
	}
	err := u.Expand(ctx, do.size)
	switch {
	case err == nil:
	case do.lenient && errors.Is(err, csi.ErrCannotExpand):
		e.remember(u.Volume, func(v *volume) { v.none = do.size })
		return nil, nil
	default:
		return nil, e.failed(ctx, u, claim, do, err)
	}
	e.remember(u.Volume, func(v *volume) { v.size, v.final, v.inUse = do.size, false, false })
	e.deps.Logger.Info("volume has grown", "volume", u.Volume.Name, "size", do.size.String(), "claim", claim.Namespace+"/"+claim.Name)
	e.tell(u, claim, v1.EventTypeNormal, "FileSystemResizeSuccessful", fmt.Sprintf("MountVolume.NodeExpandVolume succeeded for volume %q %s", u.Volume.Name, u.Pod.Spec.NodeName))
	return claim, nil
}

// failed writes down that the driver has failed, and returns the error, if it is one.
func (e *Expander) failed(ctx context.Context, u Use, claim *v1.PersistentVolumeClaim, do todo, cause error) error {
	gone := &csi.NotRegistered{}
	if !do.lenient && !errors.As(cause, &gone) && ctx.Err() == nil {
		// Who asks for another size meanwhile is to be heard: a driver that has refused once and does so again ends it.
		requested := claim.Spec.Resources.Requests[v1.ResourceStorage]
		infeasible := errors.Is(cause, csi.ErrInfeasible)
		e.remember(u.Volume, func(v *volume) {
			infeasible = infeasible || v.final && requested.Cmp(do.size) != 0
			v.final = true
		})
		change, err := failed(claim, cause, infeasible, metav1.Now())
		if err == nil && change != nil {
			_, err = e.patch(ctx, claim, change)
		}
		if err != nil {
			e.deps.Logger.Warn("the failure of an expansion cannot be written to the claim", "claim", claim.Namespace+"/"+claim.Name, "err", err)
		}
	}
	if errors.Is(cause, csi.ErrInUse) {
		e.deps.Logger.Warn("the driver does not have the volume grow while it is in use", "volume", u.Volume.Name, "err", cause)
		e.remember(u.Volume, func(v *volume) { v.inUse = true })
		return nil
	}
	return cause
}

// patch changes a claim's status.
func (e *Expander) patch(ctx context.Context, claim *v1.PersistentVolumeClaim, change []byte) (*v1.PersistentVolumeClaim, error) {
	now, err := e.deps.Patch(ctx, claim.Namespace, claim.Name, change)
	if err != nil {
		return nil, fmt.Errorf("patchPVCStatus failed to patch PVC %q: %w", claim.Name, err)
	}
	e.deps.Learn(now)
	return now, nil
}

// tell tells of the pod and of the claim.
func (e *Expander) tell(u Use, claim *v1.PersistentVolumeClaim, kind, reason, message string) {
	e.deps.Events.Pod(u.Pod, "", kind, reason, message)
	e.deps.Events.Claim(claim, kind, reason, message)
}
