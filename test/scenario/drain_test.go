package scenario

import (
	"context"
	"errors"

	"github.com/berthd/berth/client/api"
)

// errNoAgent is the error of a command that needs an agent when none runs.
var errNoAgent = errors.New("no agent runs")

// drain empties the node. With "hold" the node stays drained over restarts.
func (s *script) drain(args []string) error {
	if s.m.agent == nil {
		return errNoAgent
	}
	return s.m.agent.agent.Drain(api.DrainRequest{Hold: len(args) == 1 && args[0] == "hold"})
}

// undrain lets pods run again.
func (s *script) undrain() error {
	if s.m.agent == nil {
		return errNoAgent
	}
	return s.m.agent.agent.Undrain()
}

// shutdown does what the agent does when the machine shuts down, and ends the agent.
func (s *script) shutdown() error {
	if s.m.agent == nil {
		return errNoAgent
	}
	err := s.m.agent.agent.Shutdown(context.Background())
	s.m.stop()
	return err
}

// drained returns the node's state: Open, Draining or Drained.
func (s *script) drained([]string) (string, error) {
	if s.m.agent == nil {
		return "", errNoAgent
	}
	return s.m.agent.agent.Drained().State, nil
}
