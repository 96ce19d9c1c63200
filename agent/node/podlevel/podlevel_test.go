package podlevel

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
)

// list makes amounts of cpu, memory and huge pages from "1 1Gi 2Mi".
func list(text string) v1.ResourceList {
	out := v1.ResourceList{}
	for i, amount := range strings.Fields(text) {
		out[[]v1.ResourceName{"cpu", "memory", "hugepages-2Mi"}[i]] = resource.MustParse(amount)
	}
	return out
}

// podOf makes a pod with resources of its own, if there are some. Each container is "name cpu
// memory"; a name with a leading "-" is an init container, one with "+" a sidecar.
func podOf(own string, containers ...string) *v1.Pod {
	pod := &v1.Pod{}
	if own != "" {
		pod.Spec.Resources = &v1.ResourceRequirements{Requests: list(own), Limits: list(own)}
	}
	for _, text := range containers {
		name, amounts, _ := strings.Cut(text, " ")
		c := v1.Container{
			Name:      strings.TrimLeft(name, "-+"),
			Resources: v1.ResourceRequirements{Requests: list(amounts), Limits: list(amounts)},
		}
		switch name[0] {
		case '-':
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		case '+':
			c.RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		default:
			pod.Spec.Containers = append(pod.Spec.Containers, c)
		}
	}
	return pod
}

func TestRules(t *testing.T) {
	burstable := podOf("2 1Gi", "app 1 1Gi")
	burstable.Spec.Resources.Limits = list("3 1Gi")
	halfLimited := podOf("2 1Gi", "app 1 1Gi")
	halfLimited.Spec.Containers[0].Resources.Limits = list("2 1Gi")
	all, byContainer := Rules{Managed: true, ByPod: true}, Rules{Managed: true}
	for name, c := range map[string]struct {
		rules      Rules
		pod        *v1.Pod
		whole, own bool
	}{
		"without the gate":           {Rules{ByPod: true}, podOf("2 1Gi", "app 1 1Gi"), false, false},
		"container by container":     {byContainer, podOf("2 1Gi", "app 1 1Gi"), false, true},
		"as a whole":                 {all, podOf("2 1Gi", "app 1 1Gi"), true, true},
		"without resources":          {all, podOf("", "app 1 1Gi"), false, true},
		"Burstable":                  {all, burstable, false, false},
		"a container without any":    {all, podOf("2 1Gi", "app"), true, false},
		"a container without memory": {all, podOf("2 1Gi", "app 1"), true, false},
		"a container with less":      {all, halfLimited, true, false},
	} {
		if got := c.rules.Whole(c.pod); got != c.whole {
			t.Errorf("%s: whole %t", name, got)
		}
		if got := c.rules.Own(c.pod, &c.pod.Spec.Containers[0]); got != c.own {
			t.Errorf("%s: the container for itself %t", name, got)
		}
	}
}

func TestPool(t *testing.T) {
	for _, c := range []struct {
		pod  *v1.Pod
		want string
	}{
		{podOf("4 4Gi", "app 2 2Gi", "shares"), ""},
		{podOf("4 4Gi", "app 4 4Gi"), ""},
		{podOf("4 4Gi", "-init 4 4Gi", "app 2 2Gi", "shares"), ""},
		{podOf("4 4Gi", "-init", "app 4 4Gi"), ""},
		{podOf("4 4Gi", "+side", "app 3 3Gi"), ""},
		{
			podOf("4 4Gi", "app 4 2Gi", "shares"),
			"sum of exclusive container cpu requests equals pod budget, leaving no cpus for shared containers",
		},
		{
			podOf("4 4Gi", "app 2 4Gi", "shares"),
			"sum of exclusive container memory requests equals pod budget, leaving no memory for shared containers",
		},
		{
			podOf("4 4Gi 4Mi", "app 2 2Gi 4Mi", "shares"),
			"sum of exclusive container hugepages-2Mi requests equals pod budget, leaving no memory for shared containers",
		},
		{
			podOf("4 4Gi", "+side", "app 4 2Gi"),
			"sum of exclusive container cpu requests equals pod budget, leaving no cpus for shared containers",
		},
		{podOf("4 4Gi", "+side 4 2Gi", "-init"), "pod has shared init containers but no cpus available for them"},
		{podOf("4 4Gi", "+side 2 4Gi", "-init"), "pod has shared init containers but no memory available for them"},
		{podOf("4 4Gi", "-init", "+side 4 4Gi"), ""},
	} {
		amounts := func(list v1.ResourceList) Amounts {
			out := Amounts{}
			for name, amount := range list {
				out[name] = uint64(amount.Value())
			}
			return out
		}
		err := Pool(c.pod, amounts(c.pod.Spec.Resources.Requests), func(c *v1.Container) Amounts {
			return amounts(c.Resources.Requests)
		})
		if got := ""; err != nil || c.want != "" {
			if err != nil {
				got = err.Error()
			}
			if got != "pod rejected, "+c.want {
				t.Errorf("%v: %s, want %s", c.pod.Spec, got, c.want)
			}
		}
	}
}
