package events

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/berthd/berth/test/leaks"
)

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

func pod(name string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)}}
	p.Spec.InitContainers = []v1.Container{{Name: "i"}}
	p.Spec.Containers = []v1.Container{{Name: "a"}}
	p.Spec.EphemeralContainers = []v1.EphemeralContainer{
		{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: "e"}},
	}
	return p
}

// listed lists events as "object reason message xcount".
func listed(list []v1.Event) []string {
	var out []string
	for _, e := range list {
		out = append(out, fmt.Sprintf("%s %s %s x%d", e.InvolvedObject.Name, e.Reason, e.Message, e.Count))
	}
	return out
}

func expect(t *testing.T, list []v1.Event, want ...string) {
	t.Helper()
	if got := listed(list); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("events:\n got %q\nwant %q", got, want)
	}
}

func TestEventHasWhatToolsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New("node1")
		for _, c := range []string{"", "a", "i", "e"} {
			r.Pod(pod("p"), c, v1.EventTypeWarning, "Failed", "no")
		}
		list := r.List()
		for i, want := range []string{
			"", "spec.containers{a}", "spec.initContainers{i}", "spec.ephemeralContainers{e}",
		} {
			ref := list[i].InvolvedObject
			if ref.FieldPath != want || ref.Kind != "Pod" || ref.APIVersion != "v1" || ref.Namespace != "ns" ||
				ref.UID != "uid-p" {
				t.Errorf("event %d is about %+v", i, ref)
			}
		}
		e := list[0]
		if e.Source.Component != "kubelet" || e.Source.Host != "node1" || e.Namespace != "ns" || e.Name == "" ||
			e.Name == list[1].Name ||
			e.Kind != "Event" || e.FirstTimestamp.IsZero() || e.LastTimestamp != e.FirstTimestamp {
			t.Errorf("event %+v", e)
		}
		r.Node(v1.EventTypeNormal, "Starting", "x")
		if e := r.List()[4]; e.Namespace != "default" || e.InvolvedObject.Kind != "Node" ||
			e.InvolvedObject.UID != "node1" {
			t.Errorf("node event %+v", e)
		}
	})
}

// A repeat has the annotations of the first event, and nobody else can change them.
func TestAnnotations(t *testing.T) {
	r := New("node1")
	given := map[string]string{"starved_resource": "memory"}
	r.Annotated(pod("p"), given, v1.EventTypeWarning, "Evicted", "low")
	given["starved_resource"] = "other"
	r.Annotated(pod("p"), nil, v1.EventTypeWarning, "Evicted", "low")
	list := r.List()
	if len(list) != 1 || list[0].Count != 2 || list[0].Annotations["starved_resource"] != "memory" {
		t.Errorf("events %+v", list)
	}
}

func TestRepeatsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New("n")
		r.Pod(pod("p"), "a", v1.EventTypeWarning, "BackOff", "m")
		r.Pod(pod("q"), "a", v1.EventTypeWarning, "BackOff", "m")
		first := r.List()[0]
		for range 100 {
			time.Sleep(time.Second)
			r.Pod(pod("p"), "a", v1.EventTypeWarning, "BackOff", "m")
		}
		expect(t, r.List(), "q BackOff m x1", "p BackOff m x101")
		last := r.List()[1]
		if last.Name != first.Name || last.FirstTimestamp != first.FirstTimestamp ||
			last.LastTimestamp.Sub(first.LastTimestamp.Time) != 100*time.Second {
			t.Errorf("counted event %+v", last)
		}
		if first.Count != 1 {
			t.Error("a list that was handed out changed")
		}
		// An event with another container, type or reason is another event.
		r.Pod(pod("p"), "i", v1.EventTypeWarning, "BackOff", "m")
		r.Pod(pod("p"), "a", v1.EventTypeNormal, "BackOff", "m")
		r.Pod(pod("p"), "a", v1.EventTypeWarning, "Failed", "m")
		if n := len(r.List()); n != 5 {
			t.Errorf("%d events", n)
		}
	})
}

