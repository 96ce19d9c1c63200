package store

import (
	"context"
	"errors"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy/adapter"
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
	watches := &watches{adapter.WatchServerToWatchClient(joined{v3rpc.NewWatchServer(server), &s.gate}), &s.gate}
	c.Watcher = clientv3.NewWatchFromWatchClient(watches, c)
	client := &kubernetes.Client{Client: c}
	client.Kubernetes = client
	return client
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
