package agent

import (
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/checkpoint"
	"github.com/berthd/berth/agent/events"
	"github.com/berthd/berth/agent/steps"
	"github.com/berthd/berth/agent/worker"
	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/cri/fake"
)

// A pod that needs a feature which the config takes away from the node is refused, as by a kubelet.
func TestPodOfAMissingFeature(t *testing.T) {
	const pod = manifest(`{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {restartPolicy: Never, containers: [{name: app, image: app, restartPolicy: Never,
  restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [7]}}]}]}}`)
	for _, on := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			a, end := liveWith(t, t.TempDir(), fake.New(fake.Config{WriteLogs: true}), pod, Deps{}, func(cfg *configs.Config) {
				cfg.Kubelet.FeatureGates = map[string]bool{"RestartAllContainersOnContainerExits": on}
			})
			defer end()
			time.Sleep(5 * time.Second)
			pods := a.Pods()
			if len(pods) != 1 {
				t.Fatalf("pods %v", pods)
			}
			got, want := pods[0].Status, v1.PodStatus{Phase: v1.PodRunning}
			if !on {
				want = v1.PodStatus{Phase: v1.PodFailed, Reason: "PodFeatureUnsupported", Message: "Pod was rejected: Pod requires node features that are not available: RestartAllContainersOnContainerExits"}
			}
			if got.Phase != want.Phase || got.Reason != want.Reason || got.Message != want.Message {
				t.Errorf("with the feature %v: %s %s %q", on, got.Phase, got.Reason, got.Message)
			}
		})
	}
}

// A change that needs such a feature is told of.
func TestChangeOfAMissingFeature(t *testing.T) {
	const text = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {resources: {requests: {cpu: %s}}, containers: [{name: main, image: m}]}\n"
	before, wanted := decoded(t, fmt.Sprintf(text, "100m")), decoded(t, fmt.Sprintf(text, "200m"))
	wanted.UID = before.UID
	for gate, want := range map[string]string{
		"InPlacePodLevelResourcesVerticalScaling": "Pod requires node features that are not available: InPlacePodLevelResourcesVerticalScaling",
		"InPlacePodVerticalScalingInitContainers": "",
		"NodeDeclaredFeatures":                    "",
	} {
		a := holdingTo(t, configs.PodSecurityPrivileged, gate)
		a.events = events.New("n")
		p := &steps.Pass{Pod: wanted, Record: &checkpoint.Record{Pod: before, Admitted: true}, Log: slog.New(slog.DiscardHandler)}
		work := worker.Work{UID: wanted.UID, Pod: wanted, Phase: worker.Running}
		a.takeNotice(p, work)
		a.takeNotice(p, work) // nothing has changed since
		got := a.events.List()
		switch {
		case want == "" && len(got) != 0, want != "" && (len(got) != 1 || got[0].Reason != "FailedNodeDeclaredFeaturesCheck" || got[0].Message != want || got[0].Count != 1 || got[0].Type != v1.EventTypeWarning):
			t.Errorf("without %s: %+v", gate, got)
		}
	}
}

// What every pod meets is told of the node once.
func TestNodeIsToldOnce(t *testing.T) {
	o := &nodeOnce{Recorder: events.New("n")}
	for range 3 {
		o.Node(v1.EventTypeWarning, "MissingClusterDNS", "m")
		o.Pod(&v1.Pod{}, "", v1.EventTypeWarning, "MissingClusterDNS", "m")
	}
	o.Node(v1.EventTypeWarning, "Other", "m")
	var got []string
	for _, e := range o.List() {
		got = append(got, fmt.Sprintf("%s %s %d", e.InvolvedObject.Kind, e.Reason, e.Count))
	}
	if want := []string{"Node MissingClusterDNS 1", "Node Other 1", "Pod MissingClusterDNS 3"}; !slices.Equal(slices.Sorted(slices.Values(got)), want) {
		t.Errorf("%q, want %q", got, want)
	}
}
