package drain

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/berthd/berth/internal/atomicfile"
	"github.com/berthd/berth/internal/notify"
)

// State says whether pods may run on the node.
type State string

// The states.
const (
	// Open: the wanted pods run.
	Open State = "Open"
	// Draining: pods are being stopped, and none starts.
	Draining State = "Draining"
	// Drained: no pod runs, and none starts.
	Drained State = "Drained"
)

// Request asks for all pods to be stopped.
type Request struct {
	// GraceSeconds replaces each pod's own grace period that is longer.
	GraceSeconds *int64 `json:"graceSeconds,omitempty"`
	// Hold keeps pods stopped over restarts of the agent, until somebody undoes the drain. Without
	// Hold, pods stay stopped until the agent ends.
	Hold bool `json:"hold,omitempty"`
}

// errUndone ends a drain that was undone.
var errUndone = errors.New("pods may run again")

// Gate says whether pods may run on this node.
//
//	Open ──begin──▶ Draining ──all pods gone──▶ Drained ──begin──▶ Draining …
//	  ▲               │  └───────undo───────┐      │
//	  └───────────────┴─────────────────────┴──────┘
//	Open ──close──▶ Draining ──reopen──▶ Open
//
// A shutdown closes the gate beside a drain: when the gate is reopened, the drain goes on.
// A drain that holds leaves a marker on the disk, with the request. The next agent begins in the
// state Draining, and goes on with the pods that are left. Make a Gate with [NewGate]; it is safe
// for concurrent use.
type Gate struct {
	marker string

	// mu is held while a drain stops or forgets pods, and while a drain is undone, so that neither
	// happens in the middle of the other.
	mu    sync.Mutex
	state State
	since time.Time
	// hold says that pods that have ended stay on record, see [Kept].
	hold bool
	// shutting is since when the machine shuts down; zero if it does not.
	shutting time.Time
	// undone is the number of undone drains.
	undone int
	// asked has the drain that is to be done. changed asks the main loop to look again at the
	// wanted pods.
	asked   chan round
	changed notify.Signal
}

// round is a drain that was asked for, with the value of the gate's undone at that time.
type round struct {
	Request

	undone int
}

// NewGate returns the gate of the agent with that root directory. The gate is open, unless a drain
// that holds left its marker there.
func NewGate(rootDir string) *Gate {
	g := &Gate{
		marker:  filepath.Join(rootDir, "berth", "drained"),
		state:   Open,
		asked:   make(chan round, 1),
		changed: notify.New(),
	}
	info, err := os.Stat(g.marker)
	if err != nil {
		return g
	}
	var req Request
	if text, err := os.ReadFile(g.marker); err == nil {
		// a marker that cannot be read is a drain with the pods' own graces
		_ = json.Unmarshal(text, &req)
	}
	req.Hold = true
	g.begin(req)
	g.since = info.ModTime()
	return g
}

// State returns whether pods may run.
func (g *Gate) State() State {
	state, _, _ := g.now()
	return state
}

// Open reports whether pods may run.
func (g *Gate) Open() bool { return g.State() == Open }

// ShuttingDown reports whether pods may not run because the machine shuts down.
func (g *Gate) ShuttingDown() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.shutting.IsZero()
}

// Changed receives after the state has changed.
func (g *Gate) Changed() <-chan struct{} { return g.changed }

// Held reports whether the marker of a drain that holds is there.
func (g *Gate) Held() bool {
	_, err := os.Stat(g.marker)
	return err == nil
}

// mark leaves the marker of a drain that holds.
func (g *Gate) mark(req Request) error {
	text, err := json.Marshal(req)
	if err == nil {
		err = atomicfile.Write(g.marker, text, 0o600, atomicfile.OverPowerLoss)
	}
	if err != nil {
		return fmt.Errorf("marking the node as drained: %w", err)
	}
	return nil
}

// unmark removes the marker.
func (g *Gate) unmark() error {
	if err := os.Remove(g.marker); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the mark of a drained node: %w", err)
	}
	return nil
}

// begin closes the gate and asks for a drain. The new drain replaces a drain that waits already.
func (g *Gate) begin(req Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hold = req.Hold
	g.set(Draining)
	select {
	case <-g.asked:
	default:
	}
	g.asked <- round{req, g.undone}
}

// close closes the gate because the machine shuts down.
func (g *Gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shutting.IsZero() {
		g.shutting = time.Now()
	}
	g.changed.Notify()
}

// reopen undoes close. If no drain keeps the gate closed, do first corrects what the shutdown did
// to the pods.
func (g *Gate) reopen(do func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.shutting = time.Time{}
	if g.state == Open {
		do()
	}
	g.changed.Notify()
}

// undo opens the gate. Before that, do corrects what the undone drains did to the pods.
func (g *Gate) undo(do func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.undone++
	do()
	g.set(Open)
}

// during does a part of a drain. If the drain was undone, during does nothing and returns false.
func (g *Gate) during(r round, do func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r.undone != g.undone {
		return false
	}
	do()
	return true
}

// done notes the end of a drain, unless the drain was undone or another drain waits.
func (g *Gate) done(r round) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if r.undone != g.undone || len(g.asked) > 0 {
		return false
	}
	g.set(Drained)
	return true
}

// set changes the state and notifies the main loop; g.mu is held.
func (g *Gate) set(state State) {
	if g.state != state {
		g.state, g.since = state, time.Now()
	}
	g.changed.Notify()
}

func (g *Gate) now() (state State, since time.Time, hold bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.state == Open && !g.shutting.IsZero() {
		return Draining, g.shutting, false
	}
	return g.state, g.since, g.hold
}
