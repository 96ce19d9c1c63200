package steps

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri"
)

// signalling is a runtime that answers with one container's status, and a sink for the events about
// it.
type signalling struct {
	cri.Runtime
	signal runtimeapi.Signal
	err    error
	events []string
}

func (s *signalling) ContainerStatus(context.Context, string) (*runtimeapi.ContainerStatus, error) {
	return &runtimeapi.ContainerStatus{StopSignal: s.signal}, s.err
}

func (s *signalling) Pod(_ *v1.Pod, container, eventType, reason, message string) {
	s.events = append(s.events, strings.Join([]string{container, eventType, reason, message}, "|"))
}

func TestCheckSignal(t *testing.T) {
	usr1 := v1.SIGUSR1
	c := &v1.Container{Name: "main", Lifecycle: &v1.Lifecycle{StopSignal: &usr1}}
	for name, tc := range map[string]struct {
		asked, has runtimeapi.Signal
		err        error
		reported   bool
	}{
		"not asked":      {has: runtimeapi.Signal_SIGTERM},
		"taken":          {asked: runtimeapi.Signal_SIGUSR1, has: runtimeapi.Signal_SIGUSR1},
		"field unknown":  {asked: runtimeapi.Signal_SIGUSR1, reported: true},
		"another signal": {asked: runtimeapi.Signal_SIGUSR1, has: runtimeapi.Signal_SIGQUIT, reported: true},
		"no answer":      {asked: runtimeapi.Signal_SIGUSR1, err: errors.New("gone")},
	} {
		rt := &signalling{signal: tc.has, err: tc.err}
		(&Starter{Runtime: rt, Events: rt}).checkSignal(t.Context(),
			&Sync{Given: Given{Log: slog.New(slog.DiscardHandler)}}, c, "id", tc.asked)
		if (len(rt.events) == 1) != tc.reported {
			t.Errorf("%s: events %q", name, rt.events)
		} else if tc.reported &&
			!strings.HasPrefix(rt.events[0],
				"main|Warning|StopSignalNotSupported|lifecycle.stopSignal SIGUSR1 has no effect") {
			t.Errorf("%s: %s", name, rt.events[0])
		}
	}
}
