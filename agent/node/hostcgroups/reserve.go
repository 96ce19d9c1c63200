package hostcgroups

import (
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/cgroups"
)

// Reserved are the amounts that the config keeps from the pods: for the services of the system
// (systemReserved), and for those of Kubernetes (kubeReserved).
type Reserved struct{ System, Kube v1.ResourceList }

// reserver sets the limits of a cgroup with a reservation; *cgroups.Manager implements it.
type reserver interface {
	Reserve(r cgroups.Reservation) error
}

// owner is who has a reservation.
type owner struct {
	// key begins the values of enforceNodeAllocatable. title and label are the kubelet's names in
	// messages.
	key, title, label string
	cgroup            string
	resources         v1.ResourceList
}

// reserve sets the limits of the cgroups that have the reserved amounts, as far as the config wants
// them enforced. It fails if such a cgroup does not exist, as a kubelet does: otherwise services
// and pods would take from each other what both count on.
func (h *Host) reserve(to reserver) error {
	k := &h.deps.Config.Kubelet
	owners := []owner{
		{"system-reserved", "System Reserved", "system", k.SystemReservedCgroup, h.deps.Reserved.System},
		{"kube-reserved", "Kube Reserved", "kube", k.KubeReservedCgroup, h.deps.Reserved.Kube},
	}
	for _, compressible := range []bool{false, true} {
		for _, o := range owners {
			if compressible {
				o.key, o.title = o.key+"-compressible", o.title+" Compressible"
			}
			if !slices.Contains(k.EnforceNodeAllocatable, o.key) {
				continue
			}
			r := cgroups.Reservation{Cgroup: o.cgroup, Resources: o.resources, Compressible: compressible}
			if err := to.Reserve(r); err != nil {
				message := fmt.Sprintf("Failed to enforce %s Cgroup Limits on %q: %v", o.title, o.cgroup, err)
				h.deps.Event(v1.EventTypeWarning, "FailedNodeAllocatableEnforcement", message)
				return fmt.Errorf("enforceNodeAllocatable %s: make the cgroup %q before the agent starts, or name another "+
					"one: %w", o.key, o.cgroup, err)
			}
			h.deps.Event(v1.EventTypeNormal, "NodeAllocatableEnforced",
				fmt.Sprintf("Updated limits on %s reserved cgroup %s", o.label, o.cgroup))
		}
	}
	return nil
}
