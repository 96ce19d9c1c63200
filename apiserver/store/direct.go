package store

import (
	"context"
	"errors"
	"sync"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy/adapter"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Client returns a new client that calls the store's functions and has no connection. The caller
// closes it before the store. A request that comes after [Store.Close] fails as one to a store that
// has ended.
func (s *Store) Client() *kubernetes.Client {
	server := s.etcd.Server
	c := v3client.New(server)
	kv := &direct{KVServer: v3rpc.NewQuotaKVServer(server), gate: &s.gate, room: s.room.check}
	c.KV = clientv3.NewKVFromKVClient(adapter.KvServerToKvClient(kv), c)
	watches := &watches{adapter.WatchServerToWatchClient(v3rpc.NewWatchServer(server))}
	c.Watcher = clientv3.NewWatchFromWatchClient(watches, c)
	client := &kubernetes.Client{Client: c}
	client.Kubernetes = client
	return client
}

// gate keeps requests away from a store that ends: etcd does not survive one that reads its file
// after it was closed. A connection's end does the same for requests of other processes.
type gate struct {
	mu     sync.RWMutex
	closed bool
}

// close waits for the requests under way, and lets no other in.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}

// through calls a function of the store unless the store has ended.
func through[Q, A any](ctx context.Context, g *gate, call func(context.Context, *Q) (*A, error), q *Q) (*A, error) {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.closed {
		return nil, rpctypes.ErrGRPCStopped
	}
	return call(ctx, q)
}

// direct is the store for reads and writes of this process.
type direct struct {
	pb.KVServer
	gate *gate
	// room is the room's check. Who writes without a request of the API has not asked it.
	room func() error
}

// Range reads keys. A store with one member answers a write only after it has applied it, and
// [Start] returns after everything older is applied: what was ever acknowledged is here, and no read
// has to wait until the log says so.
func (d *direct) Range(ctx context.Context, q *pb.RangeRequest) (*pb.RangeResponse, error) {
	q.Serializable = true
	return through(ctx, d.gate, d.KVServer.Range, q)
}

// Put writes a key.
func (d *direct) Put(ctx context.Context, q *pb.PutRequest) (*pb.PutResponse, error) {
	return write(ctx, d, d.KVServer.Put, q)
}

// DeleteRange deletes keys.
func (d *direct) DeleteRange(ctx context.Context, q *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	return write(ctx, d, d.KVServer.DeleteRange, q)
}

// Txn reads and writes keys in one step.
func (d *direct) Txn(ctx context.Context, q *pb.TxnRequest) (*pb.TxnResponse, error) {
	return write(ctx, d, d.KVServer.Txn, q)
}

// Compact drops old revisions.
func (d *direct) Compact(ctx context.Context, q *pb.CompactionRequest) (*pb.CompactionResponse, error) {
	return write(ctx, d, d.KVServer.Compact, q)
}

// write calls a function that writes to the store's log, unless the disk is full.
func write[Q, A any](ctx context.Context, d *direct, call func(context.Context, *Q) (*A, error), q *Q) (*A, error) {
	if err := d.room(); errors.Is(err, ErrNoRoom) {
		return nil, status.Error(codes.ResourceExhausted, err.Error())
	}
	return through(ctx, d.gate, call, q)
}

// watches opens streams of watches whose requests wait in a queue. The client's goroutine that
// sends them is the one that takes what comes, and the store takes no more than sixteen requests
// before it can hand over an event: without a queue the two wait for each other when many watches
// end while there are events. A connection's buffers are such a queue.
type watches struct{ pb.WatchClient }

// Watch opens a stream. The client ends it by the context.
func (w *watches) Watch(ctx context.Context, o ...grpc.CallOption) (pb.Watch_WatchClient, error) {
	stream, err := w.WatchClient.Watch(ctx, o...)
	if err != nil {
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
