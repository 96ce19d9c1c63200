package steps

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/status"
)

// prepareTask and unprepareTask are the keys of the tasks that ask the drivers of claims.
const (
	prepareTask   = "prepare claims"
	unprepareTask = "unprepare claims"
)

// claimsRetry is how often a pod that runs asks again for claims that nobody knows any more.
const claimsRetry = 30 * time.Second

// Claims has the pod's resource claims prepared.
type Claims struct {
	Manager interface {
		// Wants reports whether the pod names claims, Held whether all of them are noted for it.
		Wants(pod *v1.Pod) bool
		Held(pod *v1.Pod) bool
		// Prepare asks the drivers for the pod's claims.
		Prepare(ctx context.Context, pod *v1.Pod) error
		// Holds reports whether the pod has claims to give back. Unprepare gives them back.
		Holds(uid types.UID) bool
		Unprepare(ctx context.Context, uid types.UID) error
	}
	Events EventSink
}

// Name is "claims".
func (Claims) Name() string { return "claims" }

// Ensure prepares the claims before each sandbox, beside the worker: a driver may take long. A pod
// that runs has its claims, unless nobody knows of them any more: they are prepared then while the
// pod goes on.
func (s Claims) Ensure(_ context.Context, p *Sync) (Outcome, error) {
	if !s.Manager.Wants(p.Pod) || !p.Actions.CreateSandbox && s.Manager.Held(p.Pod) {
		return Outcome{}, nil
	}
	err, asked := p.Ended[prepareTask]
	switch {
	case asked && err == nil:
		return Outcome{}, nil
	case asked:
		s.Events.Pod(p.Pod, "", v1.EventTypeWarning, "FailedPrepareDynamicResources",
			fmt.Sprintf("Failed to prepare dynamic resources: %v", err))
		if p.Actions.CreateSandbox {
			return Outcome{}, err
		}
		return Outcome{Waiting: err.Error(), RetryAt: time.Now().Add(claimsRetry)}, nil
	}
	pod := p.Pod
	p.start(prepareTask, func(ctx context.Context) error { return s.Manager.Prepare(ctx, pod) })
	const waiting = "waiting for the drivers of the resource claims"
	if !p.Actions.CreateSandbox {
		return Outcome{Waiting: waiting}, nil
	}
	p.Problem = status.Reason{Reason: s.Name(), Message: waiting}
	return Outcome{Waiting: waiting, Halt: true}, nil
}

// Remove gives the claims back: all containers have ended. The pod has not ended before its claims
// are given back, because the cluster gives their devices to others then.
func (s Claims) Remove(ctx context.Context, p *Sync) (Outcome, error) {
	p.Tasks.Cancel(ctx, prepareTask)
	if p.Tasks.Has(prepareTask) {
		return Outcome{}, fmt.Errorf("ending the preparation of the resource claims: %w", context.Cause(ctx))
	}
	if !s.Manager.Holds(p.Pod.UID) {
		return Outcome{}, nil
	}
	if err := p.Ended[unprepareTask]; err != nil {
		return Outcome{}, err
	}
	uid := p.Pod.UID
	p.start(unprepareTask, func(ctx context.Context) error { return s.Manager.Unprepare(ctx, uid) })
	return Outcome{Waiting: "the drivers of the resource claims take the devices back", Halt: true}, nil
}
