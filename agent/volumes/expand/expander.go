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

	"github.com/berthd/berth/agent/pod/tasks"
	"github.com/berthd/berth/agent/volumes/csi"
	"github.com/berthd/berth/internal/retry"
)

// retryFirst and retryMost bound the wait after a failure while a volume is in use. The wait
// doubles after each failure. The values are the kubelet's.
const (
	retryFirst = 500 * time.Millisecond
	retryMost  = 2*time.Minute + 2*time.Second
)

// Deps are what an [Expander] works with.
type Deps struct {
	// Known returns the pod's claim as far as it is known, without asking the API server; nil if it
	// is not known. The claim must not be changed.
	Known func(pod *v1.Pod, claim string) *v1.PersistentVolumeClaim
	// Claim asks the API server for a claim. Patch changes the status of a claim. Both return the
	// claim as it is then.
	Claim func(ctx context.Context, namespace, name string) (*v1.PersistentVolumeClaim, error)
	Patch func(ctx context.Context, namespace, name string, patch []byte) (*v1.PersistentVolumeClaim, error)
	// Learn takes a claim as the API server has it now.
	Learn  func(claim *v1.PersistentVolumeClaim)
	Events Events
	// Logger may be nil.
	Logger *slog.Logger
}

// Events takes events, with an empty container.
type Events interface {
	Pod(pod *v1.Pod, container, kind, reason, message string)
	Claim(claim *v1.PersistentVolumeClaim, kind, reason, message string)
}

// Use is a pod's use of a volume by a claim.
type Use struct {
	Pod *v1.Pod
	// Claim is the claim's name. Volume is the volume that the claim is bound to.
	Claim  string
	Volume *v1.PersistentVolume
	// Had is the volume as it was when the pod got it; nil if the pod does not have it yet.
	Had *v1.PersistentVolume
	// ReadOnly says that the pod only reads.
	ReadOnly bool
	// Expand asks the volume's driver to expand the volume.
	Expand func(ctx context.Context, size resource.Quantity) error
}

// Expander expands volumes. Make it with [New].
type Expander struct {
	deps  Deps
	turns tasks.Turns[types.UID]

	mu sync.Mutex
	// volumes are the volumes that this process has worked on, by the PersistentVolumes' UIDs.
	volumes map[types.UID]*volume
}

