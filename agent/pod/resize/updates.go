package resize

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/berthd/berth/cgroups"
)

// Update is what one running instance has to be given.
type Update struct {
	Instance
	Container  *v1.Container
	Have, Want v1.ResourceRequirements
	// Restart says that the container's resizePolicy wants a restart instead of an update.
	Restart bool
}

// Updates returns what is left to give to the instances of a pod that has what it was allocated.
// Instances that get less come first.
func (s *State) Updates(pod *v1.Pod, running []Instance) []Update {
	var out []Update
	for _, in := range running {
		c := Container(pod, in.Name)
		if c == nil {
			continue
		}
		u := Update{Instance: in, Container: c, Have: s.Actuated[in.ID], Want: Effective(pod, c)}
		if equality.Semantic.DeepEqual(u.Have, u.Want) {
			continue
		}
		u.Restart = restarts(c, u.Have, u.Want)
		out = append(out, u)
	}
	slices.SortStableFunc(out, func(a, b Update) int {
		return cmp.Or(cmp.Compare(direction(a, v1.ResourceMemory), direction(b, v1.ResourceMemory)),
			cmp.Compare(direction(a, v1.ResourceCPU), direction(b, v1.ResourceCPU)))
	})
	return out
}

// direction says in which direction a limit changes: -1 for down. A limit where there was none is a
// change down.
func direction(u Update, name v1.ResourceName) int {
	have, want := u.Have.Limits[name], u.Want.Limits[name]
	switch {
	case have.IsZero() && !want.IsZero():
		return -1
	case want.IsZero() && !have.IsZero():
		return 1
	}
	return want.Cmp(have)
}

// ShrinksMemory reports whether the instance's memory limit goes down, and to how many bytes.
func (u Update) ShrinksMemory() (limit int64, shrinks bool) {
	want := u.Want.Limits[v1.ResourceMemory]
	return want.Value(), direction(u, v1.ResourceMemory) < 0
}

// restarts reports whether one of the resources that change has the policy RestartContainer.
func restarts(c *v1.Container, have, want v1.ResourceRequirements) bool {
	changes := func(name v1.ResourceName) bool {
		request, limit := want.Requests[name], want.Limits[name]
		return request.Cmp(have.Requests[name]) != 0 || limit.Cmp(have.Limits[name]) != 0
	}
	return slices.ContainsFunc(c.ResizePolicy, func(p v1.ContainerResizePolicy) bool {
		return p.RestartPolicy == v1.RestartContainer && changes(p.ResourceName)
	})
}

// Before returns the pod with what its containers and the pod as a whole have now, in place of what
// it was allocated.
func (s *State) Before(pod *v1.Pod, running []Instance) *v1.Pod {
	have := Of(pod)
	have.Pod = s.Pod.DeepCopy()
	for _, in := range running {
		if r, ok := s.Actuated[in.ID]; ok && Container(pod, in.Name) != nil {
			have.Containers[in.Name] = r
		}
	}
	return have.On(pod)
}

// Wide returns the pod whose limits its cgroup has while its containers get their new resources.
// For the limits and the requests of each resource, it has whichever is more: what the containers
// have (before) or what they will have (after). So the cgroup grows before its containers, and
// shrinks after them.
func Wide(before, after *v1.Pod) *v1.Pod {
	b, a := totals(before), totals(after)
	from := map[field]Resources{}
	for f, total := range a {
		if b[f] > total {
			from[f] = Of(before)
		}
	}
	if len(from) == 0 {
		return after
	}
	out := Of(after)
	for f, r := range from {
		if r.Pod == nil {
			// the pod had none of its own: the sums of its containers count
			r.Pod = &v1.ResourceRequirements{}
		}
		if out.Pod != nil {
			f.set(out.Pod, *r.Pod)
		}
		for name, c := range out.Containers {
			f.set(&c, r.Containers[name])
			out.Containers[name] = c
		}
	}
	return out.On(after)
}

// field is the limits or the requests of one resource.
type field struct {
	name  v1.ResourceName
	limit bool
}

// set copies the field's amount.
func (f field) set(to *v1.ResourceRequirements, from v1.ResourceRequirements) {
	list, source := &to.Requests, from.Requests
	if f.limit {
		list, source = &to.Limits, from.Limits
	}
	next := list.DeepCopy()
	if next == nil {
		next = v1.ResourceList{}
	}
	delete(next, f.name)
	if q, ok := source[f.name]; ok {
		next[f.name] = q
	}
	*list = next
}

// totals are the limits of a pod's cgroup. No limit counts as more than any limit.
func totals(pod *v1.Pod) map[field]uint64 {
	l := cgroups.PodLimits(pod, cgroups.Options{CPUQuota: true})
	none := func(limit int64) uint64 {
		if limit <= 0 {
			return 1 << 63
		}
		return uint64(limit)
	}
	return map[field]uint64{
		{v1.ResourceMemory, true}: none(l.Memory),
		{v1.ResourceCPU, true}:    none(l.CPUQuota),
		{v1.ResourceCPU, false}:   l.CPUShares,
	}
}
