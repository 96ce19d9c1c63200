package scenario

import (
	"context"
	"errors"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/berthd/berth/agent"
)

// operation is what an operator asks for.
type operation struct {
	pod        *v1.Pod
	containers []string
	grace      *int64
	refused    bool
}

// operated reads the arguments of a command of an operator.
func (s *script) operated(args []string) (*operation, error) {
	if len(args) == 0 {
		return nil, errArgs
	}
	if s.m.agent == nil {
		return nil, errNoAgent
	}
	o := &operation{pod: s.m.pod(args[0])}
	if o.pod == nil {
		return nil, errors.New("there is no such pod")
	}
	for _, a := range args[1:] {
		switch a {
		case "force":
			o.grace = ptr.To[int64](0)
		case "refused":
			o.refused = true
		default:
			o.containers = append(o.containers, a)
		}
	}
	return o, nil
}

// outcome returns what the command made of the agent's answer.
func (o *operation) outcome(err error) error {
	switch {
	case !o.refused:
		return err
	case err == nil:
		return errors.New("the agent did it")
	}
	return nil
}

// restart restarts containers of a pod, as "berth restart" does.
func (s *script) restart(args []string) error {
	o, err := s.operated(args)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	names, err := s.m.agent.agent.Operator().Restart(ctx, o.pod, o.containers, o.grace)
	if err == nil && len(o.containers) > 0 && !slices.Equal(names, o.containers) {
		return errors.New("other containers restart")
	}
	return o.outcome(err)
}

// stop stops a pod, as "berth stop" does.
func (s *script) stop(args []string) error {
	o, err := s.operated(args)
	if err != nil {
		return err
	}
	return o.outcome(s.m.agent.agent.Operator().Stop(o.pod, o.grace))
}

// startPod starts a pod that was stopped, as "berth start" does.
func (s *script) startPod(args []string) error {
	o, err := s.operated(args)
	if err != nil {
		return err
	}
	s.m.watch.startAnew(o.pod.UID)
	was, err := s.m.agent.agent.Operator().Start(context.Background(), o.pod)
	if err == nil && !was {
		return errors.New("it was not stopped")
	}
	return err
}

// stopPod stops a pod, on an agent that answers.
func stopPod(name string) func(*machine) error {
	return func(m *machine) error { return m.live().Operator().Stop(m.pod(name), nil) }
}

// live returns an agent that has not crashed, and has the pods of the one before.
func (m *machine) live() *agent.Agent {
	for m.fell() {
		m.bury()
		m.start()
		time.Sleep(time.Second)
	}
	return m.agent.agent
}

// stops checks that a container has ended.
func stops(container string) func(*machine) error {
	return func(m *machine) error {
		if c := m.runtime.Container(container); c == nil || c.FinishedAt == 0 {
			return errors.New("container " + container + " runs")
		}
		return nil
	}
}
