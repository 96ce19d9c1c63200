package store

import "testing"

// TestTickIsFound: etcd's release may call the clock of raft something else. Then the store works,
// with etcd's tick, and this test says so.
func TestTickIsFound(t *testing.T) {
	s, err := Start(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if !tick(s.etcd.Server, elected) {
		t.Error("etcd has no such clock any more")
	}
}
