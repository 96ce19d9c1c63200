package logs

import (
	"cmp"
	"slices"
	"time"

	"github.com/berthd/berth/cri/logs"
)

const (
	// fastest is the assumed highest speed of a container that writes, in bytes per second. It is
	// more than twice what a runtime copies on a fast machine.
	fastest = 400 << 20
	// shortestWait is the least time between two checks, however little room is left.
	shortestWait = 10 * time.Millisecond
	// calm is the least time in which a container fills its log at its current speed, for older
	// parts to be compressed meanwhile.
	calm = 2 * time.Second
	// leastRotated is the least size in bytes at which a log is rotated early because the node's
	// logs are too large.
	leastRotated = 256 << 10
)

// policy says how large logs may become.
type policy struct {
	// size is the size at which a log is rotated. files is the largest number of its files, with
	// the current one. Both are at least 1.
	size  int64
	files int
	// container and node are the largest sizes of all files of a container, and of all containers.
	container, node int64
	// interval is the longest wait between two checks of a container that writes.
	interval time.Duration
}

// rotateAt is the size at which a log is rotated. It is at most half of the container's bound, so
// that the rotated part and the new file fit.
func (p policy) rotateAt() int64 { return max(1, min(p.size, p.container/2)) }

// observation is what a check of a current log has found.
type observation struct {
	// size is the size of the file now, before is the size at the last check, and since is how long
	// ago that check was.
	size, before int64
	since        time.Duration
	// others is the size of the container's other files. room is what all containers together may
	// still write.
	others, room int64
}

// decision is what follows from an observation.
type decision struct {
	// rotate says that the log is full.
	rotate bool
	// wait is the time until the next check; 0 means that the kernel reports the next write.
	wait time.Duration
	// rate is how fast the container writes, in bytes per second.
	rate float64
}

// decide decides what to do about a log. The next check comes before the container can have filled
// its file at its current speed, and before any container can have filled the room that is left.
func (p policy) decide(s observation) decision {
	v := decision{rotate: s.size >= p.rotateAt() || s.others+s.size > p.container}
	grown := max(0, s.size-s.before)
	if grown == 0 {
		return v
	}
	v.rate = float64(grown) / max(s.since, shortestWait).Seconds()
	room := p.container - s.others - s.size
	if s.room > 0 { // no room is left: more checks would not make any
		room = min(room, s.room)
	}
	wait := min(after(float64(p.rotateAt()-s.size), v.rate), after(float64(room), fastest))
	v.wait = min(max(wait, shortestWait), p.interval)
	return v
}

// after returns how long it takes to write so many bytes.
func after(bytes, rate float64) time.Duration {
	const long = float64(time.Hour)
	return time.Duration(min(max(0, bytes/rate*float64(time.Second)), long))
}

// tooFast reports whether a container writes too fast to compress its older parts meanwhile.
func (p policy) tooFast(rate float64) bool {
	return rate > 0 && after(float64(p.rotateAt()), rate) < calm
}

// inventory is the log files of one container.
type inventory struct {
	entries []logs.Entry
	// live is the current log; empty if no instance runs.
	live string
}

func (i inventory) size() (total int64) {
	for _, e := range i.entries {
		total += e.Size
	}
	return total
}

// has reports whether there is a file of that name.
func (i inventory) has(name string) bool {
	return slices.ContainsFunc(i.entries, func(e logs.Entry) bool { return e.Name == name })
}

// leftovers returns what a crash left: files of an unfinished compression, and parts that also
// exist in compressed form.
func (i inventory) leftovers() (out []logs.Entry) {
	for _, e := range i.entries {
		if e.Temporary || e.Rotated && !e.Compressed() && i.has(e.Name+".gz") {
			out = append(out, e)
		}
	}
	return out
}

// parts returns the rotated parts of a log, oldest first.
func (i inventory) parts(base string) (out []logs.Entry) {
	for _, e := range i.entries {
		if e.Base == base && e.Rotated && !e.Temporary {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b logs.Entry) int { return cmp.Compare(a.Stem(), b.Stem()) })
	return out
}

// bases returns the logs, one for each instance of the container, oldest first.
func (i inventory) bases() (out []string) {
	byAttempt := slices.SortedFunc(slices.Values(i.entries), func(a, b logs.Entry) int {
		return cmp.Compare(a.Attempt, b.Attempt)
	})
	for _, e := range byAttempt {
		if len(out) == 0 || out[len(out)-1] != e.Base {
			out = append(out, e.Base)
		}
	}
	return out
}

// excess returns the oldest parts, if a log has more parts than it may have.
func (i inventory) excess(p policy) (out []logs.Entry) {
	for _, base := range i.bases() {
		if parts := i.parts(base); len(parts) > p.files-1 {
			out = append(out, parts[:len(parts)-(p.files-1)]...)
		}
	}
	return out
}

// compressible returns the parts to compress, oldest first. The newest part of each log is not
// among them: people read it most, and the runtime may still be writing to it.
func (i inventory) compressible() (out []logs.Entry) {
	for _, base := range i.bases() {
		parts := i.parts(base)
		for _, e := range parts[:max(0, len(parts)-1)] {
			if !e.Compressed() {
				out = append(out, e)
			}
		}
	}
	return out
}

// removable returns the files that may be removed to make room. Files of the oldest instance come
// first, and of these the oldest. The current log is never among them, nor the part that replaces
// it while its name has no file. If no instance runs, the log of the last instance is among them
// only with last.
func (i inventory) removable(last bool) (out []logs.Entry) {
	bases := i.bases()
	for n, base := range bases {
		parts := i.parts(base)
		if base == i.live && !i.has(base) {
			parts = parts[:max(0, len(parts)-1)]
		}
		out = append(out, parts...)
		for _, e := range i.entries {
			if e.Name == base && base != i.live && (last || n < len(bases)-1) {
				out = append(out, e)
			}
		}
	}
	return out
}

// over returns the files to remove so that the rest takes at most limit, as far as possible.
func (i inventory) over(limit int64) (out []logs.Entry) {
	total := i.size()
	for _, e := range i.removable(false) {
		if total <= limit {
			break
		}
		total -= e.Size
		out = append(out, e)
	}
	return out
}
