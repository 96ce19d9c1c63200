package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// stampedLine is line n of a log.
func stampedLine(n int) string {
	return fmt.Sprintf("2026-01-01T00:00:%02d.000000000Z line %d\n", n, n)
}

// flaky is an agent that breaks logs off, goes away and comes back.
type flaky struct {
	mu       sync.Mutex
	requests []url.Values
	answers  []func(w http.ResponseWriter)
	pods     []func() []v1.Pod
}

func (f *flaky) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.URL.Path == "/pods" {
		pods := f.pods[0]
		if len(f.pods) > 1 {
			f.pods = f.pods[1:]
		}
		_ = json.NewEncoder(w).Encode(v1.PodList{Items: pods()})
		return
	}
	f.requests = append(f.requests, r.URL.Query())
	answer := f.answers[0]
	f.answers = f.answers[1:]
	answer(w)
}

// log answers with lines, and then ends the log or breaks it off.
func log(broken bool, lines ...int) func(http.ResponseWriter) {
	return func(w http.ResponseWriter) {
		for _, n := range lines {
			_, _ = io.WriteString(w, stampedLine(n))
		}
		if broken {
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	}
}

// second is a time in the second n of the log.
func second(n int) metav1.Time { return metav1.NewTime(time.Date(2026, 1, 1, 0, 0, n, 0, time.UTC)) }

// running returns a pod with a container that runs.
func running() v1.Pod {
	return v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p", UID: "u"},
		Status: v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{
			Name: "c", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}},
		}}},
	}
}

// restarted returns a pod with a container that runs, and ran before between two seconds.
func restarted(from, to int) func() []v1.Pod {
	return func() []v1.Pod {
		p := running()
		p.Status.ContainerStatuses[0].LastTerminationState.Terminated = &v1.ContainerStateTerminated{
			StartedAt: second(from), FinishedAt: second(to),
		}
		return []v1.Pod{p}
	}
}

