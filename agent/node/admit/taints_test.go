package admit

import (
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestTaints(t *testing.T) {
	executes := v1.Taint{Key: "level", Value: "5", Effect: v1.TaintEffectNoExecute}
	taints := []v1.Taint{{Key: "x", Effect: v1.TaintEffectNoSchedule}, executes}
	tolerates := func(operator v1.TolerationOperator, value string) []v1.Toleration {
		return []v1.Toleration{{Key: "level", Operator: operator, Value: value}}
	}
	equal := v1.TolerationOpEqual
	for name, c := range map[string]struct {
		taints      []v1.Taint
		tolerations []v1.Toleration
		local       bool
		comparison  bool
		refused     bool
	}{
		"no taints":                    {},
		"a taint":                      {taints: taints, refused: true},
		"a taint, of a manifest's pod": {taints: taints, local: true},
		"a taint for the scheduler":    {taints: taints[:1]},
		"tolerated by key and value":   {taints: taints, tolerations: tolerates(equal, "5")},
		"tolerated for a while": {
			taints:      taints,
			tolerations: []v1.Toleration{{Key: "level", Operator: v1.TolerationOpExists, TolerationSeconds: new(int64)}},
		},
		"another value": {taints: taints, tolerations: tolerates(equal, "6"), refused: true},
		"another effect": {
			taints:      taints,
			tolerations: []v1.Toleration{{Key: "level", Value: "5", Effect: v1.TaintEffectNoSchedule}}, refused: true,
		},
		"everything is tolerated": {
			taints: taints, tolerations: []v1.Toleration{{Operator: v1.TolerationOpExists}},
		},
		"a number, the gate is off": {taints: taints, tolerations: tolerates(v1.TolerationOpLt, "6"), refused: true},
		"a number, the gate is on":  {taints: taints, tolerations: tolerates(v1.TolerationOpLt, "6"), comparison: true},
		"a wrong number": {
			taints: taints, tolerations: tolerates(v1.TolerationOpGt, "6"), comparison: true, refused: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &v1.Pod{Spec: v1.PodSpec{Tolerations: c.tolerations}}
			got := Check(Input{
				Pod: pod, FromAPI: !c.local, Node: Node{Name: "box", Taints: c.taints, TaintComparison: c.comparison},
			})
			if (got != nil) != c.refused {
				t.Fatalf("refused: %+v", got)
			}
			if got != nil && (got.Reason != "TaintToleration" ||
				got.Message != "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate" ||
				got.Detail != "the pod does not tolerate the taint level=5:NoExecute") {
				t.Errorf("%+v", got)
			}
		})
	}
}
