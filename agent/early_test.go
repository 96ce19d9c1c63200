package agent

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/cri/fake"
)

// An exit that the runtime does not list yet is reported at once, but not as the end of the pod:
// people who wait for that end read its reason and its termination message.
func TestEarlyExitsEndNoPod(t *testing.T) {
	for policy, reported := range map[string]bool{"Always": true, "OnFailure": true, "Never": false} {
		t.Run(policy, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := fake.New(fake.Config{WriteLogs: true})
				a, end := live(t, t.TempDir(), rt,
					manifest(`{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {restartPolicy: `+policy+
						`, containers: [{name: app, image: app}]}}`))
				defer end()
				time.Sleep(5 * time.Second)
				a.pleg.Observer().Exited(rt.Container("app").Id, &cri.Exit{Code: 137, At: time.Now()})
				a.workers.Wake(a.Pods()[0].UID)
				synctest.Wait()
				got := a.Pods()[0].Status
				if got.Phase != v1.PodRunning || (got.ContainerStatuses[0].State.Terminated != nil) != reported {
					t.Errorf("phase %s, container %+v", got.Phase, got.ContainerStatuses[0].State)
				}
				if err := rt.OOMKill("app"); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				got = a.Pods()[0].Status
				if !reported &&
					(got.Phase != v1.PodFailed || got.ContainerStatuses[0].State.Terminated.Reason != "OOMKilled") {
					t.Errorf("phase %s, container %+v", got.Phase, got.ContainerStatuses[0].State)
				}
			})
		})
	}
}
