package store

import (
	"context"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
)

// joined is the store's side of watches. The store does not end before the streams.
type joined struct {
	pb.WatchServer
	gate *gate
}

// Watch serves a stream until its context ends. It returns after the stream has read its last.
func (j joined) Watch(stream pb.Watch_WatchServer) error {
	if !j.gate.stream() {
		return rpctypes.ErrGRPCStopped
	}
	defer j.gate.streams.Done()
	return j.WatchServer.Watch(stream)
}

// watches opens streams of watches whose requests wait in a queue. The client's goroutine that
// sends them is the one that takes what comes, and the store takes no more than sixteen requests
// before it can hand over an event: without a queue the two wait for each other when many watches
// end while there are events. A connection's buffers are such a queue.
type watches struct {
	pb.WatchClient
	gate *gate
}

// Watch opens a stream. The client ends it by the context, and so does the store's end.
func (w *watches) Watch(ctx context.Context, o ...grpc.CallOption) (pb.Watch_WatchClient, error) {
	ctx, cancel := context.WithCancel(ctx)
	forget := context.AfterFunc(w.gate.ending, cancel)
	context.AfterFunc(ctx, func() { forget() })
	stream, err := w.WatchClient.Watch(ctx, o...)
	if err != nil {
		cancel()
		return nil, err
	}
	q := &queued{Watch_WatchClient: stream, more: make(chan struct{}, 1)}
	go q.pass()
	return q, nil
}

// queued is a stream of watches with a queue before it.
type queued struct {
	pb.Watch_WatchClient
	more chan struct{} // has a value when something is new in the queue

	mu      sync.Mutex
	waiting []*pb.WatchRequest
	err     error // why no request can be sent any more
}

// Send puts a request into the queue. Its error is that of an earlier request.
func (q *queued) Send(r *pb.WatchRequest) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.err != nil {
		return q.err
	}
	q.waiting = append(q.waiting, r)
	select {
	case q.more <- struct{}{}:
	default: // pass knows
	}
	return nil
}

// pass sends what is in the queue until the stream ends.
func (q *queued) pass() {
	for {
		select {
		case <-q.more:
		case <-q.Context().Done():
			q.end(q.Context().Err())
			return
		}
		for _, r := range q.take() {
			if err := q.Watch_WatchClient.Send(r); err != nil {
				q.end(err)
				return
			}
		}
	}
}

// take empties the queue.
func (q *queued) take() []*pb.WatchRequest {
	q.mu.Lock()
	defer q.mu.Unlock()
	requests := q.waiting
	q.waiting = nil
	return requests
}

func (q *queued) end(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting, q.err = nil, err
}
