package server

import (
	"net/http"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestEphemeral(t *testing.T) {
	r := start(t, &fixture{})
	const path = "/berth/v1/pods/default/web-node/ephemeralcontainers"
	for _, tc := range []struct {
		method, path, body string
		code               int
		want               string
	}{
		{
			"POST", path, `{"name": "debugger", "image": "tools", "targetContainerName": "main"}`, 200,
			`"name":"debugger"`,
		},
		{"POST", path, `{"image": "tools"}`, 422, "name: Required value"},
		{
			"POST", path, `{"name": "late"}`, 409,
			"pod default/web-node: the pod takes no more containers: its phase is Failed",
		},
		{"POST", path, `{"name": "unlucky"}`, 500, "disk full"},
		{"POST", path, `{"name": "x", "nonsense": 1}`, 400, "nonsense"},
		{"POST", path, `{`, 400, "reading the ephemeral container"},
		{"POST", path, ``, 400, "reading the ephemeral container"},
		{"POST", path, `{"name": "` + strings.Repeat("x", 1<<20) + `"}`, 413, "more than 65536 bytes"},
		{"POST", "/berth/v1/pods/default/nope/ephemeralcontainers", `{"name": "x"}`, 404, "does not exist"},
		{"GET", path, ``, 405, "use POST"},
	} {
		code, text := r.ask(t, tc.method, tc.path, strings.NewReader(tc.body))
		if code != tc.code || !strings.Contains(text, tc.want) {
			t.Errorf("%s %s %.60s: %d %.300q, want %d %q", tc.method, tc.path, tc.body, code, text, tc.code, tc.want)
		}
	}
	if got := r.pods[0].Spec.EphemeralContainers; len(got) != 1 || got[0].Name != "debugger" ||
		got[0].TargetContainerName != "main" {
		t.Errorf("added %+v", got)
	}
}

// The ports open to others than root and the socket's group add nothing to pods.
func TestEphemeralIsOnTheSocketOnly(t *testing.T) {
	r := start(t, &fixture{})
	for name, handler := range map[string]http.Handler{
		"read-only": r.server.readOnlyRoutes(), "healthz": r.server.healthzRoutes(),
	} {
		w := newRecorder()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost,
			"http://x/berth/v1/pods/default/web-node/ephemeralcontainers", strings.NewReader(`{"name": "x"}`))
		if err != nil {
			t.Fatal(err)
		}
		if handler.ServeHTTP(w, req); w.code < 400 {
			t.Errorf("%s: %d", name, w.code)
		}
	}
}

// A postStart hook that hangs is looked at in its container, which waits as far as the pod is
// concerned.
func TestStarted(t *testing.T) {
	waiting := v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ContainerCreating"}}
	ended := func(id string) v1.ContainerState {
		return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ContainerID: id}}
	}
	for name, tc := range map[string]struct {
		status *v1.ContainerStatus
		want   bool
	}{
		"nothing known": {nil, false},
		"running": {
			&v1.ContainerStatus{State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}, true,
		},
		"ended":          {&v1.ContainerStatus{State: ended("f://a"), ContainerID: "f://a"}, false},
		"not made yet":   {&v1.ContainerStatus{State: waiting}, false},
		"hook under way": {&v1.ContainerStatus{State: waiting, ContainerID: "f://a"}, true},
		"hook under way after a crash": {
			&v1.ContainerStatus{State: waiting, ContainerID: "f://b", LastTerminationState: ended("f://a")}, true,
		},
		"waits to be started once more": {
			&v1.ContainerStatus{State: waiting, ContainerID: "f://a", LastTerminationState: ended("f://a")}, false,
		},
	} {
		if got := started(tc.status); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
