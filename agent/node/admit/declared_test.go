package admit

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func TestDeclaredFeatures(t *testing.T) {
	yes, no := true, false
	restarts := []v1.ContainerRestartRule{{Action: v1.ContainerRestartRuleActionRestartAllContainers}}
	for name, test := range map[string]struct {
		declared []string
		spec     v1.PodSpec
		want     string
	}{
		"needs nothing": {spec: v1.PodSpec{
			Containers:  []v1.Container{{Name: "c"}},
			HostNetwork: true,
			HostUsers:   &yes,
		}},
		"has it": {
			declared: []string{"RestartAllContainersOnContainerExits"},
			spec:     v1.PodSpec{Containers: []v1.Container{{RestartPolicyRules: restarts}}},
		},
		"lacks it": {
			declared: []string{"Unheard", "InPlacePodLevelResourcesVerticalScaling"},
			spec:     v1.PodSpec{Containers: []v1.Container{{RestartPolicyRules: restarts}}},
			want:     "RestartAllContainersOnContainerExits",
		},
		"by init container": {
			spec: v1.PodSpec{InitContainers: []v1.Container{{RestartPolicyRules: restarts}}},
			want: "RestartAllContainersOnContainerExits",
		},
		"two of them": {
			spec: v1.PodSpec{
				Containers:  []v1.Container{{RestartPolicyRules: restarts}},
				HostNetwork: true,
				HostUsers:   &no,
			},
			want: "RestartAllContainersOnContainerExits, UserNamespacesHostNetworkSupport",
		},
	} {
		d, err := NewDeclared(test.declared, "v1.36.3+berth")
		if err != nil {
			t.Fatal(err)
		}
		got := featuresDeclared(Input{Pod: &v1.Pod{Spec: test.spec}, Node: Node{Declared: d}})
		switch want := "Pod requires node features that are not available: " + test.want; {
		case test.want == "" && got != nil,
			test.want != "" && (got == nil || got.Message != want || got.Reason != "PodFeatureUnsupported"):
			t.Errorf("%s: %+v, want %q", name, got, test.want)
		}
		if got := featuresDeclared(Input{Pod: &v1.Pod{Spec: test.spec}}); got != nil {
			t.Errorf("%s, where nobody asks: %+v", name, got)
		}
	}
	if _, err := NewDeclared(nil, "new"); err == nil {
		t.Error("a version that is none was taken")
	}
}

func TestMissingForChange(t *testing.T) {
	with := func(pod, init string) *v1.Pod {
		p := &v1.Pod{Spec: v1.PodSpec{
			InitContainers: []v1.Container{{Name: "i"}}, Resources: &v1.ResourceRequirements{},
		}}
		p.Spec.Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse(pod)}
		p.Spec.InitContainers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse(init)}
		return p
	}
	const podLevel, inits = "InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers"
	for name, test := range map[string]struct {
		declared []string
		to       *v1.Pod
		want     []string
	}{
		"none":     {to: with("1", "1")},
		"both":     {to: with("2", "2"), want: []string{podLevel, inits}},
		"one":      {declared: []string{podLevel}, to: with("2", "2"), want: []string{inits}},
		"declared": {declared: []string{inits, podLevel}, to: with("2", "2")},
	} {
		d, err := NewDeclared(test.declared, "v1.36.3")
		if err != nil {
			t.Fatal(err)
		}
		if got, err := d.MissingForChange(with("1", "1"), test.to); err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, %v, want %v", name, got, err, test.want)
		}
	}
}
