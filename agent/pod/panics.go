package pod

import (
	"fmt"
	"runtime/debug"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/internal/pods"
)

// guarded calls fn, and reports a panic in it.
func (e *Engine) guarded(uid types.UID, fn func()) {
	defer func() {
		if what := recover(); what != nil {
			_ = e.caught(uid, what) // it is reported, and nobody tries fn again
		}
	}()
	fn()
}

// caught reports a panic in a sync, a task or the end of a pod, and returns it as an error. Such a
// panic is a defect of the agent, but what one pod asks for must not end the agent of all others:
// the pod's sync is tried again later, as after any other error. It is called on the stack that
// panicked.
func (e *Engine) caught(uid types.UID, what any) error {
	err := fmt.Errorf("the agent failed (its log has the details; please report them): panic: %v", what)
	e.deps.Metrics.Panicked()
	log := e.log.With("uid", uid)
	if entry, ok := e.deps.Workers.Get(uid); ok {
		log = log.With("pod", pods.FullName(entry.Pod))
		e.deps.Events.Pod(entry.Pod, "", v1.EventTypeWarning, "FailedSync", err.Error())
	}
	log.Error("panic in a pod's sync: this is a defect of the agent", "panic", fmt.Sprint(what),
		"stack", string(debug.Stack()))
	return err
}
