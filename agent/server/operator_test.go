package server

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/berthd/berth/agent/desired/stopped"
	"github.com/berthd/berth/agent/node/runtimestate"
	podengine "github.com/berthd/berth/agent/pod"
)

// operator notes what it is asked for.
type operator struct {
	asked string
	err   error
}

func (o *operator) Restart(_ context.Context, pod *v1.Pod, names []string, grace *int64) ([]string, error) {
	o.asked = fmt.Sprintf("restart %s %q %d", pod.Name, names, ptr.Deref(grace, -1))
	return []string{"a", "b"}, o.err
}

func (o *operator) Stop(pod *v1.Pod, grace *int64) error {
	o.asked = fmt.Sprintf("stop %s %d", pod.Name, ptr.Deref(grace, -1))
	return o.err
}

func (o *operator) Start(_ context.Context, pod *v1.Pod) (bool, error) {
	o.asked = "start " + pod.Name
	return true, o.err
}

func TestOperator(t *testing.T) {
	refused := fmt.Errorf("%w: pod ns/web belongs to the API server", stopped.ErrRefused)
	o := &operator{}
	r := start(t, &fixture{operator: o})
	for _, c := range []struct {
		path, body string
		err        error
		code       int
		asked      string
		want       string
	}{
		{path: "web-node/restart", code: 200, asked: `restart web-node [] -1`, want: `{"containers":["a","b"]}`},
		{
			path: "web-node/restart", body: `{"containers": ["a"], "graceSeconds": 0}`, code: 200,
			asked: `restart web-node ["a"] 0`, want: `{"containers":["a","b"]}`,
		},
		{path: "web-node/restart", body: `{"graceSeconds": -3}`, code: 400, want: "graceSeconds is -3"},
		{path: "web-node/restart", body: `what`, code: 400, want: "reading the request"},
		{path: "nobody/restart", code: 404, want: "does not exist"},
		{
			path: "web-node/restart", err: fmt.Errorf("%w: the pod ends", podengine.ErrNotRestarted), code: 409,
			asked: `restart web-node [] -1`, want: "pod default/web-node: not restarted: the pod ends",
		},
		{
			path: "web-node/restart", err: fmt.Errorf("%w; ask again", &runtimestate.Silence{Err: errors.New("refused")}),
			code: 503, asked: `restart web-node [] -1`, want: "pod default/web-node: the container runtime does not answer",
		},
		{path: "web-node/restart", err: errors.New("disk full"), code: 500, asked: `restart web-node [] -1`, want: "disk full"},
		{path: "web-node/stop", code: 200, asked: `stop web-node -1`, want: `{"changed":true}`},
		{path: "web-node/stop", body: `{"graceSeconds": 5}`, code: 200, asked: `stop web-node 5`, want: `{"changed":true}`},
		{path: "web-node/stop", body: `{"graceSeconds": -1}`, code: 400, want: "graceSeconds is -1"},
		{path: "web-node/stop", err: refused, code: 409, asked: `stop web-node -1`, want: "belongs to the API server"},
		{path: "web-node/start", code: 200, asked: `start web-node`, want: `{"changed":true}`},
		{path: "web-node/start", err: errors.New("disk full"), code: 500, asked: `start web-node`, want: "disk full"},
		{path: "nobody/start", code: 404, want: "does not exist"},
	} {
		o.asked, o.err = "", c.err
		code, text := r.ask(t, http.MethodPost, "/berth/v1/pods/default/"+c.path, strings.NewReader(c.body))
		if code != c.code || o.asked != c.asked || !strings.Contains(text, c.want) {
			t.Errorf("%s %s: %d, asked for %q; %s", c.path, c.body, code, o.asked, text)
		}
	}
}

// The ports open to others than root and the socket's group stop nothing.
func TestOperatorIsOnTheSocketOnly(t *testing.T) {
	o := &operator{}
	r := start(t, &fixture{operator: o})
	for name, handler := range map[string]http.Handler{
		"read-only": r.server.readOnlyRoutes(), "healthz": r.server.healthzRoutes(),
	} {
		for _, verb := range []string{"restart", "stop", "start"} {
			w := newRecorder()
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
				"http://x/berth/v1/pods/default/web-node/"+verb, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}
			if handler.ServeHTTP(w, req); w.code < 400 || o.asked != "" {
				t.Errorf("%s: %s: %d, asked for %q", name, verb, w.code, o.asked)
			}
		}
	}
}
