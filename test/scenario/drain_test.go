package scenario

import (
	"context"
	"errors"

	"github.com/berthd/berth/client/api"
)

// errNoAgent is the error of a command that needs one.
var errNoAgent = errors.New("no agent runs")

// drain has the node emptied; with "hold" it stays so over restarts.
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

// shutdown does what the agent does when the machine shuts down, and ends it.
func (s *script) shutdown() error {
	if s.m.agent == nil {
		return errNoAgent
	}
	err := s.m.agent.agent.Shutdown(context.Background())
	s.m.stop()
	return err
}

// drained returns whether the node is: Open, Draining or Drained.
func (s *script) drained([]string) (string, error) {
	if s.m.agent == nil {
		return "", errNoAgent
	}
	return s.m.agent.agent.Drained().State, nil
}
