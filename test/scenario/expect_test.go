package scenario

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// expectation returns the actual and the expected value for its arguments.
type expectation struct {
	args int
	got  func(args []string) (string, error)
}

// expectations are those whose last argument is the expected value.
func (s *script) expectations() map[string]expectation {
	return map[string]expectation{
		"drained":   {1, s.drained},
		"phase":     {2, s.ofPod(func(p *v1.Pod) string { return string(p.Status.Phase) })},
		"reason":    {2, s.ofPod(func(p *v1.Pod) string { return p.Status.Reason })},
		"ready":     {2, s.ofPod(func(p *v1.Pod) string { return strconv.FormatBool(isReady(p)) })},
		"condition": {3, s.condition},
		"restarts": {
			3, s.ofContainer(func(c v1.ContainerStatus) string { return strconv.Itoa(int(c.RestartCount)) }),
		},
		"waiting":    {3, s.ofContainer(waiting)},
		"terminated": {3, s.ofContainer(func(c v1.ContainerStatus) string { return ended(c.State.Terminated) })},
		"last": {
			3, s.ofContainer(func(c v1.ContainerStatus) string { return ended(c.LastTerminationState.Terminated) }),
		},
		"code": {3, s.ofContainer(func(c v1.ContainerStatus) string { return code(c.State.Terminated) })},
		"lastcode": {
			3, s.ofContainer(func(c v1.ContainerStatus) string { return code(c.LastTerminationState.Terminated) }),
		},
		"started": {
			3,
			s.ofContainer(func(c v1.ContainerStatus) string {
				return strconv.FormatBool(c.Started != nil && *c.Started)
			}),
		},
		"isready": {3, s.ofContainer(func(c v1.ContainerStatus) string { return strconv.FormatBool(c.Ready) })},
		"signal":  {3, s.ofContainer(signal)},
		"why":     {3, s.conditionReason},
		"execs":   {3, s.executions},
		"grace":   {2, s.grace},
		"target":  {2, s.target},
		"field":   {3, s.field},
		"starts":  {2, s.starts},
		"calls": {
			2, func(args []string) (string, error) { return strconv.Itoa(len(s.m.runtime.Calls(args[0]))), nil },
		},
		"nocondition": {2, s.noCondition},
		"limits":      {2, s.limits},
		"resized":     {2, s.resized},
	}
}

// expect checks one expectation.
func (s *script) expect(args []string) error {
	if len(args) == 0 {
		return errArgs
	}
	what, args := args[0], args[1:]
	if e, ok := s.expectations()[what]; ok {
		if len(args) != e.args {
			return errArgs
		}
		got, err := e.got(args)
		if err == nil && got != args[len(args)-1] {
			err = fmt.Errorf("it is %q", got)
		}
		return err
	}
	switch {
	case what == "running" && len(args) == 2:
		got, err := s.ofContainer(func(c v1.ContainerStatus) string {
			return strconv.FormatBool(c.State.Running != nil)
		})(args)
		if err == nil && got != "true" {
			err = errors.New("it is not")
		}
		return err
	case what == "clean" && len(args) == 0:
		if left := s.m.leftovers(); len(left) > 0 {
			return fmt.Errorf("left over:\n%s", strings.Join(left, "\n"))
		}
		return nil
	case what == "dump" && len(args) == 1:
		return s.golden(args[0], s.m.runtime.Dump())
	case what == "event" && len(args) >= 2:
		return s.event(args[0], args[1], strings.Join(args[2:], " "))
	case what == "noevent" && len(args) == 2:
		if s.event(args[0], args[1], "") == nil {
			return errors.New("there is one")
		}
		return nil
	case what == "message" && len(args) >= 2:
		return s.message(args[0], strings.Join(args[1:], " "))
	case what == "file" && len(args) == 4:
		return s.inVolume(args)
	case what == "order":
		return s.order(splitCalls(args))
	case (what == "within" || what == "apart") && len(args) > 1:
		return s.distance(what, args[0], splitCalls(args[1:]))
	}
	return errArgs
}

func (s *script) ofPod(f func(*v1.Pod) string) func([]string) (string, error) {
	return func(args []string) (string, error) {
		p := s.m.pod(args[0])
		if p == nil {
			return "none", nil
		}
		return f(p), nil
	}
}

func (s *script) ofContainer(f func(v1.ContainerStatus) string) func([]string) (string, error) {
	return func(args []string) (string, error) {
		p := s.m.pod(args[0])
		if p == nil {
			return "", errors.New("there is no such pod")
		}
		for _, c := range statuses(p) {
			if c.Name == args[1] {
				return f(c), nil
			}
		}
		return "", errors.New("there is no such container")
	}
}

func isReady(p *v1.Pod) bool { return conditionOf(p, v1.PodReady) == v1.ConditionTrue }

func conditionOf(p *v1.Pod, kind v1.PodConditionType) v1.ConditionStatus {
	for _, c := range p.Status.Conditions {
		if c.Type == kind {
			return c.Status
		}
	}
	return ""
}

func (s *script) condition(args []string) (string, error) {
	return s.ofPod(func(p *v1.Pod) string { return string(conditionOf(p, v1.PodConditionType(args[1]))) })(args)
}

func waiting(c v1.ContainerStatus) string {
	if c.State.Waiting == nil {
		return ""
	}
	return c.State.Waiting.Reason
}

func ended(t *v1.ContainerStateTerminated) string {
	if t == nil {
		return ""
	}
	return t.Reason
}

// starts counts the started containers with a name.
func (s *script) starts(args []string) (string, error) {
	n := 0
	for _, c := range s.m.runtime.Calls("StartContainer") {
		if c.Container == args[0] && c.Err == nil {
			n++
		}
	}
	return strconv.Itoa(n), nil
}

// event looks for an event about the pod, with the text in its message.
func (s *script) event(pod, reason, text string) error {
	if s.m.agent == nil {
		return errors.New("no agent runs")
	}
	var have []string
	for _, e := range s.m.agent.agent.Events() {
		if e.InvolvedObject.Name == full(pod) {
			if e.Reason == reason && strings.Contains(e.Message, text) {
				return nil
			}
			have = append(have, e.Reason+": "+e.Message)
		}
	}
	return fmt.Errorf("there are %q", have)
}

// message compares the message of a pod's status with want.
func (s *script) message(pod, want string) error {
	p := s.m.pod(pod)
	if p == nil {
		return errors.New("there is no such pod")
	}
	if p.Status.Message != want {
		return fmt.Errorf("it is %q", p.Status.Message)
	}
	return nil
}

// inVolume compares the content of a file in a volume's directory with one word.
func (s *script) inVolume(args []string) error {
	p := s.m.pod(args[0])
	if p == nil {
		return errors.New("there is no such pod")
	}
	names, err := filepath.Glob(filepath.Join(s.m.root(), "pods", string(p.UID), "volumes", "*", args[1], args[2]))
	if err != nil {
		return fmt.Errorf("looking for the file: %w", err)
	}
	if len(names) != 1 {
		return fmt.Errorf("files found: %q", names)
	}
	data, err := os.ReadFile(names[0])
	if err == nil && string(data) != args[3] {
		err = fmt.Errorf("it holds %q", data)
	}
	return err
}