func TestSimilarEventsAreCombined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New("n")
		for i := range 30 {
			r.Pod(pod("p"), "", v1.EventTypeWarning, "Failed", fmt.Sprint("error ", i))
			time.Sleep(time.Second)
		}
		list := r.List()
		if len(list) != 10 {
			t.Fatalf("events %q", listed(list))
		}
		if got := listed(list[9:])[0]; got != "p Failed (combined from similar events): error 29 x21" {
			t.Errorf("combined event %q", got)
		}
		// An event with the same message is counted at the event that is there.
		r.Pod(pod("p"), "", v1.EventTypeWarning, "Failed", "error 3")
		if got := listed(r.List()[9:])[0]; got != "p Failed error 3 x2" {
			t.Errorf("repeated event %q", got)
		}
		// After a while a new message is a new event again.
		time.Sleep(combineWithin + time.Second)
		r.Pod(pod("p"), "", v1.EventTypeWarning, "Failed", "error 77")
		if got := listed(r.List()[10:])[0]; got != "p Failed error 77 x1" {
			t.Errorf("event %q", got)
		}
	})
}

func TestOneObjectCannotFillTheRing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New("n")
		for i := range 60 {
			r.Pod(pod("bad"), "", v1.EventTypeWarning, fmt.Sprint("Reason", i), "m")
		}
		if n := len(r.List()); n != spamBurst {
			t.Fatalf("%d events, want %d", n, spamBurst)
		}
		// warnings do not use up the tokens of normal events
		r.Pod(pod("bad"), "", v1.EventTypeNormal, "Killing", "m")
		r.Pod(pod("good"), "", v1.EventTypeWarning, "Failed", "m")
		r.Pod(pod("bad"), "", v1.EventTypeWarning, "Reason0", "m") // repeats are always counted
		expect(t, r.List()[spamBurst-1:], "bad Killing m x1", "good Failed m x1", "bad Reason0 m x2")
		time.Sleep(spamRefill + time.Second)
		r.Pod(pod("bad"), "", v1.EventTypeWarning, "Later", "m")
		r.Pod(pod("bad"), "", v1.EventTypeWarning, "TooMuch", "m")
		expect(t, r.List()[spamBurst+2:], "bad Later m x1")
	})
}

// A probe that fails each second makes no more requests to the API server than client-go's limits
// allow, and does not hide what else happens to its pod.
func TestRepeatsAreHeardWithinLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := New("n")
		var heard []v1.Event
		r.Listen(func(e v1.Event) { heard = append(heard, e) })
		for range 3600 {
			r.Pod(pod("p"), "a", v1.EventTypeWarning, "Unhealthy", "connection refused")
			time.Sleep(time.Second)
		}
		if n := len(heard); n < 20 || n > 37 {
			t.Errorf("%d of 3600 repeats were heard of, want what client-go allows", n)
		}
		if last := heard[len(heard)-1]; last.Count < 3000 {
			t.Errorf("the last one heard of has the count %d", last.Count)
		}
		expect(t, r.List(), "p Unhealthy connection refused x3600")
		heard = nil
		for i := range spamBurst {
			r.Pod(pod("p"), "a", v1.EventTypeWarning, fmt.Sprint("New", i), "m")
		}
		if len(heard) != spamBurst || len(r.List()) != spamBurst+1 {
			t.Errorf("%d of %d new events were heard of, and %d kept", len(heard), spamBurst, len(r.List())-1)
		}
	})
}

func TestLimiterForgetsQuietObjects(t *testing.T) {
	now := time.Now()
	l := limiter{}
	for i := range maxBuckets {
		l.allow(object{name: fmt.Sprint(i)}, now)
	}
	if l.allow(object{name: "one more"}, now); len(l) != 1 {
		t.Errorf("%d buckets are kept", len(l))
	}
	for i := range maxBuckets - 2 {
		l.allow(object{name: fmt.Sprint(i)}, now)
	}
	for range 5 {
		l.allow(object{name: "busy"}, now)
	}
	l.allow(object{name: "new"}, now.Add(spamRefill))
	if len(l) != 2 {
		t.Errorf("%d buckets are kept, want the busy one and the new one", len(l))
	}
	if b := l[object{name: "busy"}]; b.level(now.Add(-time.Hour)) > spamBurst-5 {
		t.Error("a clock put back refills")
	}
}

