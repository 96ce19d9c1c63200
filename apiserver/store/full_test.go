package store

import (
	"strings"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3rpc"
	"go.etcd.io/etcd/server/v3/proxy/grpcproxy/adapter"
)

// TestClientOnAFullDisk writes while the disk is full: a client reads, and its writes, which etcd
// would not survive, do not come to the store.
func TestClientOnAFullDisk(t *testing.T) {
	s, own, _ := startLimited(t, t.TempDir(), limit)
	if _, err := own.Put(t.Context(), "a", "1"); err != nil {
		t.Fatal(err)
	}
	before, err := own.Get(t.Context(), "a")
	if err != nil {
		t.Fatal(err)
	}
	kv := &direct{gate: &s.gate, room: func() error { return ErrNoRoom }, KVServer: v3rpc.NewQuotaKVServer(s.etcd.Server)}
	full := clientv3.NewKVFromKVClient(adapter.KvServerToKvClient(kv), own)
	for name, write := range map[string]func() error{
		"a key":      func() error { _, err := full.Put(t.Context(), "a", "2"); return err },
		"a deletion": func() error { _, err := full.Delete(t.Context(), "a"); return err },
		"a transaction": func() error {
			_, err := full.Txn(t.Context()).Then(clientv3.OpPut("a", "3")).Commit()
			return err
		},
		"the compaction": func() error { _, err := full.Compact(t.Context(), before.Header.Revision); return err },
	} {
		if err := write(); err == nil || !strings.Contains(err.Error(), ErrNoRoom.Error()) {
			t.Errorf("%s: %v, want %v", name, err, ErrNoRoom)
		}
	}
	after, err := full.Get(t.Context(), "a")
	if err != nil || string(after.Kvs[0].Value) != "1" || after.Header.Revision != before.Header.Revision {
		t.Errorf("afterwards the store has %v, %v, at revision %d before", after, err, before.Header.Revision)
	}
}
