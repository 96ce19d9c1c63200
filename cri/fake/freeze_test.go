package fake_test

import (
	"testing"
	"testing/synctest"

	"github.com/containerd/errdefs"

	"github.com/berthd/berth/cri/fake"
)

// TestFreeze checks that an agent gets no answers between its freezing and its end. After that
// every call has failed, and none of them has had an effect meanwhile.
func TestFreeze(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := fake.New(fake.Config{})
		rt := node.Connect()
		rt.Freeze()
		rt.Freeze() // a second time has no effect
		answered := make(chan error, 1)
		go func() {
			_, err := rt.Version(t.Context())
			answered <- err
		}()
		synctest.Wait()
		select {
		case err := <-answered:
			t.Fatalf("answered: %v", err)
		default:
		}
		if _, err := node.Version(t.Context()); err != nil {
			t.Errorf("another connection: %v", err)
		}
		rt.Sever()
		if err := <-answered; !errdefs.IsUnavailable(err) {
			t.Errorf("after the end: %v", err)
		}
		rt.Freeze()
		if _, err := rt.Version(t.Context()); !errdefs.IsUnavailable(err) {
			t.Errorf("frozen after the end: %v", err)
		}
	})
}
