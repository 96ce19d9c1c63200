package logs

import (
	"context"
	"time"

	"github.com/berthd/berth/cri/logs"
)

// noWatch is the number of no watch: the kernel counts from 1.
const noWatch = 0

// set is the logs of one container: those of its running instance and of earlier instances.
type set struct {
	key key
	// id is the running instance, live the name of its log; both are empty if none runs.
	id, live string

	// dir is open for checks while an instance runs. Jobs open the directory themselves.
	dir *logs.Directory
	// entries are the files after the last job. The size of live is in size.
	entries []logs.Entry
	// size is the size of live at the last check, seen is the time of that check, and rate is how
	// fast the log grew before, in bytes per second.
	size int64
	seen time.Time
	rate float64
	// watch is the watch that reports the next write, due is the time of the next check. Both are
	// zero while a job runs, or if no instance runs.
	watch int32
	due   time.Time

	// stale says that a job has to read the directory. rotate says that the job has to rotate, too.
	// relief is what the job has to remove for the node.
	stale, rotate bool
	relief        relief
	// cancel ends the running job; nil if there is none. compressing says which kind the job is.
	cancel      context.CancelFunc
	compressing bool
	// failures counts the failed jobs since the last job that succeeded. After a failure, no job
	// begins before retryAt.
	failures int
	retryAt  time.Time
	// compressAt is the earliest time of the next compression after a failed one.
	compressAt time.Time
}

func (s *set) close() {
	if s.dir != nil {
		_ = s.dir.Close() // the directory was only read
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

// total returns the size of the set's files.
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

// wanted reports whether there is work for a job.
func (s *set) wanted() bool {
	return s.stale || s.rotate || len(s.relief.remove) > 0 || s.relief.rotate
}
