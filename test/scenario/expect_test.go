package scenario

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/cri/fake"
)

// expectation returns what there is, and what there should be, of its arguments.
type expectation struct {
	args int
	got  func(args []string) (string, error)
}

// expectations are those of which the last argument is the value expected.
func (s *script) expectations() map[string]expectation {
	return map[string]expectation{
		"phase":      {2, s.ofPod(func(p *v1.Pod) string { return string(p.Status.Phase) })},
		"reason":     {2, s.ofPod(func(p *v1.Pod) string { return p.Status.Reason })},
		"ready":      {2, s.ofPod(func(p *v1.Pod) string { return strconv.FormatBool(isReady(p)) })},
		"condition":  {3, s.condition},
		"restarts":   {3, s.ofContainer(func(c v1.ContainerStatus) string { return strconv.Itoa(int(c.RestartCount)) })},
		"waiting":    {3, s.ofContainer(waiting)},
		"terminated": {3, s.ofContainer(func(c v1.ContainerStatus) string { return ended(c.State.Terminated) })},
		"last":       {3, s.ofContainer(func(c v1.ContainerStatus) string { return ended(c.LastTerminationState.Terminated) })},
		"starts":     {2, s.starts},
		"calls":      {2, func(args []string) (string, error) { return strconv.Itoa(len(s.m.runtime.Calls(args[0]))), nil }},
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
		got, err := s.ofContainer(func(c v1.ContainerStatus) string { return strconv.FormatBool(c.State.Running != nil) })(args)
		if err == nil && got != "true" {
			err = errors.New("it is not")
		}
		return err
	case what == "clean" && len(args) == 0:
		if left := s.m.leftovers(); len(left) > 0 {
			return fmt.Errorf("left over:\n%s", strings.Join(left, "\n"))
		}
		s.m.watch.forget()
		return nil
	case what == "dump" && len(args) == 1:
		return s.golden(args[0], s.m.runtime.Dump())
	case what == "event" && len(args) == 2:
		return s.event(args[0], args[1])
	case what == "file" && len(args) == 4:
		return s.inVolume(args)
	case what == "order":
		return s.order(strings.Split(strings.Join(args, " "), " < "))
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
		for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
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

// starts counts the containers of a name that were started.
func (s *script) starts(args []string) (string, error) {
	n := 0
	for _, c := range s.m.runtime.Calls("StartContainer") {
		if c.Container == args[0] && c.Err == nil {
			n++
		}
	}
	return strconv.Itoa(n), nil
}

func (s *script) event(pod, reason string) error {
	if s.m.agent == nil {
		return errors.New("no agent runs")
	}
	var have []string
	for _, e := range s.m.agent.agent.Events() {
		if e.InvolvedObject.Name == full(pod) {
			if e.Reason == reason {
				return nil
			}
			have = append(have, e.Reason)
		}
	}
	return fmt.Errorf("there are %q", have)
}

// inVolume compares a file in a volume's directory with one word.
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

// order looks for calls, each behind the one before.
func (s *script) order(want []string) error {
	for _, c := range mutating(s.m.runtime.Calls()) {
		if len(want) > 0 && label(c) == strings.TrimSpace(want[0]) {
			want = want[1:]
		}
	}
	if len(want) > 0 {
		return fmt.Errorf("no %q in its place", want[0])
	}
	return nil
}

// label names a call by its method and the container, or the pod where it is about none.
func label(c fake.Call) string {
	if c.Container != "" {
		return c.Method + " " + c.Container
	}
	if c.Pod.Name != "" {
		return c.Method + " " + strings.TrimSuffix(c.Pod.Name, "-"+nodeName)
	}
	return c.Method
}

// mutating leaves out the calls that only ask.
func mutating(calls []fake.Call) []fake.Call {
	var out []fake.Call
	for _, c := range calls {
		switch c.Method {
		case "RunPodSandbox", "StopPodSandbox", "RemovePodSandbox", "CreateContainer", "StartContainer", "StopContainer", "RemoveContainer", "PullImage", "ExecSync":
			out = append(out, c)
		}
	}
	return out
}
