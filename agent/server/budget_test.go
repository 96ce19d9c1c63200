package server

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	v1 "k8s.io/api/core/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berthd/berth/agent/server/hostlogs"
	"github.com/berthd/berth/client/api"
)

// TestBudget has places for the lasting work of each kind in each pod.
func TestBudget(t *testing.T) {
	for kind, most := range maxOfPod {
		b := newBudget(waitTimeout)
		enter := func(pod string) (func(), error) { return b.enter(t.Context(), lasting, share{kind, pod}, nil) }
		var leaves []func()
		for i := range most + 1 {
			leave, err := enter("ns/a")
			if (err != nil) != (i == most) {
				t.Fatalf("request %d of those that %s: %v", i, kind, err)
			}
			if err == nil {
				leaves = append(leaves, leave)
			} else if codeOf(err) != http.StatusTooManyRequests {
				t.Errorf("%v", err)
			}
		}
		if _, err := enter("ns/b"); err != nil {
			t.Errorf("of another pod: %v", err)
		}
		for _, leave := range leaves {
			leave()
		}
		if _, err := enter("ns/a"); err != nil || len(b.shares) != 2 || b.kinds[kind] != 2 {
			t.Errorf("after they left: %v, %v, %v", err, b.shares, b.kinds)
		}
		if !b.slots[lasting].TryAcquire(maxLasting-2) || b.slots[lasting].TryAcquire(1) {
			t.Error("not two places are taken")
		}
	}
}

// TestBudgetOfManyPods has as much work of one kind in as many pods as there may be: more of it is
// refused, and what else lasts still has its places.
func TestBudgetOfManyPods(t *testing.T) {
	for kind, most := range maxOfKind {
		b := newBudget(waitTimeout)
		for i := range most + 1 {
			of := share{kind: kind}
			if maxOfPod[kind] > 0 {
				of.pod = strconv.Itoa(i/2) + "/" + strconv.Itoa(i)
			}
			_, err := b.enter(t.Context(), lasting, of, nil)
			if (err != nil) != (i == most) {
				t.Fatalf("request %d of those that %s: %v", i, kind, err)
			}
		}
		for i := range maxLasting - most + 1 {
			if _, err := b.enter(t.Context(), lasting, share{}, nil); (err != nil) != (i == maxLasting-most) {
				t.Fatalf("watch %d: %v", i, err)
			}
		}
	}
}

// TestBudgetOfANamespace has as much work of both kinds in the pods of one namespace as there may
// be: neither kind takes the other's places, and those of other namespaces have some for both.
func TestBudgetOfANamespace(t *testing.T) {
	b := newBudget(waitTimeout)
	var leaves []func()
	for _, kind := range []kind{readingLogs, inContainer} {
		for i := range maxOfNamespace + 1 {
			leave, err := b.enter(t.Context(), lasting, share{kind, "mine/" + strconv.Itoa(i)}, nil)
			if (err != nil) != (i == maxOfNamespace) {
				t.Fatalf("request %d of those that %s: %v", i, kind, err)
			}
			if err == nil {
				leaves = append(leaves, leave)
			}
		}
	}
	for _, kind := range []kind{readingLogs, inContainer} {
		leave, err := b.enter(t.Context(), lasting, share{kind, "other/a"}, nil)
		if err != nil {
			t.Fatalf("of another namespace: %v", err)
		}
		leaves = append(leaves, leave)
	}
	for _, leave := range leaves {
		leave()
	}
	if len(b.namespaces) > 0 {
		t.Errorf("still counted: %v", b.namespaces)
	}
}

