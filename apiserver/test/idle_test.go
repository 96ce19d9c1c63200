//go:build cluster

package test

import (
	"errors"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/berthd/berth/apiserver/store"
)

// quiet is longer than any period in which the control plane writes something that nobody asked for.
// The longest that there was had ten seconds.
const quiet = 12 * time.Second

// TestIdleServerWritesNothing waits until the store's revision stays: a server without nodes that
// nobody uses brings nothing to the disk.
func TestIdleServerWritesNothing(t *testing.T) {
	s := start(t)
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{store.Endpoint(s.dir)}, DialTimeout: patience})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	s.await(t, "nothing is written", func() error {
		before, err := client.Get(t.Context(), "/")
		if err != nil {
			return err
		}
		time.Sleep(quiet)
		after, err := client.Get(t.Context(), "/")
		if err != nil {
			return err
		}
		if before.Header.Revision != after.Header.Revision {
			return errors.New("something was")
		}
		return nil
	})
}
