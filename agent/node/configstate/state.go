// Package configstate knows whether the config that the agent would read now is the one in force.
//
// Purpose: somebody changes the config file, and nothing happens: a reload or the next start
// refuses it, or a setting takes a restart. The agent reads the config again each minute and at
// each reload, and says here what it has read. The status of the node, a metric and events of the
// node tell of a difference, until it is gone.
//
// Truth owned: since when the config on the disk differs from the one in force, and in what.
//
// Concurrency: a [State] is safe for concurrent use.
package configstate

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/configs"
)

// Fault is how the config on the disk differs from the one in force.
type Fault struct {
	// Since is when this config was first read.
	Since time.Time
	// Error is why the config is refused.
	Error string
	// Pending are the settings that are not in force, with their places in a file.
	Pending []string
}

// Deps are what a state works with.
type Deps struct {
	// Event records an event about the node.
	Event func(kind, reason, message string)
}

// State is how the config on the disk differs from the one in force. Make it with [New].
type State struct {
	deps Deps

	mu    sync.Mutex
	fault *Fault // nil if the two are the same
}

// New returns a state without a difference.
func New(deps Deps) *State { return &State{deps: deps} }

// Note notes what was read from the disk: the config, or the error with which it is refused. It
// reports whether this differs from what was noted before.
func (s *State) Note(running, read *configs.Config, err error) (news bool) {
	fault := &Fault{Since: time.Now()}
	if err != nil {
		fault.Error = err.Error()
	} else {
		for _, path := range configs.Changed(running, read) {
			if origin := read.Origin(path); origin != "" {
				path = fmt.Sprintf("%s (%s)", path, origin)
			}
			fault.Pending = append(fault.Pending, path)
		}
	}
	if fault.Error == "" && len(fault.Pending) == 0 {
		fault = nil
	}
	s.mu.Lock()
	last := s.fault
	if fault.same(last) {
		s.mu.Unlock()
		return false
	}
	s.fault = fault
	s.mu.Unlock()
	switch {
	case fault == nil:
		s.deps.Event(v1.EventTypeNormal, "ConfigInForce", "The config on the disk is the one in force")
	case fault.Error != "":
		s.deps.Event(v1.EventTypeWarning, "ConfigRefused", "The agent would not start with the config: "+fault.Error)
	default:
		s.deps.Event(v1.EventTypeWarning, "ConfigPending",
			"The agent runs with an older config, without the changes of "+strings.Join(fault.Pending, ", "))
	}
	return true
}

// same reports whether two faults are one, whenever they were read.
func (f *Fault) same(g *Fault) bool {
	if f == nil || g == nil {
		return f == g
	}
	return f.Error == g.Error && slices.Equal(f.Pending, g.Pending)
}

// Fault returns the difference; nil if there is none.
func (s *State) Fault() *Fault {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.fault
}

// Counts returns whether the config is refused, and how many settings are not in force.
func (s *State) Counts() (refused bool, pending int) {
	fault := s.Fault()
	if fault == nil {
		return false, 0
	}
	return fault.Error != "", len(fault.Pending)
}
