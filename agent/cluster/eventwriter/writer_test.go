package eventwriter

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/berthd/berth/agent/cluster/kube"
	"github.com/berthd/berth/agent/cluster/kube/fake"
	"github.com/berthd/berth/agent/telemetry/events"
)

var resource = schema.GroupVersionResource{Version: "v1", Resource: "events"}

// bench is a recorder whose events are written to a fake API server, in fake time.
type bench struct {
	*events.Recorder
	t      *testing.T
	server *fake.Server
	writer *Writer
	stop   func()
}

func run(t *testing.T, cfg Config, test func(*bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{Recorder: events.New("node"), t: t, server: fake.New()}
		defer b.server.Close()
		core, err := b.server.Conn(kube.Config{QPS: -1}).Group(v1.SchemeGroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		b.writer = New(cfg, Deps{Core: core})
		b.Pod(pod("before"), "", v1.EventTypeNormal, "Early", "before anybody listened")
		b.Listen(b.writer.Take)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- b.writer.Run(ctx) }()
		stopped := false
		b.stop = func() {
			if cancel(); !stopped {
				stopped = true
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
		}
		advance(time.Second)
		test(b)
		b.stop()
	})
}

func advance(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func pod(name string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "u", ResourceVersion: "7"},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "app"}}},
	}
}

// wait returns how many events wait, and how many of them are found by name.
func (b *bench) wait() (n, named int) {
	b.writer.mu.Lock()
	defer b.writer.mu.Unlock()
	return b.writer.waiting.Len(), len(b.writer.byName)
}

// written returns an event as the API server has it, nil if there is none.
func (b *bench) written(reason string) *v1.Event {
	for _, e := range b.List() {
		if e.Reason == reason {
			got, _ := b.server.Get(resource, e.Namespace, e.Name).(*v1.Event)
			return got
		}
	}
	return nil
}

func TestWritten(t *testing.T) {
	run(t, Config{QPS: 50, Burst: 100}, func(b *bench) {
		b.Pod(pod("web"), "app", v1.EventTypeWarning, "BackOff", "m")
		b.Node(v1.EventTypeNormal, "NodeReady", "n")
		advance(time.Second)
		if b.written("Early") == nil {
			t.Error("an event from before is lost")
		}
		e := b.written("BackOff")
		want := v1.ObjectReference{
			APIVersion:      "v1",
			Kind:            "Pod",
			Namespace:       "ns",
			Name:            "web",
			UID:             "u",
			ResourceVersion: "7",
			FieldPath:       "spec.containers{app}",
		}
		if e == nil || e.InvolvedObject != want || e.Source != (v1.EventSource{Component: "kubelet", Host: "node"}) ||
			e.Type != "Warning" || e.Message != "m" || e.Count != 1 {
			t.Errorf("%+v", e)
		}
		if n := b.written("NodeReady"); n == nil || n.Namespace != "default" || n.InvolvedObject.UID != "node" {
			t.Errorf("%+v", n)
		}
		b.server.Requests()
		for i := range 3 {
			p := pod("web")
			p.ResourceVersion = fmt.Sprint(8 + i) // the pod changes, and its event repeats
			b.Pod(p, "app", v1.EventTypeWarning, "BackOff", "m")
		}
		advance(time.Second)
		if e := b.written("BackOff"); e.Count != 4 {
			t.Errorf("count %d", e.Count)
		}
		for _, r := range b.server.Requests() {
			if r.Method != http.MethodPatch {
				t.Errorf("a repeat is told by %s %s", r.Method, r.Path)
			}
		}
		advance(time.Hour)
		if more := b.server.Requests(); len(more) > 0 {
			t.Errorf("requests while nothing happens: %v", more)
		}
	})
}

// The API server keeps an event for an hour. If it repeats after that, it is a new event.
func TestRepeatOfAnEventThatIsGone(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		b.Pod(pod("web"), "", v1.EventTypeNormal, "A", "m")
		advance(time.Second)
		e := b.written("A")
		b.server.Delete(resource, e.Namespace, e.Name, nil)
		b.Pod(pod("web"), "", v1.EventTypeNormal, "A", "m")
		advance(time.Second)
		if e := b.written("A"); e == nil || e.Count != 2 {
			t.Errorf("%+v", e)
		}
	})
}

func TestOutages(t *testing.T) {
	for name, fault := range map[string]*fake.Fault{
		"away":             nil,
		"errors":           {Code: http.StatusInternalServerError},
		"busy":             {Code: http.StatusTooManyRequests, RetryAfter: 1},
		"answers are lost": {Drop: true, After: true},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, Config{QPS: 50, Burst: 100}, func(b *bench) {
				if fault == nil {
					b.server.Stop()
				} else {
					b.server.Fail(func(*http.Request) *fake.Fault { return fault })
				}
				for i := range 20 {
					b.Pod(pod(fmt.Sprint("p", i)), "", v1.EventTypeNormal, fmt.Sprint("R", i), "m")
				}
				advance(10 * time.Second)
				b.Pod(pod("p0"), "", v1.EventTypeNormal, "R0", "m")
				if n := len(b.server.Requests()); n > 40 {
					t.Errorf("%d requests in 10 s", n)
				}
				b.server.Fail(nil)
				b.server.Start()
				advance(10 * time.Second)
				for i := range 20 {
					e := b.written(fmt.Sprint("R", i))
					if want := int32(1); e == nil || i > 0 && e.Count != want || i == 0 && e.Count != 2 {
						t.Errorf("event %d: %+v", i, e)
					}
				}
			})
		})
	}
}