func TestRingIsBounded(t *testing.T) {
	r := New("n")
	for i := range ringSize + 50 {
		r.Pod(pod(fmt.Sprint(i)), "", v1.EventTypeNormal, "Started", "m")
	}
	list := r.List()
	if len(list) != ringSize || list[0].InvolvedObject.Name != "50" {
		t.Errorf("%d events, the oldest about %s", len(list), list[0].InvolvedObject.Name)
	}
}

func TestMessagesAreBounded(t *testing.T) {
	r := New("n")
	for range 2 {
		r.Pod(pod("p"), "", v1.EventTypeNormal, "Failed", "x"+strings.Repeat("ä", 4000))
	}
	list := r.List()
	if len(list) != 1 || list[0].Count != 2 || len(list[0].Message) != maxMessage-1 ||
		!strings.HasSuffix(list[0].Message, "ä") {
		t.Errorf("%d events, %d bytes", len(list), len(list[0].Message))
	}
}

func TestSubscribe(t *testing.T) {
	r := New("n")
	r.Pod(pod("before"), "", v1.EventTypeNormal, "Started", "m")
	kept, following, cancel := r.Subscribe()
	_, other, cancelOther := r.Subscribe()
	expect(t, kept, "before Started m x1")
	r.Pod(pod("after"), "", v1.EventTypeNormal, "Started", "m")
	r.Pod(pod("before"), "", v1.EventTypeNormal, "Started", "m")
	expect(t, []v1.Event{<-following, <-following}, "after Started m x1", "before Started m x2")
	cancel()
	cancel()
	if _, open := <-following; open {
		t.Error("the channel is open after the end of the subscription")
	}
	r.Pod(pod("later"), "", v1.EventTypeNormal, "Started", "m")
	if n := len(other); n != 3 {
		t.Errorf("the other subscriber got %d events", n)
	}
	cancelOther()
}

func TestSlowSubscriberDoesNotBlock(t *testing.T) {
	r := New("n")
	_, following, cancel := r.Subscribe()
	defer cancel()
	for i := range 500 {
		r.Pod(pod(fmt.Sprint(i)), "", v1.EventTypeNormal, "Started", "m")
	}
	if n := len(following); n != cap(following) {
		t.Errorf("%d events wait", n)
	}
	if n := len(r.List()); n != 500 {
		t.Errorf("%d events are kept", n)
	}
}

// TestNothingIsLostBetweenKeptAndFollowing begins subscriptions while events are recorded.
func TestNothingIsLostBetweenKeptAndFollowing(t *testing.T) {
	r := New("n")
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range 40 {
			r.Pod(pod(fmt.Sprint(i)), "", v1.EventTypeNormal, "Started", "m")
		}
	})
	for range 4 {
		wg.Go(func() {
			kept, following, cancel := r.Subscribe()
			defer cancel()
			for i := len(kept); i < 40; i++ {
				if e := <-following; e.InvolvedObject.Name != fmt.Sprint(i) {
					t.Errorf("event %s came as number %d", e.InvolvedObject.Name, i)
				}
			}
		})
	}
	wg.Wait()
}

// An event's name is valid for the API server, however long the object's name is.
func TestNamesAreValid(t *testing.T) {
	r := New("node")
	for _, name := range []string{
		"web", strings.Repeat("a", 253), strings.Repeat("a", 225) + "." + strings.Repeat("b", 27),
		strings.Repeat("a-", 126) + "a",
	} {
		r.Pod(pod(name), "", v1.EventTypeNormal, "Started", "m")
	}
	seen := map[string]bool{}
	for _, e := range r.List() {
		if problems := validation.IsDNS1123Subdomain(e.Name); len(problems) > 0 || seen[e.Name] {
			t.Errorf("%q: %q", e.Name, problems)
		}
		seen[e.Name] = true
	}
}

// A repeat stays a repeat if the pod changes meanwhile.
func TestRepeatsOfAPodThatChanges(t *testing.T) {
	r := New("node")
	for i := range 3 {
		p := pod("web")
		p.ResourceVersion = fmt.Sprint(i)
		r.Pod(p, "", v1.EventTypeNormal, "Pulled", "m")
	}
	if list := r.List(); len(list) != 1 || list[0].Count != 3 || list[0].InvolvedObject.ResourceVersion != "0" {
		t.Errorf("%+v", list)
	}
}
