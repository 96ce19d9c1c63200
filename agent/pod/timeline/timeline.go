// Package timeline remembers what happened to each pod, step by step, so that "berth why" can say
// what the pod waits for.
//
// Purpose: a bounded list of entries for each pod. An entry has a step's begin, end and outcome;
// the same outcome of a step, several times in a row, is one entry with a count.
//
// Truth owned: the timelines. The package decides nothing, and the timelines are lost when the
// agent ends; package history reads them before that.
//
// Concurrency: a [Recorder] is safe for concurrent use.
package timeline

import (
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/internal/notify"
)

// Outcome is how a step ended.
type Outcome string

// The outcomes.
const (
	Done   Outcome = "done"
	Wait   Outcome = "wait"
	Failed Outcome = "failed"
)

// Entry is one step in one or more syncs with the same result.
type Entry struct {
	// Step is the step's name. A step of the take-down has [RemovePrefix] before its name.
	Step string `json:"step"`
	// Begin and End are the times of the first sync with this result. Last is the end of the latest
	// such sync.
	Begin time.Time `json:"begin"`
	End   time.Time `json:"end"`
	Last  time.Time `json:"last"`
	// Count is how many syncs in a row had this result.
	Count   int     `json:"count"`
	Outcome Outcome `json:"outcome"`
	// Message says what was done, what is waited for, or the error, in one line. At most 1 KiB is
	// kept.
	Message string `json:"message,omitempty"`
}

const (
	// limit is how many entries a pod's timeline keeps. The first entries (head: how the pod came
	// up) and the latest ones stay; the ones between them are dropped.
	limit = 96
	head  = 24
	// maxMessage limits a message, in bytes: a runtime may answer with pages.
	maxMessage = 1024
)

// Timeline is what a pod's worker did and does.
type Timeline struct {
	// Phase is the worker's phase.
	Phase string
	// Ends says why a pod ends that has not ended yet; empty if nobody wants the pod any more.
	Ends string
	// Successor says that the pod waits until its predecessor of the same name is removed.
	Successor bool
	// RetryAt is when the next sync is due if nothing happens; zero if only an event starts the
	// next sync.
	RetryAt time.Time
	// Steps has the names of the steps in the order of the bring-up. In the entries of the
	// take-down the names have [RemovePrefix] before them.
	Steps   []string
	Entries []Entry
	// UnderWay is the step that has begun and not ended, and UnderWayFor is how long ago it began.
	// Both are zero between two syncs.
	UnderWay    string
	UnderWayFor time.Duration
}

const (
	// StepObserve is the reading of the runtime's state, with which each sync begins.
	StepObserve = "observe"
	// StepSlot is the wait for the start limiter: few pods start at once.
	StepSlot = "slot"
	// RemovePrefix marks the steps of the take-down in a [Timeline].
	RemovePrefix = "remove "
)

// Begun is a step that has begun and not ended.
type Begun struct {
	Step  string
	Since time.Time
}

// Recorder has the timeline of each pod.
type Recorder struct {
	mu    sync.Mutex
	pods  map[types.UID][]Entry
	begun map[types.UID]Begun
	// added has the entries since the last Take, and changed says that there are some.
	added   map[types.UID][]Entry
	changed notify.Signal
}

// New returns a recorder without entries.
func New() *Recorder {
	return &Recorder{
		pods: map[types.UID][]Entry{}, begun: map[types.UID]Begun{}, added: map[types.UID][]Entry{}, changed: notify.New(),
	}
}

// Begin records that a step of the pod is under way. It stays so until [Recorder.Add] records how
// it ended, [Recorder.End] is called, or another step begins.
func (r *Recorder) Begin(uid types.UID, step string, at time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.begun[uid] = Begun{Step: step, Since: at}
}

// End records that the pod's step ended without an entry.
func (r *Recorder) End(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.begun, uid)
}

// UnderWay returns the pod's step that has begun and not ended; the zero value if there is none.
func (r *Recorder) UnderWay(uid types.UID) Begun {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.begun[uid]
}

// Add records an entry. If the pod's last entry of the same step has the same outcome and message,
// Add only counts it there.
func (r *Recorder) Add(uid types.UID, e Entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.begun, uid)
	e.Last, e.Count, e.Message = e.End, 1, cut(oneLine(e.Message))
	entries := r.pods[uid]
	for i := len(entries) - 1; i >= 0; i-- {
		last := &entries[i]
		if last.Step != e.Step {
			continue
		}
		if last.Outcome == e.Outcome && last.Message == e.Message {
			last.Last = e.End
			last.Count++
			return
		}
		break
	}
	if len(entries) >= limit {
		entries = slices.Delete(entries, head, head+1)
	}
	r.pods[uid] = append(entries, e)
	if len(r.added[uid]) < limit { // else nobody takes them
		r.added[uid] = append(r.added[uid], e)
	}
	r.changed.Notify()
}

// Changed receives after entries were added. A repeat that was only counted is no such entry.
func (r *Recorder) Changed() <-chan struct{} { return r.changed }

// Take returns the entries that were added since the last call, by pod, at most [limit] of each.
func (r *Recorder) Take() map[types.UID][]Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := r.added
	r.added = map[types.UID][]Entry{}
	return out
}

// All returns a copy of every pod's entries, oldest first.
func (r *Recorder) All() map[types.UID][]Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make(map[types.UID][]Entry, len(r.pods))
	for uid, entries := range r.pods {
		out[uid] = slices.Clone(entries)
	}
	return out
}

// Get returns a copy of the pod's entries, oldest first.
func (r *Recorder) Get(uid types.UID) []Entry {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.pods[uid])
}

// Forget drops the pod's timeline.
func (r *Recorder) Forget(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pods, uid)
	delete(r.begun, uid)
	delete(r.added, uid)
}

// oneLine joins the lines of a message with semicolons: if several things failed, each has a line.
func oneLine(s string) string {
	s = strings.TrimSpace(s)
	if !strings.Contains(s, "\n") {
		return s
	}
	var lines []string
	for line := range strings.Lines(s) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "; ")
}

// cut limits a message; it never splits a character.
func cut(s string) string {
	if len(s) <= maxMessage {
		return s
	}
	n := maxMessage - len("…")
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}
