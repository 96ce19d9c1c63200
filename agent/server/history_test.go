package server

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/telemetry/history"
)

// past is a history of two events and of the pod gone-node.
type past struct{ err error }

func eventAt(name, message string, at time.Time) v1.Event {
	return v1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Message: message, LastTimestamp: metav1.NewTime(at),
	}
}

func (p *past) Events(context.Context, time.Time) ([]v1.Event, error) {
	return []v1.Event{eventAt("a", "long ago", yesterday()), eventAt("b", "counted before", yesterday())}, p.err
}

func (p *past) Previous(_ context.Context, namespace string, names []string, current types.UID) (*history.Past, error) {
	if p.err != nil || namespace != "default" || names[0] != "gone" && current != "uid-1" {
		return nil, p.err
	}
	return &history.Past{Until: yesterday(), Life: history.Life{
		Namespace: namespace, Name: names[len(names)-1], UID: "u0", Status: "Failed",
		Entries: lineOf("Running", failed("images", "no such image")).Entries,
	}}, nil
}

func yesterday() time.Time { return time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) }

func TestHistory(t *testing.T) {
	p := &past{}
	f := &fixture{history: p, kept: []v1.Event{
		eventAt("b", "counted since", time.Now()), eventAt("c", "too old", yesterday().Add(-time.Hour)),
	}}
	f.pods = []*v1.Pod{webPod()}
	f.pods[0].UID = "uid-1"
	r := start(t, f)
	for _, c := range []struct {
		path     string
		err      error
		code     int
		has, not string
	}{
		{path: "/berth/v1/events", code: 200, has: "too old", not: "long ago"},
		{path: "/berth/v1/events?since=2026-01-01T00:00:00Z", code: 200, has: "long ago", not: "too old"},
		{path: "/berth/v1/events?since=2026-01-01T00:00:00Z", code: 200, has: "counted since", not: "counted before"},
		{path: "/berth/v1/events?since=then", code: 400, has: "since"},
		{
			path: "/berth/v1/events?since=2026-01-01T00:00:00Z", err: errors.New("disk fault"), code: 500, has: "disk fault",
		},
		{path: "/berth/v1/why/default/gone?previous=true", code: 200, has: `"until":"2026-01-01T00:00:00Z"`},
		{path: "/berth/v1/why/default/gone?previous=true", code: 200, has: `"message":"no such image"`},
		{path: "/berth/v1/why/default/web-node?previous=true", code: 200, has: `"uid":"u0"`},
		{path: "/berth/v1/why/default/never?previous=true", code: 404, has: "no earlier life of pod default/never"},
		{path: "/berth/v1/why/default/gone?previous=true", err: errors.New("disk fault"), code: 500, has: "disk fault"},
	} {
		p.err = c.err
		code, text := r.ask(t, http.MethodGet, c.path, nil)
		if code != c.code || !strings.Contains(text, c.has) || c.not != "" && strings.Contains(text, c.not) {
			t.Errorf("%s: %d %s", c.path, code, text)
		}
	}
}

func TestNoHistory(t *testing.T) {
	r := start(t, &fixture{kept: []v1.Event{eventAt("b", "kept", time.Now())}})
	if code, text := r.ask(t, http.MethodGet, "/berth/v1/events?since=2026-01-01T00:00:00Z", nil); code != 200 ||
		!strings.Contains(text, "kept") {
		t.Errorf("%d %s", code, text)
	}
	if code, text := r.ask(t, http.MethodGet, "/berth/v1/why/default/web-node?previous=true", nil); code != 404 ||
		!strings.Contains(text, "no history of pods is kept") {
		t.Errorf("%d %s", code, text)
	}
}

// hungPast is a history on a disk that does not answer before open is closed.
type hungPast struct {
	entered chan struct{}
	open    chan struct{}
}

func (p *hungPast) Events(context.Context, time.Time) ([]v1.Event, error) {
	p.entered <- struct{}{}
	<-p.open
	return nil, nil
}

func (p *hungPast) Previous(ctx context.Context, _ string, _ []string, _ types.UID) (*history.Past, error) {
	_, err := p.Events(ctx, time.Time{})
	return nil, err
}

// A hung disk takes the places of requests that read it, and no places of the others.
func TestHungHistory(t *testing.T) {
	p := &hungPast{entered: make(chan struct{}, maxSlow), open: make(chan struct{})}
	f := &fixture{history: p, waits: time.Second}
	f.pods = []*v1.Pod{webPod()}
	r := start(t, f)
	const since, previous = "/berth/v1/events?since=2026-01-01T00:00:00Z", "/berth/v1/why/default/web-node?previous=true"
	var asked sync.WaitGroup
	for i := range maxSlow {
		path := since
		if i%2 > 0 {
			path = previous
		}
		asked.Go(func() { r.ask(t, http.MethodGet, path, nil) })
	}
	for range maxSlow {
		<-p.entered
	}
	for path, want := range map[string]int{
		since: http.StatusTooManyRequests, previous: http.StatusTooManyRequests,
		"/berth/v1/manifests":            http.StatusTooManyRequests, // reads the manifest directory
		"/berth/v1/events":               http.StatusOK,
		"/berth/v1/why/default/web-node": http.StatusOK,
	} {
		if code, text := r.ask(t, http.MethodGet, path, nil); code != want {
			t.Errorf("%s: %d %s, want %d", path, code, text, want)
		}
	}
	close(p.open)
	asked.Wait()
}