// A long outage takes limited memory, and the latest events are written.
func TestLongOutage(t *testing.T) {
	run(t, Config{QPS: 50, Burst: 100}, func(b *bench) {
		b.server.Stop()
		for i := range maxWaiting + 500 {
			b.Pod(pod(fmt.Sprint("p", i)), "", v1.EventTypeNormal, fmt.Sprint("R", i), "m")
		}
		advance(time.Hour)
		if n, named := b.wait(); n > maxWaiting || n != named {
			t.Errorf("%d wait, %d by name", n, named)
		}
		b.server.Start()
		advance(time.Minute)
		if b.written(fmt.Sprint("R", maxWaiting+499)) == nil || b.written("R600") == nil {
			t.Error("the last events are lost")
		}
		if n, _ := b.wait(); n != 0 {
			t.Errorf("%d still wait", n)
		}
	})
}

// An event that the API server refuses, or always fails at, does not delay the others.
func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct{ code, most int }{
		"forbidden":         {http.StatusForbidden, 1},
		"no such namespace": {http.StatusNotFound, 1},
		"invalid":           {http.StatusUnprocessableEntity, 1},
		"fails":             {http.StatusInternalServerError, maxRefusals},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, Config{}, func(b *bench) {
				var tried atomic.Int32
				b.server.Fail(func(r *http.Request) *fake.Fault {
					if strings.Contains(r.URL.Path, "/namespaces/bad/") {
						tried.Add(1)
						return &fake.Fault{Code: c.code}
					}
					return nil
				})
				bad := pod("bad")
				bad.Namespace = "bad"
				b.Pod(bad, "", v1.EventTypeNormal, "Bad", "m")
				b.Pod(pod("good"), "", v1.EventTypeNormal, "Good", "m")
				advance(2 * time.Minute)
				if b.written("Good") == nil || int(tried.Load()) != c.most {
					t.Errorf("written: %v, tried %d times", b.written("Good"), tried.Load())
				}
			})
		})
	}
}

func TestRate(t *testing.T) {
	run(t, Config{QPS: 5, Burst: 10}, func(b *bench) {
		advance(time.Minute)
		b.server.Requests()
		for i := range 100 {
			b.Pod(pod(fmt.Sprint("p", i)), "", v1.EventTypeNormal, fmt.Sprint("R", i), "m")
		}
		advance(10 * time.Second)
		if n := len(b.server.Requests()); n < 55 || n > 61 {
			t.Errorf("%d requests in 10 s, of a burst of 10 and 5 per second", n)
		}
	})
}

// An agent that ends writes as many events as it can.
func TestFlush(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		b.server.Stop()
		b.Pod(pod("web"), "", v1.EventTypeNormal, "Killing", "m")
		advance(time.Second)
		b.server.Start()
		b.stop()
		if b.written("Killing") == nil {
			t.Error("the last words are lost")
		}
	})
	run(t, Config{}, func(b *bench) {
		b.server.Fail(func(*http.Request) *fake.Fault { return &fake.Fault{Delay: time.Hour} })
		b.Pod(pod("web"), "", v1.EventTypeNormal, "Killing", "m")
		advance(time.Second)
		began := time.Now()
		b.stop()
		if d := time.Since(began); d > flushTimeout {
			t.Errorf("an API server that hangs kept the agent for %s", d)
		}
	})
}

func TestYields(t *testing.T) {
	run(t, Config{}, func(b *bench) {
		calm := make(chan struct{})
		var busy atomic.Pointer[chan struct{}]
		busy.Store(&calm)
		b.writer.deps.Busy = func() <-chan struct{} {
			if c := busy.Load(); c != nil {
				return *c
			}
			return nil
		}
		b.Pod(pod("a"), "", v1.EventTypeNormal, "First", "while pods wait to start")
		b.Pod(pod("a"), "", v1.EventTypeNormal, "Second", "while pods wait to start")
		advance(yieldMost - time.Second)
		if b.written("First") != nil {
			t.Error("an event was written before what is more important")
		}
		advance(time.Second)
		if b.written("First") == nil || b.written("Second") == nil {
			t.Error("events waited for longer than they may")
		}
		b.Pod(pod("a"), "", v1.EventTypeNormal, "Third", "before a warning")
		advance(time.Second)
		b.Pod(pod("a"), "", v1.EventTypeWarning, "Fourth", "a warning")
		advance(0)
		if b.written("Third") == nil || b.written("Fourth") == nil {
			t.Error("a warning, or what came before it, waited")
		}
		b.Pod(pod("a"), "", v1.EventTypeNormal, "Fifth", "until nothing is more important")
		advance(time.Second)
		if b.written("Fifth") != nil {
			t.Error("a warning that was written lets others pass")
		}
		busy.Store(nil)
		close(calm)
		advance(0)
		if b.written("Fifth") == nil {
			t.Error("an event waits for nothing")
		}
		again := make(chan struct{})
		busy.Store(&again)
		b.Pod(pod("a"), "", v1.EventTypeNormal, "Sixth", "when the agent ends")
		advance(time.Second)
		b.stop()
		if b.written("Sixth") == nil {
			t.Error("an event was lost that waited when the agent ended")
		}
	})
}
