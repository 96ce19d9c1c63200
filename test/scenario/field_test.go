package scenario

import (
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/jsonpath"
)

// field returns what a JSONPath finds in a pod as the API shows it.
func (s *script) field(args []string) (string, error) {
	p := s.m.pod(args[0])
	if p == nil {
		return "", errors.New("there is no such pod")
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
	if err != nil {
		return "", fmt.Errorf("turning the pod into fields: %w", err)
	}
	path := jsonpath.New("field").AllowMissingKeys(true)
	if err := path.Parse(args[1]); err != nil {
		return "", err
	}
	var out strings.Builder
	err = path.Execute(&out, content)
	return out.String(), err
}

// limits returns the current limits of a pod's cgroup.
func (s *script) limits(args []string) (string, error) {
	p := s.m.pod(args[0])
	if p == nil {
		return "", errors.New("there is no such pod")
	}
	h := s.m.cgroups
	h.mu.Lock()
	defer h.mu.Unlock()
	return amounts(h.limits[p.UID]), nil
}

// resized returns all limits that a pod's cgroup had since its beginning.
func (s *script) resized(args []string) (string, error) {
	p := s.m.pod(args[0])
	if p == nil {
		return "", errors.New("there is no such pod")
	}
	h := s.m.cgroups
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []string
	for _, c := range h.changes {
		if c.uid == p.UID {
			all = append(all, amounts(c.limits))
		}
	}
	return strings.Join(all, ","), nil
}

// noCondition returns the condition's type if the pod does not have the condition.
func (s *script) noCondition(args []string) (string, error) {
	status, err := s.condition(append(args, ""))
	if err != nil || status != "" {
		return "there, and " + status, err
	}
	return args[1], nil
}
