package store

import (
	"errors"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// startLimited starts the store of a folder with that limit, and ends it with the test unless the
// test closes it.
func startLimited(t *testing.T, dir string, limit int64) (s *Store, c *clientv3.Client, stop func()) {
	t.Helper()
	unlock, err := Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	s, err = start(t.Context(), dir, limit)
	if err != nil {
		unlock()
		t.Fatal(err)
	}
	own := s.Client()
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			_ = own.Close() // says only that its context has ended
			s.Close()
			unlock()
		}
	}
	t.Cleanup(stop)
	return s, own.Client, stop
}

// fillTo writes values until the store says that it has no room for such a write.
func fillTo(t *testing.T, s *Store, c *clientv3.Client, w Write) {
	t.Helper()
	for n := 0; s.Room(w) == nil; n++ {
		if _, err := c.Put(t.Context(), "big"+strconv.Itoa(n%4), strings.Repeat("x", 1<<19)); err != nil {
			t.Fatalf("write %d, for which there is room: %v", n, err)
		}
		s.etcd.Server.Backend().ForceCommit() // the file has its size then
	}
	if err := s.Room(w); !errors.Is(err, ErrLimit) || !strings.Contains(err.Error(), "berth-apiserver defragment") {
		t.Fatalf("it says %v", err)
	}
}

// TestLimit shows that a store refuses new objects, and later changes, before etcd refuses all
// writes, and that it has room again after a deletion and a defragmentation.
func TestLimit(t *testing.T) {
	dir := t.TempDir()
	s, c, _ := startLimited(t, dir, 64<<20)
	fillTo(t, s, c, Creation)
	if err := s.Room(Change); err != nil {
		t.Errorf("a change after the last creation: %v", err)
	}
	fillTo(t, s, c, Change)
	if err := s.Room(Deletion); err != nil {
		t.Errorf("a deletion after the last change: %v", err)
	}
	deleted, err := c.Delete(t.Context(), "big", clientv3.WithPrefix())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Compact(t.Context(), deleted.Header.Revision, clientv3.WithCompactPhysical()); err != nil {
		t.Fatal(err)
	}
	if alarms := s.etcd.Server.Alarms(); len(alarms) > 0 {
		t.Errorf("etcd has the alarms %v", alarms)
	}
	if _, _, err := Defragment(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	if err := s.Room(Creation); err != nil {
		t.Errorf("after a defragmentation: %v", err)
	}
}

// alarm has etcd refuse writes, as it does when its file has the size of its limit.
func alarm(t *testing.T, s *Store) {
	t.Helper()
	_, err := s.etcd.Server.Alarm(t.Context(), &pb.AlarmRequest{
		Action: pb.AlarmRequest_ACTIVATE, Alarm: pb.AlarmType_NOSPACE, MemberID: uint64(s.etcd.Server.MemberID()),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Room(Change); !errors.Is(err, ErrLimit) {
		t.Errorf("with the alarm: %v", err)
	}
}

// mayWrite checks that there is no alarm.
func mayWrite(t *testing.T, s *Store, c *clientv3.Client, after string) {
	t.Helper()
	if err := s.Room(Creation); err != nil {
		t.Errorf("after %s: %v", after, err)
	}
	if _, err := c.Put(t.Context(), "key", "value"); err != nil {
		t.Errorf("a write after %s: %v", after, err)
	}
}

// TestAlarmEnds shows what ends etcd's alarm, which etcd itself keeps for ever.
func TestAlarmEnds(t *testing.T) {
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "snapshot.db")
	s, c, stop := startLimited(t, dir, limit)
	alarm(t, s)
	if _, _, err := Defragment(t.Context(), dir); err != nil {
		t.Fatal(err)
	}
	mayWrite(t, s, c, "a defragmentation")
	alarm(t, s)
	if err := Save(t.Context(), dir, file); err != nil {
		t.Fatal(err)
	}
	stop()
	s, c, stop = startLimited(t, dir, limit)
	mayWrite(t, s, c, "a start")
	stop()
	if _, err := Restore(dir, file, time.Now()); err != nil {
		t.Fatal(err)
	}
	s, c, _ = startLimited(t, dir, limit)
	mayWrite(t, s, c, "a restore")
}
