package hooks

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// The event about a failed hook has the cause, but neither the hook nor its output.
func TestMessage(t *testing.T) {
	command := &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"login", "--password=hunter2"}}}
	for name, tc := range map[string]struct {
		code   int
		output string
		err    error
		want   string
	}{
		"exit code and output": {
			code:   3,
			output: "the token is hunter2\n",
			want:   "PostStartHook failed: the command exited with 3",
		},
		"no output": {code: 1, want: "PostStartHook failed: the command exited with 1"},
		"cannot run": {
			err:  errors.New("executable file not found in $PATH"),
			want: "PostStartHook failed: executable file not found in $PATH",
		},
		"the end of much": {
			err:  errors.New("begin" + strings.Repeat("ü", 2*maxReported) + "end"),
			want: "PostStartHook failed: …" + strings.Repeat("ü", (maxReported-len("…end"))/2) + "end",
		},
	} {
		r := New(Config{}, Deps{Exec: func(context.Context, string, []string, time.Duration) (int, []byte, error) {
			return tc.code, []byte(tc.output), tc.err
		}})
		err := r.Run(t.Context(), testPod(), "", &v1.Container{Name: "c"}, "id", command)
		if got := Message(ReasonFailedPostStartHook, err); got != tc.want {
			t.Errorf("%s:\n got %q\nwant %q", name, got, tc.want)
		}
		if strings.Contains(err.Error(), "the token") {
			t.Errorf("%s: the log tells what the command wrote: %v", name, err)
		}
	}
}

func TestMessageOfRequest(t *testing.T) {
	// The socket takes the port but does not listen, so that nobody answers there.
	taken, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(taken) }()
	if err := unix.Bind(taken, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := unix.Getsockname(taken)
	if err != nil {
		t.Fatal(err)
	}
	port := intstr.FromInt32(int32(at.(*unix.SockaddrInet4).Port))
	r := New(Config{}, Deps{})
	err = r.Run(t.Context(), testPod(), "127.0.0.1", &v1.Container{Name: "c"}, "id",
		&v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Path: "/?token=hunter2", Port: port}})
	got := Message(ReasonFailedPreStopHook, err)
	if !strings.HasPrefix(got, "PreStopHook failed: ") || !strings.Contains(got, "connection refused") ||
		strings.Contains(got, "hunter2") {
		t.Errorf("message %q of %v", got, err)
	}
}

func TestMessageOfGrace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New(Config{},
			Deps{Exec: func(ctx context.Context, _ string, _ []string, _ time.Duration) (int, []byte, error) {
				<-ctx.Done()
				return 0, nil, errors.New("rpc error: code = Canceled")
			}})
		for name, handler := range map[string]*v1.LifecycleHandler{
			"exec": {Exec: &v1.ExecAction{Command: []string{"sleep"}}}, "sleep": {Sleep: &v1.SleepAction{Seconds: 60}},
		} {
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("the grace period is over"))
			err := r.Run(ctx, testPod(), "", &v1.Container{Name: "c"}, "id", handler)
			cancel()
			if got := Message(ReasonFailedPreStopHook, err); !strings.HasPrefix(got, "PreStopHook failed: ") ||
				!strings.HasSuffix(got, "the grace period is over") {
				t.Errorf("%s: message %q of %v", name, got, err)
			}
		}
	})
}
