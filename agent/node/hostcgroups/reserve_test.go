package hostcgroups

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berthd/berth/cgroups"
	"github.com/berthd/berth/configs"
)

// kernel is a reserver that notes what it was asked for.
type kernel struct {
	fails string
	did   []string
}

func (k *kernel) Reserve(r cgroups.Reservation) error {
	if r.Cgroup == k.fails {
		return errors.New("no such cgroup")
	}
	k.did = append(k.did, fmt.Sprintf("%s %s %t", r.Cgroup, r.Resources.Cpu(), r.Compressible))
	return nil
}

func TestReserve(t *testing.T) {
	cpus := func(n string) v1.ResourceList { return v1.ResourceList{v1.ResourceCPU: resource.MustParse(n)} }
	for name, c := range map[string]struct {
		enforced string
		fails    string
		want     string
	}{
		"pods alone": {enforced: "pods"},
		"both": {
			enforced: "pods system-reserved kube-reserved",
			want: "system.slice 1 false; /kube 2 false; Normal NodeAllocatableEnforced Updated limits on system reserved " +
				"cgroup system.slice; Normal NodeAllocatableEnforced Updated limits on kube reserved cgroup /kube",
		},
		"their weights": {
			enforced: "kube-reserved-compressible system-reserved-compressible",
			want: "system.slice 1 true; /kube 2 true; Normal NodeAllocatableEnforced Updated limits on system reserved " +
				"cgroup system.slice; Normal NodeAllocatableEnforced Updated limits on kube reserved cgroup /kube",
		},
		"one is missing": {
			enforced: "system-reserved-compressible kube-reserved", fails: "/kube",
			want: `Warning FailedNodeAllocatableEnforcement Failed to enforce Kube Reserved Cgroup Limits on "/kube": no ` +
				`such cgroup; enforceNodeAllocatable kube-reserved: make the cgroup "/kube" before the agent starts, or ` +
				`name another one: no such cgroup`,
		},
		"one is missing, of weights": {
			enforced: "system-reserved-compressible", fails: "system.slice",
			want: `Warning FailedNodeAllocatableEnforcement Failed to enforce System Reserved Compressible Cgroup Limits ` +
				`on "system.slice": no such cgroup; enforceNodeAllocatable system-reserved-compressible: make the cgroup ` +
				`"system.slice" before the agent starts, or name another one: no such cgroup`,
		},
	} {
		cfg := &configs.Config{}
		cfg.Kubelet.EnforceNodeAllocatable = strings.Fields(c.enforced)
		cfg.Kubelet.SystemReservedCgroup, cfg.Kubelet.KubeReservedCgroup = "system.slice", "/kube"
		k, told := &kernel{fails: c.fails}, []string{}
		h := New(Deps{
			Config: cfg, Reserved: Reserved{System: cpus("1"), Kube: cpus("2")},
			Event: func(kind, reason, message string) { told = append(told, kind+" "+reason+" "+message) },
		})
		if err := h.reserve(k); err != nil {
			told = append(told, err.Error())
		}
		if got := strings.Join(append(k.did, told...), "; "); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, c.want)
		}
	}
}
