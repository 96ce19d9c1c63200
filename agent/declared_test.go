package agent

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/cri/fake"
)

// A pod that needs a feature which the config takes away from the node is refused, as by a kubelet.
func TestPodOfAMissingFeature(t *testing.T) {
	const pod = manifest(
		`{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {restartPolicy: Never, containers: [{name: app, image: app, restartPolicy: Never,
  restartPolicyRules: [{action: RestartAllContainers, exitCodes: {operator: In, values: [7]}}]}]}}`)
	for _, on := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			a, end := liveWith(t, t.TempDir(), fake.New(fake.Config{WriteLogs: true}), pod, Deps{},
				func(cfg *configs.Config) {
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
				want = v1.PodStatus{
					Phase:  v1.PodFailed,
					Reason: "PodFeatureUnsupported",
					Message: "Pod was rejected: Pod requires node features that are not available: " +
						"RestartAllContainersOnContainerExits",
				}
			}
			if got.Phase != want.Phase || got.Reason != want.Reason || got.Message != want.Message {
				t.Errorf("with the feature %v: %s %s %q", on, got.Phase, got.Reason, got.Message)
			}
		})
	}
}
