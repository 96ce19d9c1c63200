package steps

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/volumes"
	"github.com/berthd/berth/status"
)

// volumeTask begins the keys of tasks that bring volumes up.
const volumeTask = "volume/"

// releaseTask begins the keys of tasks that take volumes down.
const releaseTask = "take down volumes/"

// Volumes has the pod's volumes.
type Volumes struct {
	Manager *volumes.Manager
	Events  EventSink
	// HostIPs returns the node's addresses.
	HostIPs func() []string
}

// mountPatience is how long a pod waits for its volumes before an event reports all that are
// missing: the kubelet's podAttachAndMountTimeout.
const mountPatience = 2*time.Minute + 3*time.Second

// EventSink takes a pod's events; container may be empty.
type EventSink interface {
	Pod(pod *v1.Pod, container, kind, reason, message string)
}

// Name is "volumes".
func (Volumes) Name() string { return "volumes" }

// Ensure brings up every volume and keeps its content up to date. A missing volume holds the pod
// back. If only the new content of a volume cannot be had, the old content stays in place. What
// takes long is done beside the worker.
func (v Volumes) Ensure(ctx context.Context, p *Sync) (Outcome, error) {
	mounts, err := v.Manager.Ensure(ctx, p.Pod, volumes.Dynamic{
		HostIPs: v.HostIPs(),
		PodIPs:  p.PodIPs,
		Slow:    slowly(p),
		Brief: func(key, path string, do func(context.Context) error) error {
			return p.Briefly(ctx, key, path, do)
		},
	})
	p.Volumes = mounts
	p.VolumeGroups = groupsOf(p.Pod, mounts)
	again := againOf(mounts)
	if errors.Is(err, context.Canceled) {
		return Outcome{RetryAt: again}, err
	}
	if err == nil {
		*p.Unmounted = time.Time{}
		return Outcome{RetryAt: again}, nil
	}
	var missing []*volumes.VolumeError
	for _, f := range volumes.Failures(err) {
		if !errors.Is(f, volumes.ErrUnderWay) {
			v.Events.Pod(p.Pod, "", v1.EventTypeWarning, f.Reason(), f.Error())
		}
		if _, up := mounts[f.Volume]; !up {
			missing = append(missing, f)
		}
	}
	again = Earlier(again, v.reportMissing(p, missing))
	if len(missing) == 0 {
		return Outcome{Waiting: err.Error(), RetryAt: again}, nil
	}
	if slices.ContainsFunc(missing, mayHeal) {
		return Outcome{RetryAt: again}, err
	}
	// Another try alone changes nothing. The end of the task, or another manifest, wakes the
	// worker.
	p.Problem = status.Reason{Reason: v.Name(), Message: err.Error()}
	return Outcome{Waiting: err.Error(), RetryAt: again, Halt: true}, nil
}

// reportMissing reports the volumes that are missing once they have been missing for too long. It
// returns when the next report is due, zero for never.
func (v Volumes) reportMissing(p *Sync, missing []*volumes.VolumeError) time.Time {
	text := volumes.Unmounted(missing)
	if text == "" {
		*p.Unmounted = time.Time{}
		return time.Time{}
	}
	now := time.Now()
	if p.Unmounted.IsZero() {
		*p.Unmounted = now
	}
	if now.Sub(*p.Unmounted) >= mountPatience {
		v.Events.Pod(p.Pod, "", v1.EventTypeWarning, "FailedMount", text)
		*p.Unmounted = now
	}
	return p.Unmounted.Add(mountPatience)
}

// mayHeal reports whether bringing the volume up should be tried again.
func mayHeal(f *volumes.VolumeError) bool {
	return !errors.Is(f, volumes.ErrUnderWay) && !errors.Is(f, volumes.ErrUnsupported)
}

// slowly runs what takes long for the pod's volumes as a task.
func slowly(p *Sync) volumes.Slow {
	return func(key string, do func(context.Context) error) (bool, error) {
		key = volumeTask + key
		if err, ended := p.Ended[key]; ended {
			return true, err
		}
		p.Tasks.Start(key, do)
		return false, nil
	}
}

// groupsOf returns the groups that the pod's processes get because of its volumes.
func groupsOf(pod *v1.Pod, mounts volumes.Mounts) []int64 {
	var groups []int64
	for i := range pod.Spec.Volumes {
		if g := mounts[pod.Spec.Volumes[i].Name].Group; g != 0 && !slices.Contains(groups, g) {
			groups = append(groups, g)
		}
	}
	return groups
}

// againOf returns when the first volume has to be looked at again, zero for never.
func againOf(mounts volumes.Mounts) time.Time {
	var first time.Time
	for _, m := range mounts {
		first = Earlier(first, m.Again)
	}
	return first
}

// Remove unmounts the pod's volumes and deletes its directory. It gives looks at file systems time
// to end, and goes on without those that do not: what they look at is unmounted, as if the server
// were silent, which it is.
func (v Volumes) Remove(ctx context.Context, p *Sync) (Outcome, error) {
	p.Looks.Remember()
	for _, key := range p.Tasks.Active() {
		if strings.HasPrefix(key, briefTask) {
			if out := p.leaveLook(key); out.Halt {
				return out, nil
			}
		}
		name, mine := strings.CutPrefix(key, volumeTask)
		if !mine {
			continue
		}
		if !volumes.Interruptible(name) {
			return Outcome{Waiting: "the end of the bring-up of " + name, Halt: true}, nil
		}
		p.Tasks.Cancel(ctx, key)
		if p.Tasks.Has(key) {
			return Outcome{}, fmt.Errorf("ending the bring-up of %s: %w", name, context.Cause(ctx))
		}
	}
	err := v.Manager.Release(ctx, p.Pod.UID, func(key string, do func(context.Context) error) (bool, error) {
		key = releaseTask + key
		if err, ended := p.Ended[key]; ended {
			return true, err
		}
		p.Tasks.Start(key, do)
		return false, nil
	})
	switch {
	case errors.Is(err, volumes.ErrUnderWay):
		return Outcome{Waiting: err.Error(), Halt: true}, nil
	case err != nil:
		return Outcome{Halt: true}, err // a volume that is still mounted needs its directory
	}
	if err := v.Manager.Remove(ctx, p.Pod.UID); err != nil {
		return Outcome{}, err
	}
	for _, key := range p.Tasks.Active() {
		if strings.HasPrefix(key, sourcesTask) { // at a hostPath, which was not unmounted
			if out := p.leaveLook(key); out.Halt {
				return out, nil
			}
		}
	}
	return Outcome{}, nil
}