func TestFollowOverRestarts(t *testing.T) {
	none := func() []v1.Pod { return nil }
	same := func() []v1.Pod { return []v1.Pod{running()} }
	unknown := func() []v1.Pod {
		p := running()
		p.Status.ContainerStatuses = nil
		return []v1.Pod{p}
	}
	replaced := func() []v1.Pod {
		p := running()
		p.UID = "other"
		return []v1.Pod{p}
	}
	three, zero := int64(3), int64(0)
	for name, tc := range map[string]struct {
		opts    LogOptions
		pods    []func() []v1.Pod
		answers []func(http.ResponseWriter)
		want    string
		fails   string
		asked   []string // of each request: since, tail and previous
		missing bool
	}{
		"not interrupted": {
			answers: []func(http.ResponseWriter){log(false, 1, 2)},
			want:    "line 1\nline 2\n",
			asked:   []string{"  "},
		},
		"twice": {
			pods: []func() []v1.Pod{none, unknown, same}, opts: LogOptions{Tail: &three},
			answers: []func(http.ResponseWriter){log(true, 1, 2), log(true, 1, 2, 3), log(false, 3, 4)},
			want:    "line 1\nline 2\nline 3\nline 4\n",
			asked:   []string{" 3 ", "2026-01-01T00:00:01Z  ", "2026-01-01T00:00:02Z  "},
		},
		"the container was restarted meanwhile": {
			pods:    []func() []v1.Pod{restarted(0, 2)},
			answers: []func(http.ResponseWriter){log(true, 1), log(false, 1, 2), log(false, 3)},
			want:    "line 1\nline 2\nline 3\n",
			asked:   []string{"  ", "2026-01-01T00:00:00Z  true", "2026-01-01T00:00:00Z  "},
		},
		"and the agent again": {
			pods:    []func() []v1.Pod{restarted(0, 2)},
			answers: []func(http.ResponseWriter){log(true, 1), log(true, 1), log(false, 1, 2), log(false, 3)},
			want:    "line 1\nline 2\nline 3\n",
			asked: []string{
				"  ", "2026-01-01T00:00:00Z  true", "2026-01-01T00:00:00Z  true", "2026-01-01T00:00:00Z  ",
			},
		},
		"the container was restarted before": {
			pods:    []func() []v1.Pod{restarted(1, 4)},
			answers: []func(http.ResponseWriter){log(true, 7), log(false, 7, 8)},
			want:    "line 7\nline 8\n", asked: []string{"  ", "2026-01-01T00:00:06Z  "},
		},
		"it was restarted more than once": {
			pods:    []func() []v1.Pod{restarted(5, 6)},
			answers: []func(http.ResponseWriter){log(true, 1), log(false, 5), log(false, 8)},
			want:    "line 1\nline 5\nline 8\n",
			asked:   []string{"  ", "2026-01-01T00:00:00Z  true", "2026-01-01T00:00:00Z  "},
			missing: true,
		},
		"nothing had come": {
			pods: []func() []v1.Pod{same}, opts: LogOptions{Tail: &zero},
			answers: []func(http.ResponseWriter){log(true), log(false, 1)},
			want:    "line 1\n", asked: []string{" 0 ", "began  "},
		},
		"the pod was replaced": {
			pods: []func() []v1.Pod{replaced}, answers: []func(http.ResponseWriter){log(true, 1)},
			want: "line 1\n", fails: "replaced", asked: []string{"  "},
		},
		"it is not there at first": {
			answers: []func(http.ResponseWriter){func(w http.ResponseWriter) { http.Error(w, "no such pod", 404) }},
			fails:   "no such pod",
			asked:   []string{"  "},
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := &flaky{answers: tc.answers, pods: tc.pods}
			c := agent(t, f.ServeHTTP)
			pod := running()
			var out bytes.Buffer
			missing := false
			err := c.FollowLog(t.Context(), &pod, "c", tc.opts, &out, func(text string) {
				missing = missing || strings.Contains(text, "missing")
			})
			if missing != tc.missing {
				t.Errorf("missing lines reported: %v", missing)
			}
			if out.String() != tc.want || (err == nil) != (tc.fails == "") ||
				err != nil && !strings.Contains(err.Error(), tc.fails) {
				t.Errorf("%q %v, want %q and an error with %q", out.String(), err, tc.want, tc.fails)
			}
			if len(f.requests) != len(tc.asked) {
				t.Fatalf("requests %v", f.requests)
			}
			for i, q := range f.requests {
				since := q.Get("sinceTime")
				if tc.asked[i] == "began  " && since != "" {
					since = "began"
				}
				if got := since + " " + q.Get("tailLines") + " " + q.Get("previous"); got != tc.asked[i] ||
					q.Get("timestamps") != "true" || q.Get("follow") != "true" {
					t.Errorf("request %d: %q in %v, want %q", i, got, q, tc.asked[i])
				}
			}
		})
	}
}

// TestFollowGivesUp checks that the follower waits for an agent that does not come back, but not
// for ever.
func TestFollowGivesUp(t *testing.T) {
	f := &flaky{
		answers: []func(http.ResponseWriter){log(true, 1)}, pods: []func() []v1.Pod{func() []v1.Pod { return nil }},
	}
	c := agent(t, f.ServeHTTP)
	pod := running()
	var reported []string
	follow := &follower{
		client: c, pod: &pod, container: "c", opts: LogOptions{Follow: true}, patience: 3 * time.Second,
		out: newResumer(io.Discard, false, nil), report: func(text string) { reported = append(reported, text) },
	}
	err := follow.run(t.Context())
	if err == nil || !strings.Contains(err.Error(), "did not give it back within 3s: there is no pod n/p") ||
		len(reported) != 1 {
		t.Errorf("%v, reported %q", err, reported)
	}
}

// TestFollowEndsWithContext ends the context while the agent is away.
func TestFollowEndsWithContext(t *testing.T) {
	f := &flaky{
		answers: []func(http.ResponseWriter){log(true, 1)}, pods: []func() []v1.Pod{func() []v1.Pod { return nil }},
	}
	c := agent(t, f.ServeHTTP)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	pod := running()
	err := c.FollowLog(ctx, &pod, "c", LogOptions{}, io.Discard, func(string) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
