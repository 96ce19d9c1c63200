package agent

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthd/berth/cri/fake"
)

// What happened to a pod is known to the next agent, also when the pod is gone.
func TestHistoryOutlivesTheAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, rt := t.TempDir(), fake.New(fake.Config{WriteLogs: true})
		began := time.Now()
		a, end := live(t, dir, rt, staticWeb)
		time.Sleep(time.Minute)
		uid := a.Pods()[0].UID
		end()
		time.Sleep(time.Hour)
		a, end = live(t, dir, rt, manifest(""))
		defer func() { end() }()
		time.Sleep(time.Minute)
		if len(a.Pods()) > 0 {
			t.Fatal("the pod is still there")
		}
		past, err := a.history.Previous(t.Context(), "default", []string{"web", "web-node"}, "")
		if err != nil || past == nil || past.UID != uid || !past.Gone || len(past.Entries) == 0 {
			t.Fatalf("its removal: %+v, %v", past, err)
		}
		past, err = a.history.Previous(t.Context(), "default", []string{"web-node"}, uid)
		if err != nil || past == nil || !past.Gone {
			t.Errorf("before its UID comes back: %+v, %v", past, err)
		}
		list, err := a.history.Events(t.Context(), began)
		var reasons []string
		for i := range list {
			reasons = append(reasons, list[i].Reason)
		}
		text := strings.Join(reasons, " ")
		for _, want := range []string{"Pulled", "Created", "Started", "Killing"} {
			if !strings.Contains(text, want) {
				t.Errorf("events %s: no %s, %v", text, want, err)
			}
		}
	})
}
