package store

import (
	"context"
	"errors"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Write is what a write does.
type Write int

// A store that grows refuses creations first, then changes, and no deletions: they and etcd's
// compaction make room. etcd itself refuses everything when its file reaches the limit.
const (
	Creation Write = iota
	Change
	Deletion
)

// ErrLimit is of a store that is too large.
var ErrLimit = errors.New("the store is too large")

// withinLimit returns an [ErrLimit] if the store is too large for such a write. The size is that of
// the file with what is free inside, because that is what etcd compares.
func (s *Store) withinLimit(w Write) error {
	most := s.limit
	switch w {
	case Creation:
		most -= s.limit / 16
	case Change:
		most -= s.limit / 32
	case Deletion:
		return nil
	}
	size := s.etcd.Server.Backend().Size()
	if size < most && len(fullAlarms(s.etcd.Server.Alarms())) == 0 {
		return nil
	}
	return fmt.Errorf("%w: its file has %d MiB and may have %d, delete objects that nobody needs, and run "+
		"\"berth-apiserver defragment\" ten minutes later", ErrLimit, size>>20, s.limit>>20)
}

// fullAlarms returns the alarms of a full store. etcd keeps such an alarm, and refuses writes, until
// somebody ends it.
func fullAlarms(all []*pb.AlarmMember) (full []*pb.AlarmMember) {
	for _, a := range all {
		if a.Alarm == pb.AlarmType_NOSPACE {
			full = append(full, a)
		}
	}
	return full
}

// endAlarm ends the alarms of a full store, as of one that was restored from a snapshot, unless it
// is full now.
func (s *Store) endAlarm(ctx context.Context) error {
	if s.etcd.Server.Backend().Size() >= s.limit {
		return nil
	}
	for _, a := range fullAlarms(s.etcd.Server.Alarms()) {
		_, err := s.etcd.Server.Alarm(ctx, &pb.AlarmRequest{
			Action: pb.AlarmRequest_DEACTIVATE, Alarm: a.Alarm, MemberID: a.MemberID,
		})
		if err != nil {
			return fmt.Errorf("end the store's alarm that it is full: %w", err)
		}
	}
	return nil
}
