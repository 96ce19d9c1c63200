package fake

import (
	"slices"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestShell(t *testing.T) {
	forever := time.Duration(-1)
	for script, want := range map[string]struct {
		after    time.Duration
		code     int32
		ignore   bool
		termCode int32
		output   []string
	}{
		"exit 3":                         {0, 3, true, 0, nil},
		"false":                          {0, 1, true, 0, nil},
		"true; sleep 1.5":                {1500 * time.Millisecond, 0, true, 0, nil},
		"sleep 2m && exit 1":             {2 * time.Minute, 1, true, 0, nil},
		"sleep infinity":                 {forever, 0, true, 0, nil},
		"sleep 1d":                       {24 * time.Hour, 0, true, 0, nil},
		"kill -9 $$":                     {0, 137, true, 0, nil},
		"exec sleep 5":                   {5 * time.Second, 0, true, 0, nil},
		"while true; do :; done; exit 1": {forever, 0, true, 0, nil},
		"echo a b; echo 'c;  d' >&2; echo x > /tmp/f":       {0, 0, true, 0, []string{"a b", "stderr: c;  d"}},
		`trap 'exit 5' TERM; while :; do sleep 1; done`:     {forever, 0, false, 5, nil},
		`trap "" TERM; sleep 9`:                             {9 * time.Second, 0, true, 0, nil},
		"trap 'echo bye; exit' INT TERM\nsleep 1000 & wait": {1000 * time.Second, 0, false, 0, nil},
		"": {0, 0, true, 0, nil},
	} {
		b := shellBehavior(&runtimeapi.ContainerConfig{
			Command: []string{"/bin/sh", "-c"}, Args: []string{script},
			Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
			}},
		})
		after, code := forever, int32(0)
		if b.Exit != nil {
			after, code = b.Exit.After, b.Exit.Code
		}
		if after != want.after || code != want.code || b.Term.Ignore != want.ignore || b.Term.Code != want.termCode ||
			!slices.Equal(b.Output, want.output) {
			t.Errorf("%q: after %s, code %d, %+v, output %q; want %+v", script, after, code, b.Term, b.Output, want)
		}
	}
	if b := shellBehavior(&runtimeapi.ContainerConfig{Args: []string{"serve", "--port", "80"}}); b.Exit != nil ||
		b.Term.Ignore {
		t.Errorf("an unknown command does %+v, want it to run until it is stopped", b)
	}
	if b := shellBehavior(&runtimeapi.ContainerConfig{Command: []string{"sleep", "9"}}); b.Term.Ignore ||
		b.Term.Code != 143 {
		t.Errorf("in a shared PID namespace, sleep does %+v on SIGTERM, want it to die of it", b.Term)
	}
}

func TestNormalize(t *testing.T) {
	for name, want := range map[string]string{
		"busybox":                  "docker.io/library/busybox:latest",
		"busybox:1.36":             "docker.io/library/busybox:1.36",
		"grafana/loki":             "docker.io/grafana/loki:latest",
		"localhost/app":            "localhost/app:latest",
		"127.0.0.1:5000/app":       "127.0.0.1:5000/app:latest",
		"quay.io/a/b@sha256:abcd":  "quay.io/a/b@sha256:abcd",
		"quay.io/a/b:v1@sha256:ab": "quay.io/a/b:v1@sha256:ab",
		"sha256:abcd":              "sha256:abcd",
	} {
		if got := normalize(name); got != want {
			t.Errorf("normalize(%q) = %q, want %q", name, got, want)
		}
	}
}