// TestLastingWorkIsCounted asks for logs that are not followed, and for commands and streams, in a
// pod with as much such work as it may have, and for what has no pod beside as much of it.
func TestLastingWorkIsCounted(t *testing.T) {
	s := &Server{hostLogs: hostlogs.New(hostlogs.Config{})}
	for path, kind := range map[string]kind{
		"GET /containerLogs/ns/a/c": readingLogs,
		"POST /exec/ns/a/c":         inContainer,
		"GET /exec/ns/a/uid/c":      inContainer,
		"POST /attach/ns/a/c":       inContainer,
		"GET /portForward/ns/a":     inContainer,
		"POST /run/ns/a/c":          inContainer,
		"GET /logs/syslog":          readingNode,
		"GET /debug/pprof/heap":     profiling,
		"GET /debug/pprof/profile":  profiling,
		"GET /debug/pprof/trace":    profiling,
	} {
		mux := newMux(waitTimeout)
		of, most := share{kind: kind}, maxOfKind[kind]
		if maxOfPod[kind] > 0 {
			of.pod, most = "ns/a", maxOfPod[kind]
		}
		var leaves []func()
		for range most {
			leave, err := mux.budget.enter(t.Context(), lasting, of, nil)
			if err != nil {
				t.Fatal(err)
			}
			leaves = append(leaves, leave)
		}
		s.addDebugging(mux, Handlers{SystemLogs: true, Profiling: true})
		method, target, _ := strings.Cut(path, " ")
		answer := httptest.NewRecorder()
		mux.ServeHTTP(answer, httptest.NewRequestWithContext(t.Context(), method, target, nil))
		if answer.Code != http.StatusTooManyRequests {
			t.Errorf("%s beside as many requests as there may be: %d %s", path, answer.Code, answer.Body)
		}
		for _, leave := range leaves {
			leave()
		}
		if b := mux.budget; b.kinds[kind] != 0 || len(b.shares)+len(b.namespaces) != 0 {
			t.Errorf("%s: counted after all have left: %v %v %v", path, b.kinds, b.shares, b.namespaces)
		}
	}
}

// TestLongWork has a request beside as many as there are places, which are still worked on: it
// waits for the first of them to end, and gives up only if none does.
func TestLongWork(t *testing.T) {
	const work = waitTimeout - time.Second
	for name, c := range map[string]struct {
		first bool
		ends  bool
	}{
		"one ends":       {ends: true},
		"none ends":      {},
		"one ends, new":  {first: true, ends: true},
		"none ends, new": {first: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBudget(waitTimeout)
				var leaves []func()
				for i := range maxSlow {
					leave, err := b.enter(t.Context(), slow, share{}, &seat{first: int64(i) >= maxSlow-reserved[slow]})
					if err != nil {
						t.Fatal(err)
					}
					leaves = append(leaves, leave)
				}
				if c.ends {
					time.AfterFunc(work, func() {
						for _, leave := range leaves {
							leave()
						}
					})
				}
				began := time.Now()
				_, err := b.enter(t.Context(), slow, share{}, &seat{first: c.first})
				took := time.Since(began)
				switch {
				case c.ends && (err != nil || took != work):
					t.Errorf("after %v: %v", took, err)
				case !c.ends && (codeOf(err) != http.StatusTooManyRequests || took != waitTimeout):
					t.Errorf("after %v: %v", took, err)
				}
			})
		})
	}
}

// TestSlowReaders has as many callers as there are places, which read nothing of their answers. One
// of them loses its place to a caller that comes, and one to the caller's next requests. The others
// can still read theirs.
func TestSlowReaders(t *testing.T) {
	pod := webPod()
	pod.Annotations = map[string]string{"a": strings.Repeat("a", 1<<20)} // more than sockets buffer
	r := start(t, &fixture{pods: []*v1.Pod{pod}})
	conns := make([]*bufio.Reader, maxQuick)
	for i := range conns {
		conn, err := net.Dial("unix", r.socket)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		fmt.Fprintf(conn, "GET /pods HTTP/1.1\r\nHost: x\r\n\r\n")
		conns[i] = bufio.NewReaderSize(conn, 16)
		if _, err := conns[i].Peek(1); err != nil { // it has its place
			t.Fatal(err)
		}
	}
	for range 3 {
		if code, text := r.ask(t, "GET", api.PathPods, nil); code != 200 {
			t.Errorf("beside slow readers: %d %q", code, text)
		}
	}
	whole := 0
	for _, conn := range conns {
		resp, err := http.ReadResponse(conn, nil)
		if err != nil {
			continue
		}
		if _, err := io.Copy(io.Discard, resp.Body); err == nil {
			whole++
		}
	}
	if whole != maxQuick-2 {
		t.Errorf("%d of %d slow readers got their answers", whole, maxQuick)
	}
}

