package scenario

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri/fake"
)

// statuses returns the statuses of all of a pod's containers.
func statuses(p *v1.Pod) []v1.ContainerStatus {
	return slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses,
		p.Status.EphemeralContainerStatuses)
}

func code(t *v1.ContainerStateTerminated) string {
	if t == nil {
		return ""
	}
	return strconv.Itoa(int(t.ExitCode))
}

func signal(c v1.ContainerStatus) string {
	if c.StopSignal == nil {
		return ""
	}
	return string(*c.StopSignal)
}

// conditionReason returns the reason of a pod's condition.
func (s *script) conditionReason(args []string) (string, error) {
	return s.ofPod(func(p *v1.Pod) string {
		for _, c := range p.Status.Conditions {
			if string(c.Type) == args[1] {
				return c.Reason
			}
		}
		return ""
	})(args)
}

// splitCalls reads "A b < C d" as two calls.
func splitCalls(args []string) []string {
	calls := strings.Split(strings.Join(args, " "), " < ")
	for i := range calls {
		calls[i] = strings.TrimSpace(calls[i])
	}
	return calls
}

// order looks for the calls, each after the one before it.
func (s *script) order(want []string) error {
	if found := s.find(want); len(found) < len(want) {
		return fmt.Errorf("no %q in its place", want[len(found)])
	}
	return nil
}

// find returns the wanted calls as far as they happened. Each is the first after the one before it.
func (s *script) find(want []string) []fake.Call {
	var found []fake.Call
	for _, c := range mutating(s.m.runtime.Calls()) {
		if len(found) < len(want) && is(c, want[len(found)]) {
			found = append(found, c)
		}
	}
	return found
}

// distance compares the time between the beginnings of calls with a limit. For "within", it takes
// the first call of each kind, in any order. For "apart", it takes each call after the one before
// it.
func (s *script) distance(what, limit string, want []string) error {
	d, err := time.ParseDuration(limit)
	if err != nil {
		return err
	}
	var found []fake.Call
	if what == "within" {
		for _, w := range want {
			found = append(found, s.find([]string{w})...)
		}
		slices.SortFunc(found, func(a, b fake.Call) int { return a.Begin.Compare(b.Begin) })
	} else {
		found = s.find(want)
	}
	if len(found) < len(want) || len(want) < 2 {
		return errors.New("not all of these calls were made")
	}
	got := found[len(found)-1].Begin.Sub(found[0].Begin)
	if (what == "within") != (got <= d) {
		return fmt.Errorf("they are %s apart", got)
	}
	return nil
}

// is reports whether a call is the one that a script names, by its method and its container. A call
// without a container is named by its pod, and an ExecSync also by its command.
func is(c fake.Call, want string) bool {
	switch {
	case c.Container == "" && c.Pod.Name == "":
		return want == c.Method
	case c.Container == "":
		return want == c.Method+" "+strings.TrimSuffix(c.Pod.Name, "-"+nodeName)
	case want == c.Method+" "+c.Container:
		return true
	}
	return want == c.Method+" "+c.Container+" "+command0(c)
}

// command0 returns the first word of the command of an ExecSync.
func command0(c fake.Call) string {
	if r, ok := c.Request.(*runtimeapi.ExecSyncRequest); ok && len(r.Cmd) > 0 {
		return r.Cmd[0]
	}
	return ""
}

// mutating returns the calls that change something.
func mutating(calls []fake.Call) []fake.Call {
	var out []fake.Call
	for _, c := range calls {
		switch c.Method {
		case "RunPodSandbox", "StopPodSandbox", "RemovePodSandbox", "CreateContainer", "StartContainer",
			"StopContainer", "RemoveContainer", "PullImage", "ExecSync":
			out = append(out, c)
		}
	}
	return out
}

// executions returns how often a command was run in a container since reset-calls.
func (s *script) executions(args []string) (string, error) {
	n := 0
	for _, c := range s.m.runtime.Calls("ExecSync") {
		if c.Container == args[0] && command0(c) == args[1] {
			n++
		}
	}
	return strconv.Itoa(n), nil
}

// grace returns the grace, in seconds, of the last stop of a container.
func (s *script) grace(args []string) (string, error) {
	calls := s.m.runtime.Calls("StopContainer")
	for _, c := range slices.Backward(calls) {
		if r, ok := c.Request.(*runtimeapi.StopContainerRequest); ok && c.Container == args[0] {
			return strconv.FormatInt(r.Timeout, 10), nil
		}
	}
	return "", errors.New("it was not stopped")
}

// target returns the name of the container whose processes the newest container with a name shares.
func (s *script) target(args []string) (string, error) {
	calls := s.m.runtime.Calls("CreateContainer")
	for _, c := range slices.Backward(calls) {
		r, ok := c.Request.(*runtimeapi.CreateContainerRequest)
		if !ok || c.Container != args[0] {
			continue
		}
		options := r.GetConfig().GetLinux().GetSecurityContext().GetNamespaceOptions()
		if options.GetPid() != runtimeapi.NamespaceMode_TARGET {
			return "none", nil
		}
		of := s.m.runtime.Container(options.GetTargetId())
		return of.GetMetadata().GetName(), nil
	}
	return "", errors.New("it was not made")
}
