package logs

import (
	"cmp"
	"slices"
	"time"

	"github.com/berthd/berth/cri/logs"
)

const (
	// fastest is how fast a container is taken to be able to write, in bytes per second: more than twice what a runtime copies on a fast machine.
	fastest = 400 << 20
	// shortestWait keeps looks apart, however little room is left.
	shortestWait = 10 * time.Millisecond
	// calm is how long the log of a container has to last, at the speed at which it is written, for older parts to be compressed beside.
	calm = 2 * time.Second
	// leastRotated is the size from which on a log is rotated early because the node's logs take too much, in bytes.
	leastRotated = 256 << 10
)

// policy is how large logs may get.
type policy struct {
	// size is where a log is rotated, files how many it has at most with the one that is written, both at least 1.
	size  int64
	files int
	// container and node are the most that all files of a container, and of all containers, may take.
	container, node int64
	// interval is the longest wait between two looks at a container that writes.
	interval time.Duration
}

// rotateAt is the size at which a log is rotated: half of what the container may have at most, so that the rotated part and the new file fit.
func (p policy) rotateAt() int64 { return max(1, min(p.size, p.container/2)) }

// sight is what a look at a log that is written shows.
type sight struct {
	// size is the file's now, before what it was at the last look, since ago.
	size, before int64
	since        time.Duration
	// others is what the container's other files take, room what all containers together may still write.
	others, room int64
}

// verdict is what follows from a look.
type verdict struct {
	// rotate says that the log is full.
	rotate bool
	// wait is until the next look; 0 where the kernel is to tell of the next write.
	wait time.Duration
	// rate is how fast the container writes, in bytes per second.
	rate float64
}

// judge decides what to do about a log. The next look comes before the container, at the speed at which it writes now, has filled its file, and before any
// container could have filled the room that is left.
func (p policy) judge(s sight) verdict {
	v := verdict{rotate: s.size >= p.rotateAt() || s.others+s.size > p.container}
	grown := max(0, s.size-s.before)
	if grown == 0 {
		return v
	}
	v.rate = float64(grown) / max(s.since, shortestWait).Seconds()
	room := p.container - s.others - s.size
	if s.room > 0 { // else it is used up, and looking more often makes no more
		room = min(room, s.room)
	}
	wait := min(after(float64(p.rotateAt()-s.size), v.rate), after(float64(room), fastest))
	v.wait = min(max(wait, shortestWait), p.interval)
	return v
}

// after is how long so many bytes take.
func after(bytes, rate float64) time.Duration {
	const long = float64(time.Hour)
	return time.Duration(min(max(0, bytes/rate*float64(time.Second)), long))
}

// pressed reports whether a container writes too fast for its older parts to be compressed beside.
func (p policy) pressed(rate float64) bool {
	return rate > 0 && after(float64(p.rotateAt()), rate) < calm
}

// inventory is the log files of one container.
type inventory struct {
	entries []logs.Entry
	// live is the log that is written now; empty where no instance runs.
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

// leftovers are what a crash left: what an unfinished compression wrote, and parts whose compressed form is there.
func (i inventory) leftovers() (out []logs.Entry) {
	for _, e := range i.entries {
		if e.Temporary || e.Rotated && !e.Compressed() && i.has(e.Name+".gz") {
			out = append(out, e)
		}
	}
	return out
}

// parts are the rotated parts of a log, oldest first.
func (i inventory) parts(base string) (out []logs.Entry) {
	for _, e := range i.entries {
		if e.Base == base && e.Rotated && !e.Temporary {
			out = append(out, e)
		}
	}
	slices.SortFunc(out, func(a, b logs.Entry) int { return cmp.Compare(a.Stem(), b.Stem()) })
	return out
}

// bases are the logs, one for each instance of the container, oldest first.
func (i inventory) bases() (out []string) {
	byAttempt := slices.SortedFunc(slices.Values(i.entries), func(a, b logs.Entry) int { return cmp.Compare(a.Attempt, b.Attempt) })
	for _, e := range byAttempt {
		if len(out) == 0 || out[len(out)-1] != e.Base {
			out = append(out, e.Base)
		}
	}
	return out
}

// excess are the parts that are more than a log may have.
func (i inventory) excess(p policy) (out []logs.Entry) {
	for _, base := range i.bases() {
		if parts := i.parts(base); len(parts) > p.files-1 {
			out = append(out, parts[:len(parts)-(p.files-1)]...)
		}
	}
	return out
}

// compressible are the parts to compress, oldest first: all but the newest of each log, which is the one that is looked into most, and to which the
// runtime may still be writing.
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

// removable are the files that may go when room is needed, those first that are missed least: of the oldest instance, the oldest. The log that is written is
// never among them, nor what takes its place while its name is not there; the log of the last instance, where none runs, only with last.
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

// over are the files that have to go for the rest to take at most limit, as far as that can be had.
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
