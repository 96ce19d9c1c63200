// Package timeline remembers what happened to each pod, step by step, so that "berth why" can say what it waits for.
//
// Purpose: a bounded story per pod: each step's begin, end and outcome, the same outcome over and over counted once.
//
// Truth owned: the story. It decides nothing, and it is lost when the agent ends.
//
// Concurrency: a [Book] is safe for concurrent use.
package timeline

import (
	"slices"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/types"
)

// Outcome is how a step ended.
type Outcome string

// The outcomes.
const (
	Done   Outcome = "done"
	Wait   Outcome = "wait"
	Failed Outcome = "failed"
)

// Entry is one step of one or more passes that ended alike.
type Entry struct {
	// Step is the step's name, with "remove " before it on the way down.
	Step string `json:"step"`
	// Begin and End bound the first pass that ended so; Last is the end of the latest.
	Begin time.Time `json:"begin"`
	End   time.Time `json:"end"`
	Last  time.Time `json:"last"`
	// Count is how many passes in a row ended so.
	Count   int     `json:"count"`
	Outcome Outcome `json:"outcome"`
	// Message says what was done, what is waited for, or the error, in one line; at most 1 KiB of it is kept.
	Message string `json:"message,omitempty"`
}

const (
	// limit is how many entries a pod's story keeps; the first ones (how it came up) and the latest ones stay, the middle goes.
	limit = 96
	head  = 24
	// maxMessage bounds a message, in bytes: a runtime may answer with pages.
	maxMessage = 1024
)

// Begun is a step that has begun and not ended.
type Begun struct {
	Step  string
	Since time.Time
}

// Book has the story of each pod.
type Book struct {
	mu    sync.Mutex
	pods  map[types.UID][]Entry
	begun map[types.UID]Begun
}

// New returns an empty book.
func New() *Book { return &Book{pods: map[types.UID][]Entry{}, begun: map[types.UID]Begun{}} }

// Begin notes that a step of the pod is under way, until [Book.Add] tells how it ended or another one begins.
func (b *Book) Begin(uid types.UID, step string, at time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.begun[uid] = Begun{Step: step, Since: at}
}

// End notes that the pod's step ended with nothing to tell.
func (b *Book) End(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.begun, uid)
}

// UnderWay returns the pod's step that has begun and not ended; the zero value where there is none.
func (b *Book) UnderWay(uid types.UID) Begun {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.begun[uid]
}

// Add writes an entry. One that says what the pod's last entry of that step says, with no other outcome of that step between, is counted there.
func (b *Book) Add(uid types.UID, e Entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.begun, uid)
	e.Last, e.Count, e.Message = e.End, 1, cut(oneLine(e.Message))
	story := b.pods[uid]
	for i := len(story) - 1; i >= 0; i-- {
		last := &story[i]
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
	if len(story) >= limit {
		story = slices.Delete(story, head, head+1)
	}
	b.pods[uid] = append(story, e)
}

// Get returns a copy of the pod's story, oldest first.
func (b *Book) Get(uid types.UID) []Entry {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.pods[uid])
}

// Forget drops the pod's story.
func (b *Book) Forget(uid types.UID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.pods, uid)
	delete(b.begun, uid)
}

// oneLine puts semicolons between the lines of a message: where several things failed each has one.
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

// cut bounds a message without cutting a character in two.
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
