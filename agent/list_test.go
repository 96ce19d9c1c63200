package agent

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/cri/fake"
)

// A pod that is removed before its first report is listed until it is gone: "berth run" waits for
// that before it ends the agent.
func TestListedUntilGone(t *testing.T) {
	const web = manifest(
		`{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: app, image: app}]}}`)
	uid := (source.Decoder{NodeName: "node"}).Decode("pod.yaml", []byte(web))[0].Pod.UID
	synctest.Test(t, func(t *testing.T) {
		comes := make(chan struct{})
		rt := fake.New(fake.Config{})
		a, end := live(t, t.TempDir(), rt, late{web, comes})
		defer end()
		time.Sleep(time.Second)
		rt.Inject(fake.Fault{Hang: true})
		close(comes)
		synctest.Wait()
		a.workers.Remove(uid)
		synctest.Wait()
		if got := a.Pods(); len(got) != 1 || got[0].Status.Phase != v1.PodPending {
			t.Errorf("listed while its first sync hangs: %+v", got)
		}
		rt.ClearFaults()
		time.Sleep(time.Minute)
		if got := a.Pods(); len(got) != 0 {
			t.Errorf("listed after its end: %+v", got)
		}
	})
}
