package logs

import (
	"context"
	"time"

	"github.com/berthd/berth/cri/logs"
)

// noWatch is the number of no watch: the kernel counts from 1.
const noWatch = 0

// set is the logs of one container: those of its running instance and of those before.
type set struct {
	key key
	// id is the running instance, live the name of its log; empty where none runs.
	id, live string

	// dir is open while an instance runs, for looks; jobs open their own.
	dir *logs.Directory
	// entries are the files as the last job left them; live's own size is in size.
	entries []logs.Entry
	// size is the size of live at the last look, which was at seen; rate is how fast it grew before, in bytes per second.
	size int64
	seen time.Time
	rate float64
	// watch is what tells of the next write, due when to look next; both zero while a job is under way, or nothing runs.
	watch int32
	due   time.Time

	// stale says that a job has to look through the directory, rotate that it has to rotate, too; relief is what it has to give up.
	stale, rotate bool
	relief        relief
	// cancel ends the job under way; nil where there is none. compressing says which kind it is.
	cancel      context.CancelFunc
	compressing bool
	// failures counts the jobs that failed since one did not; until then none begins before retry.
	failures int
	retry    time.Time
	// compressAt is when compressing may be tried again after a failure.
	compressAt time.Time
}

func (s *set) close() {
	if s.dir != nil {
		_ = s.dir.Close() // only read
		s.dir = nil
	}
}

func (s *set) inventory() inventory {
	out := inventory{live: s.live, entries: make([]logs.Entry, 0, len(s.entries))}
	for _, e := range s.entries {
		if e.Name == s.live {
			e.Size = s.size
		}
		out.entries = append(out.entries, e)
	}
	return out
}

// total is what the set's files take.
func (s *set) total() (bytes int64) {
	for _, e := range s.entries {
		if e.Name != s.live {
			bytes += e.Size
		}
	}
	if s.live != "" {
		bytes += s.size
	}
	return bytes
}

// wanted reports whether a job has something to do.
func (s *set) wanted() bool {
	return s.stale || s.rotate || len(s.relief.remove) > 0 || s.relief.rotate
}
