package plan

import (
	"slices"

	v1 "k8s.io/api/core/v1"
)

// restartAll ends and removes all of the pod's containers but the ephemeral ones, if one of them
// ended by a rule that asks for that (KEP-5532). It reports whether there is still something to end
// or remove. The sandbox, the volumes and the restart counts stay. The containers that asked for
// the restart are removed last: an agent that starts in between and remembers nothing sees them and
// goes on with the restart.
func (d *decision) restartAll() bool {
	var others, asked []*Container
	for _, c := range d.Observed.Containers {
		spec, kind := FindContainer(d.Pod, c.Name())
		switch {
		case spec == nil, kind == Ephemeral:
		case asksRestartAll(&d.Observed, c, spec):
			asked = append(asked, c)
		default:
			others = append(others, c)
		}
	}
	if len(asked) == 0 && (!d.RestartingAll || len(others) == 0) {
		return false
	}
	d.RestartAll = true
	for _, c := range asked {
		if d.RestartedBy == nil || c.FinishedAt < d.RestartedBy.FinishedAt {
			d.RestartedBy = c
		}
	}
	for _, c := range others {
		if c.Running() {
			// Its stop may be under way with a longer grace. The step that carries out the stop
			// shortens it.
			spec, _ := FindContainer(d.Pod, c.Name())
			d.Kill = append(d.Kill, Kill{
				Container: c,
				Spec:      spec,
				Reason:    KillRestartAll,
				Message:   "Container " + c.Name() + " will be restarted with all others",
			})
		} else {
			d.RemoveContainers = append(d.RemoveContainers, c)
		}
	}
	if len(others) == 0 {
		d.RemoveContainers = asked
	}
	return true
}

// AsksRestartAll reports whether one of the pod's containers has ended by a rule that starts all of
// them again.
func AsksRestartAll(pod *v1.Pod, o *Observed) bool {
	return slices.ContainsFunc(o.Containers, func(c *Container) bool {
		spec, kind := FindContainer(pod, c.Name())
		return spec != nil && kind != Ephemeral && asksRestartAll(o, c, spec)
	})
}

// asksRestartAll reports whether a container is the latest attempt of its name and ended by such a
// rule.
func asksRestartAll(o *Observed, c *Container, spec *v1.Container) bool {
	if !c.Exited() || c != o.Latest(c.Name()) {
		return false
	}
	r := ruleFor(spec, c.ExitCode)
	return r != nil && r.Action == v1.ContainerRestartRuleActionRestartAllContainers
}
