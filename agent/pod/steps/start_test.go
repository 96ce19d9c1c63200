package steps

import (
	"context"
	"errors"
	"log/slog"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/images"
	"github.com/berthd/berth/agent/pod/plan"
)

var errOvertaken = errors.New("overtaken by a stop")

// overtaken is a node on which a stop overtakes the sync that asks for a pod's Services.
type overtaken struct {
	NodeView
	stop context.CancelCauseFunc
}

func (overtaken) HostIPs() []string { return nil }

func (o overtaken) Services(*v1.Pod) ([]*v1.Service, error) {
	o.stop(errOvertaken)
	return nil, errors.New("the start took too long")
}

// A stop that overtakes a sync waits for the container that is being started, and for no further
// one.
func TestNoStartAfterAStopOvertakesTheSync(t *testing.T) {
	ctx, stop := context.WithCancelCause(t.Context())
	p := syncOf(t)
	p.Log = slog.New(slog.DiscardHandler)
	p.Images = map[string]images.Result{}
	for _, kind := range []plan.Kind{plan.App, plan.App, plan.Ephemeral} {
		c := &v1.Container{Name: string(rune('a' + len(p.Actions.Start)))}
		p.Images[c.Name] = images.Result{Ready: true}
		p.Actions.Start = append(p.Actions.Start, plan.Start{Container: c, Kind: kind})
	}
	begun := 0
	s := &Starter{Node: overtaken{stop: stop}, Started: func(plan.Kind, error) { begun++ }}
	for _, kind := range []plan.Kind{plan.App, plan.Ephemeral} {
		if _, err := s.startAll(ctx, p, kind); !errors.Is(err, errOvertaken) {
			t.Errorf("error %v", err)
		}
	}
	if begun != 1 {
		t.Errorf("the start of %d containers was begun, want 1", begun)
	}
}