// volume is what is remembered of one volume.
type volume struct {
	// size is the size that the volume was given. none is the size for which its driver has nothing
	// to do. Zero is for nothing yet.
	size, none resource.Quantity
	// final says that the driver has refused with certainty. inUse says that the driver does not
	// expand the volume while it is in use.
	final, inUse bool
	// failures counts failures in a row while the volume was in use. next is the earliest time of
	// the next attempt.
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

// Wanted decides from memory whether a volume has to be expanded on this node, and not before when.
// For a volume that the pod has, it compares with the size that was reached here. For a volume that
// the pod gets, it compares with the claim's status.
func (e *Expander) Wanted(u Use) (wanted bool, when time.Time) {
	claim := e.deps.Known(u.Pod, u.Claim)
	if claim == nil || u.Volume.Spec.CSI == nil || u.ReadOnly && u.Had != nil {
		return false, time.Time{}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	v := e.volumes[u.Volume.UID]
	if v == nil {
		v = &volume{} // most volumes have nothing to remember
	}
	_, asked := v.asked(u, claim)
	if u.Had == nil {
		return asked, time.Time{}
	}
	return asked && !v.inUse, v.next
}

// of returns what is remembered of a volume. The caller has the mutex.
func (e *Expander) of(pv *v1.PersistentVolume) *volume {
	v := e.volumes[pv.UID]
	if v == nil {
		v = &volume{}
		e.volumes[pv.UID] = v
	}
	return v
}

// asked says what this node has to do for a use of the volume.
func (v *volume) asked(u Use, claim *v1.PersistentVolumeClaim) (todo, bool) {
	grown, known := sizeOf(u.Volume), claim.Status.Capacity[v1.ResourceStorage]
	before := known
	if had := sizeOf(u.Had); u.Had != nil && had.Cmp(known) < 0 {
		before = had
	}
	if grown.Cmp(before) <= 0 {
		return todo{}, false
	}
	do, asked := decide(claim, u.Volume)
	// the claim is another node's to update, and this node has done its part
	if !do.update && v.size.Cmp(do.size) >= 0 {
		return todo{}, false
	}
	return do, asked && v.none.Cmp(do.size) < 0
}

// Grow expands a volume for which Wanted has returned true. If only the claim is left to be
// written, it does not ask the driver again. For a volume that the pod has, an event has reported a
// failure, and there is another attempt after a while. For a volume that the pod gets, the caller
// reports the failure.
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
	v.failures++
	v.next = time.Now().Add(retry.Backoff{First: retryFirst, Most: retryMost}.Delay(v.failures))
	if ctx.Err() == nil { // otherwise the agent stops
		e.deps.Events.Pod(u.Pod, "", v1.EventTypeWarning, "VolumeResizeFailed",
			fmt.Sprintf("NodeExpandVolume.NodeExpandVolume failed for volume %q : %v", u.Volume.Name, err))
	}
	return err
}

// remember changes what is remembered of a volume.
func (e *Expander) remember(pv *v1.PersistentVolume, do func(*volume)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	do(e.of(pv))
}

// grow is Grow for a caller that has the volume's turn.
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
		e.report(u, claim, v1.EventTypeWarning, "FileSystemResizeFailed",
			fmt.Sprintf("MountVolume.NodeExpandVolume failed for volume %q requested read-only file system",
				u.Volume.Name))
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

// ask asks the driver, and returns the claim as it is then. The claim is nil if the driver does not
// do it and that is no failure.
func (e *Expander) ask(
	ctx context.Context, u Use, claim *v1.PersistentVolumeClaim, do todo,
) (*v1.PersistentVolumeClaim, error) {
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
	e.deps.Logger.Info("volume has grown", "volume", u.Volume.Name, "size", do.size.String(),
		"claim", claim.Namespace+"/"+claim.Name)
	e.report(u, claim, v1.EventTypeNormal, "FileSystemResizeSuccessful",
		fmt.Sprintf("MountVolume.NodeExpandVolume succeeded for volume %q %s", u.Volume.Name, u.Pod.Spec.NodeName))
	return claim, nil
}

// failed records a failure of the driver in the claim. It returns the cause, or nil if the driver
// refuses only while the volume is in use.
func (e *Expander) failed(ctx context.Context, u Use, claim *v1.PersistentVolumeClaim, do todo, cause error) error {
	gone := &csi.NotRegistered{}
	if !do.lenient && !errors.As(cause, &gone) && ctx.Err() == nil {
		// The user may have asked for another size meanwhile. Then a second refusal of the driver
		// ends this expansion, so that the controllers look at the new size.
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
			e.deps.Logger.Warn("the failure of an expansion cannot be written to the claim",
				"claim", claim.Namespace+"/"+claim.Name, "err", err)
		}
	}
	if errors.Is(cause, csi.ErrInUse) {
		e.deps.Logger.Warn("the driver does not have the volume grow while it is in use", "volume", u.Volume.Name,
			"err", cause)
		e.remember(u.Volume, func(v *volume) { v.inUse = true })
		return nil
	}
	return cause
}

// patch changes a claim's status.
func (e *Expander) patch(
	ctx context.Context, claim *v1.PersistentVolumeClaim, change []byte,
) (*v1.PersistentVolumeClaim, error) {
	now, err := e.deps.Patch(ctx, claim.Namespace, claim.Name, change)
	if err != nil {
		return nil, fmt.Errorf("patchPVCStatus failed to patch PVC %q: %w", claim.Name, err)
	}
	e.deps.Learn(now)
	return now, nil
}

// report reports an event of the pod and of the claim.
func (e *Expander) report(u Use, claim *v1.PersistentVolumeClaim, kind, reason, message string) {
	e.deps.Events.Pod(u.Pod, "", kind, reason, message)
	e.deps.Events.Claim(claim, kind, reason, message)
}