// deadlines counts the deadlines that are set on a connection.
type deadlines struct {
	http.ResponseWriter
	set int
}

func (d *deadlines) SetWriteDeadline(time.Time) error { d.set++; return nil }

// TestRunIsSentInTime runs a command for a caller that may read nothing: the output is not kept for
// ever.
func TestRunIsSentInTime(t *testing.T) {
	r := start(t, &fixture{pods: []*v1.Pod{webPod()}})
	conn := &deadlines{ResponseWriter: httptest.NewRecorder()}
	req := httptest.NewRequestWithContext(t.Context(), "POST", "/run/default/web-node/main?cmd=true", nil)
	for name, value := range map[string]string{"namespace": "default", "pod": "web-node", "container": "main"} {
		req.SetPathValue(name, value)
	}
	r.server.run(conn, req)
	if conn.set != 1 {
		t.Errorf("%d deadlines were set", conn.set)
	}
}

// TestErrorsOfLastingWorkAreSentInTime answers callers of HTTP/2 who take nothing. Errors are not
// kept for ever; a followed log is.
func TestErrorsOfLastingWorkAreSentInTime(t *testing.T) {
	r := start(t, &fixture{})
	for code, want := range map[int]int{http.StatusOK: 1, http.StatusNotFound: 2} {
		conn := &deadlines{ResponseWriter: httptest.NewRecorder()}
		req := httptest.NewRequestWithContext(t.Context(), "GET", "/", nil)
		req.ProtoMajor = 2
		e := r.server.lasting("test", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) })
		e.bounded(newBudget(time.Minute)).ServeHTTP(conn, req)
		if conn.set != want { // one of them is none
			t.Errorf("%d: %d deadlines were set, want %d", code, conn.set, want)
		}
	}
}

// TestCutAfterTheEnd cuts an answer whose request has ended: the connection is another request's.
func TestCutAfterTheEnd(t *testing.T) {
	conn := &deadlines{ResponseWriter: httptest.NewRecorder()}
	s := &seat{ResponseWriter: conn}
	s.cut()
	s.leave()
	s.cut()
	if conn.set != 1 {
		t.Errorf("%d deadlines were set", conn.set)
	}
}

// measured counts how often it measures. It measures until done is closed.
type measured struct {
	done      chan struct{}
	summaries atomic.Int32
	gathers   atomic.Int32
}

func (m *measured) Summary(context.Context, bool) *statsapi.Summary {
	m.summaries.Add(1)
	<-m.done
	return &statsapi.Summary{Node: statsapi.NodeStats{NodeName: "node"}}
}

func (m *measured) Resource() prometheus.Gatherer {
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		m.gathers.Add(1)
		<-m.done
		return gauge("node_memory").Gather()
	})
}

func (m *measured) Cadvisor() prometheus.Gatherer { return m.Resource() }

// TestSharedMeasurements has many callers that ask how much the node uses at the same time: it is
// measured once for all of them, also if the first of them leaves.
func TestSharedMeasurements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &measured{done: make(chan struct{})}
		s := &Server{deps: Deps{Stats: m}}
		metrics := s.scrape(m.Resource).serve
		answers := make([]*httptest.ResponseRecorder, 200)
		for i := range answers {
			answers[i] = httptest.NewRecorder()
			serve, path := s.summary, "/stats/summary"
			if i%2 == 1 {
				serve, path = metrics, "/metrics/resource"
			}
			go serve(answers[i], httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		}
		synctest.Wait()
		close(m.done)
		synctest.Wait()
		if m.summaries.Load() != 1 || m.gathers.Load() != 1 {
			t.Errorf("measured %d and %d times", m.summaries.Load(), m.gathers.Load())
		}
		for i, a := range answers {
			if want := []string{`"nodeName":"node"`, "node_memory"}[i%2]; !strings.Contains(a.Body.String(), want) {
				t.Fatalf("answer %d: %d %q", i, a.Code, a.Body)
			}
		}
	})
}
