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
	// Message says what was done, what is waited for, or the error; at most 1 KiB of it is kept.
	Message string `json:"message,omitempty"`
}

const (
	// limit is how many entries a pod's story keeps; the first ones (how it came up) and the latest ones stay, the middle goes.
	limit = 96
	head  = 24
	// maxMessage bounds a message, in bytes: a runtime may answer with pages.
	maxMessage = 1024
)

// Book has the story of each pod.
type Book struct {
	mu   sync.Mutex
	pods map[types.UID][]Entry
}

// New returns an empty book.
func New() *Book { return &Book{pods: map[types.UID][]Entry{}} }

// Add writes an entry. One that says what the pod's last entry of that step says, with no other outcome of that step between, is counted there.
func (b *Book) Add(uid types.UID, e Entry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e.Last, e.Count, e.Message = e.End, 1, cut(e.Message)
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
