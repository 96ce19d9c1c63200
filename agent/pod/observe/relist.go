package observe

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/pod/plan"
	"github.com/berthd/berth/cri"
)

// Listed is a pod as [Observer.Relist] found it.
type Listed struct {
	// Namespace and Name are from the labels of one of the pod's sandboxes or containers. They are
	// empty if no labels name the pod, or if the names or the UID could lead to other paths.
	Namespace, Name string
	// Labels and Annotations are the newest sandbox's.
	Labels, Annotations map[string]string
	// GraceSeconds is the grace period from a container's annotations, or upstream's default if no
	// container has it.
	GraceSeconds int64
	// Ready says that the pod has a ready sandbox.
	Ready bool
	// Changed says that the pod differs from what its last sync observed, or was never observed.
	Changed bool

	attempt    uint32 // the newest sandbox's
	sandboxes  []*runtimeapi.PodSandbox
	containers []*runtimeapi.Container
}

// listing is all that the runtime has, by pod. It leaves out everything without a pod's UID.
type listing struct {
	pods  map[types.UID]*Listed
	owner map[string]types.UID
}

// Relist is the listing of the PLEG: it lists everything in two calls and returns each pod found. A
// pod that was observed before and is gone is in the result, too, as changed and without names.
// What is remembered of things that are gone is dropped.
func (o *Observer) Relist(ctx context.Context) (map[types.UID]*Listed, error) {
	sandboxes, err := o.rt.ListPodSandbox(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("listing all sandboxes: %w", err)
	}
	containers, err := o.rt.ListContainers(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("listing all containers: %w", err)
	}
	all := listing{pods: map[types.UID]*Listed{}, owner: map[string]types.UID{}}
	for _, s := range sandboxes {
		all.sandbox(s)
	}
	for _, c := range containers {
		all.container(c)
	}
	o.compare(&all)
	return all.pods, nil
}

// sandbox adds a sandbox to its pod.
func (all *listing) sandbox(s *runtimeapi.PodSandbox) {
	l := all.pod(s.Id, s.Labels)
	if l == nil {
		return
	}
	if len(l.sandboxes) == 0 || s.GetMetadata().GetAttempt() >= l.attempt {
		l.Labels, l.Annotations, l.attempt = s.Labels, s.Annotations, s.GetMetadata().GetAttempt()
	}
	l.Ready = l.Ready || s.State == runtimeapi.PodSandboxState_SANDBOX_READY
	l.sandboxes = append(l.sandboxes, s)
}

// container adds a container to its pod.
func (all *listing) container(c *runtimeapi.Container) {
	l := all.pod(c.Id, c.Labels)
	if l == nil {
		return
	}
	l.containers = append(l.containers, c)
	// Other annotations may be malformed: those that could be read are used.
	if id, err := cri.ParseContainer(c.Labels, c.Annotations); !errors.Is(err, cri.ErrUnmanaged) &&
		id.GracePeriod != nil {
		l.GraceSeconds = *id.GracePeriod
	}
}

// pod returns the pod that something with these labels belongs to, nil if it belongs to none.
func (all *listing) pod(id string, labels map[string]string) *Listed {
	uid := types.UID(labels[cri.LabelPodUID])
	if uid == "" {
		return nil
	}
	all.owner[id] = uid
	l := all.pods[uid]
	if l == nil {
		l = &Listed{Labels: labels, GraceSeconds: v1.DefaultTerminationGracePeriodSeconds}
		all.pods[uid] = l
	}
	if id, ok := cri.ParseSandbox(labels, nil); ok && l.Name == "" {
		l.Namespace, l.Name = id.Namespace, id.Name
	}
	return l
}

// compare marks the pods that differ from what their last syncs observed, and drops what is
// remembered of things that are gone.
func (o *Observer) compare(all *listing) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for uid, l := range all.pods {
		l.Changed = o.seen[uid] != signature(l.sandboxes, l.containers)
		l.sandboxes, l.containers = nil, nil
	}
	for uid, before := range o.seen {
		if all.pods[uid] == nil && before != 0 {
			all.pods[uid] = &Listed{Changed: true}
		}
	}
	o.owner = all.owner
	maps.DeleteFunc(o.containers, func(id string, _ *plan.Container) bool { return all.owner[id] == "" })
	maps.DeleteFunc(o.exits, func(id string, _ early) bool { return all.owner[id] == "" })
	maps.DeleteFunc(o.sandboxes, func(id string, _ *runtimeapi.PodSandboxStatus) bool { return all.owner[id] == "" })
}

// signature sums up which sandboxes and containers a pod has, and in what state. It is 0 for none.
func signature(sandboxes []*runtimeapi.PodSandbox, containers []*runtimeapi.Container) uint64 {
	parts := make([]string, 0, len(sandboxes)+len(containers))
	for _, s := range sandboxes {
		parts = append(parts, s.Id+s.State.String())
	}
	for _, c := range containers {
		parts = append(parts, c.Id+c.State.String())
	}
	if len(parts) == 0 {
		return 0
	}
	slices.Sort(parts)
	h := fnv.New64a()
	for _, p := range parts {
		h.Write([]byte(p))
	}
	return h.Sum64()
}
