package fake_test

import (
	"testing"
	"testing/synctest"

	"github.com/containerd/errdefs"

	"github.com/berthd/berth/cri/fake"
)

// What an agent hears between its freezing and its end is nothing; then every call has failed, and what it asked for meanwhile was not done.
func TestFreeze(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		node := fake.New(fake.Config{})
		rt := node.Connect()
		rt.Freeze()
		rt.Freeze() // once more is nothing
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
