package agent

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/cluster"
	"github.com/berthd/berth/agent/mirror"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/agent/steps"
	"github.com/berthd/berth/agent/tasks"
	"github.com/berthd/berth/agent/worker"
	"github.com/berthd/berth/status"
)

// apiSource returns the source of the pods that the cluster binds to this node.
func (a *Agent) apiSource() (source.Source, error) {
	pods, err := cluster.Pods(a.deps.Conn)
	if err != nil {
		return nil, err
	}
	if a.csinode, err = a.newCSINode(); err != nil {
		return nil, err
	}
	if a.registry, err = a.newRegistry(); err != nil {
		return nil, err
	}
	a.writer = status.NewWriter(a.status, status.WriterDeps{API: podAPI{pods}, LocalUID: a.mirrored, Logger: a.log})
	a.mirrors = mirror.New(mirror.Deps{API: pods, Static: a.staticPods, Node: a.registry.Node, Logger: a.log})
	written := cluster.Handler[*v1.Pod]{Replace: a.writer.Replace, Set: a.writer.Set, Remove: a.writer.Remove}
	shown := cluster.Handler[*v1.Pod]{Replace: a.mirrors.Replace, Set: a.mirrors.Set, Remove: a.mirrors.Remove}
	return source.NewAPI(a.node.Name, source.APIDeps{Pods: pods, Logger: a.log, Wait: a.registry.Read(), Seen: []cluster.Handler[*v1.Pod]{written, shown}}), nil
}

// podAPI is the API server as the status writer asks it.
type podAPI struct {
	pods *cluster.Client[v1.Pod, *v1.Pod]
}

// PatchStatus applies a strategic merge patch to a pod's status and returns the pod.
func (p podAPI) PatchStatus(ctx context.Context, namespace, name string, patch []byte) (*v1.Pod, error) {
	return p.pods.Patch(ctx, namespace, name, patch, "status")
}

// ConfirmDeletion deletes the pod with that UID at once; one that is gone is nothing.
func (p podAPI) ConfirmDeletion(ctx context.Context, namespace, name string, uid podUID) error {
	opts := metav1.NewDeleteOptions(0)
	opts.Preconditions = metav1.NewUIDPreconditions(string(uid))
	if err := p.pods.Delete(ctx, namespace, name, *opts); err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}

// tellTime is how long the end of the agent waits for the API server to be told of the pods' ends.
const tellTime = 2 * time.Second

// toldAll waits until the API server has been told of every status, but not for one that does not answer.
func (a *Agent) toldAll(ctx context.Context) {
	if a.writer == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, tellTime)
	defer cancel()
	for (!a.writer.Settled() || !a.comparable()) && tasks.Sleep(ctx, 20*time.Millisecond) {
	}
}

// comparable reports whether the API server has said what it has of the pods that it knows of, so that the writer knows what to write.
func (a *Agent) comparable() bool {
	if a.desired.ready(source.NameAPI) {
		return true
	}
	for _, e := range a.workers.List() {
		if sourceOf(e.Pod) == source.NameAPI {
			return false
		}
	}
	return true
}

// tellLast writes the last statuses, when nothing derives any more.
func (a *Agent) tellLast() {
	if a.writer == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), tellTime)
	defer cancel()
	a.writer.Flush(ctx)
}

// writeStatus writes the pods' statuses to the API server.
func (a *Agent) writeStatus(ctx context.Context) error { return a.writer.Run(ctx) }

// wantBound has the worker of a pod of the API server do what that pod wants now. Its spec only changes where the API server allows it, so that the pod is never
// replaced; it ends when it is deleted, or when its phase there is final; and one that has nothing here to end goes the way of one that has ended,
// so that its end is told.
func (a *Agent) wantBound(pod *v1.Pod, e worker.Entry, known bool) {
	ends := pod.DeletionTimestamp != nil || terminal(&pod.Status)
	switch {
	case known && e.Waiting && ends && a.workers.Withdraw(pod.UID), !known && ends: // it does not have to wait for a predecessor any more
		a.workers.Adopt(pod, worker.State{Phase: worker.Terminating})
		return
	case !known || e.Forget || !a.desired.compare(e.Pod, pod, sameBound):
		a.workers.Set(pod)
	}
	if ends {
		a.workers.Stop(pod.UID, worker.Stop{Grace: pod.DeletionGracePeriodSeconds})
	}
}

// heldBack reports whether a pod of an earlier run waits for the API server to be read: nothing of it runs any more, and it may have been made elsewhere
// meanwhile. The config may say that it does not wait.
func (a *Agent) heldBack(p *steps.Pass) bool {
	if sourceOf(p.Pod) != source.NameAPI || a.cfg.Berth.RunLastKnownPods || a.desired.ready(source.NameAPI) {
		return false
	}
	if s := p.Observed.Sandbox(); s != nil && s.GetState() == runtimeapi.PodSandboxState_SANDBOX_READY {
		return false
	}
	p.Log.Debug("pod of an earlier run waits for the API server")
	return true
}

// releaseBound has the pods looked at that waited for the API server to be read: its own, and any that another agent left running.
func (a *Agent) releaseBound() {
	for uid := range a.workers.List() {
		a.workers.Wake(uid)
	}
}

// sameBound reports whether two versions of a pod of the API server differ in nothing that matters to its worker. What the node itself has told does not.
func sameBound(x, y *v1.Pod) bool {
	return same(x, y) && x.Generation == y.Generation && x.DeletionTimestamp.Equal(y.DeletionTimestamp) &&
		equality.Semantic.DeepEqual(x.DeletionGracePeriodSeconds, y.DeletionGracePeriodSeconds) &&
		terminal(&x.Status) == terminal(&y.Status) && equality.Semantic.DeepEqual(status.Foreign(x), status.Foreign(y))
}
