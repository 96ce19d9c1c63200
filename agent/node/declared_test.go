package node

import (
	"log/slog"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/node/admit"
	"github.com/berthd/berth/configs"
)

// A feature that the config switches off is not declared.
func TestDeclaredFeatures(t *testing.T) {
	for gate, want := range map[string]int{
		"":                                     3,
		"NodeDeclaredFeatures":                 0,
		"RestartAllContainersOnContainerExits": 2,
		"AllBeta":                              0,
	} {
		cfg := &configs.Config{}
		if gate != "" {
			cfg.Kubelet.FeatureGates = map[string]bool{gate: false}
		}
		if got := declaredFeatures(cfg); len(got) != want {
			t.Errorf("without %q: %v", gate, got)
		}
	}
}

// TestAdmissionAsksForDeclaredFeatures: a pod that needs a feature that the node does not declare
// is refused, unless the feature gate is off.
func TestAdmissionAsksForDeclaredFeatures(t *testing.T) {
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{
		Name:               "c",
		RestartPolicyRules: []v1.ContainerRestartRule{{Action: v1.ContainerRestartRuleActionRestartAllContainers}},
	}}}}
	for name, test := range map[string]struct {
		gates map[string]bool
		want  string
	}{
		"declared": {},
		"taken away": {
			map[string]bool{"RestartAllContainersOnContainerExits": false},
			"Pod requires node features that are not available: RestartAllContainersOnContainerExits",
		},
		"nobody asks": {
			map[string]bool{"RestartAllContainersOnContainerExits": false, "NodeDeclaredFeatures": false}, "",
		},
		"all beta gone": {map[string]bool{"AllBeta": false}, ""},
	} {
		cfg, _, err := configs.Load(configs.Options{})
		if err != nil {
			t.Fatal(err)
		}
		cfg.RootDir, cfg.Kubelet.FeatureGates = t.TempDir(), test.gates
		n, err := New(cfg, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		got := admit.Check(admit.Input{Pod: pod, Node: n.Admission()})
		switch {
		case test.want == "" && got != nil,
			test.want != "" && (got == nil || got.Reason != "PodFeatureUnsupported" || got.Message != test.want):
			t.Errorf("%s: %+v, want %q", name, got, test.want)
		}
	}
}
