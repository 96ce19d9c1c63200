package store

import (
	"runtime"
	"sync/atomic"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy/adapter"
)

// slowStreams is a store's side of watches that takes its time to end.
type slowStreams struct{ begun, ended atomic.Int32 }

func (s *slowStreams) Watch(stream pb.Watch_WatchServer) error {
	s.begun.Add(1)
	<-stream.Context().Done()
	for range 1000 {
		runtime.Gosched()
	}
	s.ended.Add(1)
	return nil
}

// TestStoreEndsAfterItsStreams closes the gate while there are streams of watches, which nobody else
// ends. They must have ended then, and no other may begin.
func TestStoreEndsAfterItsStreams(t *testing.T) {
	g, streams := newGate(), new(slowStreams)
	w := &watches{adapter.WatchServerToWatchClient(joined{streams, &g}), &g}
	for range 3 {
		if _, err := w.Watch(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for streams.begun.Load() < 3 {
		runtime.Gosched()
	}
	g.close()
	if n := streams.ended.Load(); n != 3 {
		t.Errorf("%d of 3 streams have ended", n)
	}
	late, err := w.Watch(t.Context())
	if err == nil {
		_, err = late.Recv()
	}
	if err == nil || streams.begun.Load() != 3 {
		t.Errorf("another stream began: %v", err)
	}
}
