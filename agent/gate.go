package agent

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/berthd/berth/client/api"
)

// errUndone ends a drain that was undone.
var errUndone = errors.New("pods may run again")

// gate says whether pods may run on this node.
//
//	open ──Drain──▶ closing ──all pods gone──▶ closed ──Drain──▶ closing …
//	  ▲               │  └────Undrain────┐        │
//	  └───────────────┴──────────────────┴────────┘
//	  └────Shutdown──▶ closing, until the agent ends
//
// A drain that holds leaves a mark on the disk, with what was asked for: the next agent begins closing, and goes on with what that has left.
type gate struct {
	mark string

	// mu is held while a drain stops or forgets pods and while it is undone, so that neither comes in the middle of the other.
	mu    sync.Mutex
	state string // one of the api.Drain's
	since time.Time
	// hold says that pods that had ended before stay on record.
	hold bool
	// undone counts how often pods were let run again.
	undone int
	// asked has the drain to be done, again asks the main loop to look at what is wanted once more.
	asked chan drainRound
	again chan struct{}
}

// drainRound is a drain that was asked for, and what undone was then.
type drainRound struct {
	api.DrainRequest

	undone int
}

func newGate(rootDir string) *gate {
	g := &gate{mark: filepath.Join(rootDir, "berth", "drained"), state: api.Open, asked: make(chan drainRound, 1), again: make(chan struct{}, 1)}
	info, err := os.Stat(g.mark)
	if err != nil {
		return g
	}
	var req api.DrainRequest
	if text, err := os.ReadFile(g.mark); err == nil {
		_ = json.Unmarshal(text, &req) // one that cannot be read is a drain with the pods' own graces
	}
	req.Hold = true
	g.begin(req)
	g.since = info.ModTime()
	return g
}

// held reports whether the agent began with a drain that holds.
func (g *gate) held() bool {
	_, err := os.Stat(g.mark)
	return err == nil
}

// begin closes the gate and asks for the drain to be done; one that waits already is replaced.
func (g *gate) begin(req api.DrainRequest) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hold = req.Hold
	g.set(api.Draining)
	select {
	case <-g.asked:
	default:
	}
	g.asked <- drainRound{req, g.undone}
}

// close closes the gate for good.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.set(api.Draining)
}

// undo opens the gate, after do has set right what the drains did that it ends.
func (g *gate) undo(do func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.undone++
	do()
	g.set(api.Open)
}

// during does a part of a drain, unless that was undone, which it reports as false.
func (g *gate) during(r drainRound, do func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r.undone != g.undone {
		return false
	}
	do()
	return true
}

// done notes that a drain has come to its end, unless it was undone or another one waits.
func (g *gate) done(r drainRound) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r.undone != g.undone || len(g.asked) > 0 {
		return false
	}
	g.set(api.Drained)
	return true
}

// set changes the state and has the main loop look; g.mu is held.
func (g *gate) set(state string) {
	if g.state != state {
		g.state, g.since = state, time.Now()
	}
	ring(g.again)
}

func (g *gate) now() (state string, since time.Time, hold bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.state, g.since, g.hold
}
