package source

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/source/objects"
	"github.com/berthd/berth/internal/pods"
)

// fakeSource gives one snapshot and then waits, or fails.
type fakeSource struct {
	name string
	pods []*v1.Pod
	err  error
}

func (s fakeSource) Name() string { return s.name }

func (s fakeSource) Run(ctx context.Context, out func(Snapshot)) error {
	out(Snapshot{Source: s.name, Ready: true, Pods: s.pods})
	if s.err != nil {
		return s.err
	}
	<-ctx.Done()
	return nil
}

func named(names ...string) []Source {
	var out []Source
	for _, n := range names {
		out = append(out, fakeSource{name: n})
	}
	return out
}

func TestMuxRun(t *testing.T) {
	broken := errors.New("broken")
	updates := make(chan Update, 10)
	m := NewMux([]Source{
		fakeSource{name: pods.SourceFile, pods: []*v1.Pod{muxPod("a", "u1", "i")}, err: broken},
		fakeSource{name: pods.SourceHTTP, pods: []*v1.Pod{muxPod("b", "u2", "i")}},
	}, MuxDeps{Out: func(u Update) { updates <- u }})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	<-updates
	if u := <-updates; !u.AllReady || len(u.Pods) != 2 {
		t.Errorf("%+v", u)
	}
	cancel()
	if err := <-done; !errors.Is(err, broken) {
		t.Errorf("Run returned %v", err)
	}
}

// Nothing configured is nothing desired: whoever waits for all sources must not wait for ever.
func TestMuxWithoutSources(t *testing.T) {
	var got []Update
	m := NewMux(nil, MuxDeps{Out: func(u Update) { got = append(got, u) }})
	if err := m.Run(t.Context()); err != nil {
		t.Error(err)
	}
	if len(got) != 1 || !got[0].AllReady || len(got[0].Pods) != 0 {
		t.Errorf("%+v", got)
	}
}

func muxPod(name, uid, image string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:   "default",
			Name:        name,
			UID:         types.UID(uid),
			Annotations: map[string]string{"own": "1"},
		},
		Spec: v1.PodSpec{Containers: []v1.Container{{Image: image}}},
	}
}

func resultOf(p *v1.Pod) Result {
	return Result{
		File:      p.Name + ".yaml",
		Kind:      "Pod",
		Namespace: p.Namespace,
		Name:      p.Name,
		UID:       p.UID,
		Accepted:  true,
	}
}

func TestMuxReadiness(t *testing.T) {
	m := NewMux(named(pods.SourceFile, pods.SourceHTTP), MuxDeps{})
	if u := m.Current(); u.AllReady || u.Ready[pods.SourceFile] || len(u.Pods) != 0 {
		t.Errorf("at first: %+v", u)
	}
	m.Set(Snapshot{Source: pods.SourceFile, Ready: true})
	if u := m.Current(); u.AllReady || !u.Ready[pods.SourceFile] || u.Ready[pods.SourceHTTP] {
		t.Errorf("one is ready: %+v", u)
	}
	m.Set(Snapshot{Source: pods.SourceHTTP, Ready: true})
	m.Set(Snapshot{Source: pods.SourceFile}) // a source does not become unready
	if u := m.Current(); !u.AllReady {
		t.Errorf("both are ready: %+v", u)
	}
	if !NewMux(nil, MuxDeps{}).Current().AllReady {
		t.Error("no source is not ready")
	}
}

func TestMuxAnnotationsAndPointers(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)
	var updates []Update
	m := NewMux(named(pods.SourceFile),
		MuxDeps{Now: func() time.Time { return now }, Out: func(u Update) { updates = append(updates, u) }})
	source := muxPod("a", "u1", "i:1")
	m.Set(Snapshot{Source: pods.SourceFile, Ready: true, Pods: []*v1.Pod{source}})
	first := m.Current().Pods["u1"]
	if first.Annotations[pods.AnnotationSource] != "file" ||
		first.Annotations[pods.AnnotationSeen] != "2026-01-02T03:04:05.000000600Z" || first.Annotations["own"] != "1" {
		t.Errorf("%v", first.Annotations)
	}
	if len(source.Annotations) != 1 {
		t.Errorf("the source's pod was changed: %v", source.Annotations)
	}
	now = now.Add(time.Hour)
	m.Set(Snapshot{Source: pods.SourceFile, Ready: true, Pods: []*v1.Pod{source, muxPod("b", "u2", "i:1")}})
	if m.Current().Pods["u1"] != first {
		t.Error("unchanged, but another pointer")
	}
	m.Set(Snapshot{Source: pods.SourceFile, Ready: true, Pods: []*v1.Pod{muxPod("a", "u1", "i:1")}})
	if m.Current().Pods["u1"] != first {
		t.Error("equal, but another pointer")
	}
	// An edit under the same UID is the same pod, seen at the same time.
	m.Set(Snapshot{Source: pods.SourceFile, Ready: true, Pods: []*v1.Pod{muxPod("a", "u1", "i:2")}})
	edited := m.Current().Pods["u1"]
	if edited == first || edited.Spec.Containers[0].Image != "i:2" ||
		edited.Annotations[pods.AnnotationSeen] != first.Annotations[pods.AnnotationSeen] {
		t.Errorf("%v", edited)
	}
	if len(updates) != 4 || len(updates[1].Pods) != 2 || len(updates[3].Pods) != 1 {
		t.Errorf("%d updates", len(updates))
	}
}

func TestMuxConflicts(t *testing.T) {
	a, b := muxPod("same", "u1", "i:file"), muxPod("same", "u2", "i:http")
	sameUID, mirror := muxPod("other", "u1", "i:http"), muxPod("same", "u3", "i:api")
	m := NewMux(named(pods.SourceFile, pods.SourceHTTP, pods.SourceAPI), MuxDeps{})
	m.Set(Snapshot{
		Source:  pods.SourceHTTP,
		Pods:    []*v1.Pod{b, sameUID},
		Results: []Result{resultOf(b), resultOf(sameUID)},
	})
	if u := m.Current(); u.Pods["u2"] == nil || u.Pods["u1"] == nil || !u.Results[0].Accepted {
		t.Errorf("alone: %+v", u.Results)
	}
	m.Set(Snapshot{Source: pods.SourceFile, Pods: []*v1.Pod{a}, Results: []Result{resultOf(a)}})
	m.Set(Snapshot{Source: pods.SourceAPI, Pods: []*v1.Pod{mirror}})
	u := m.Current()
	var got []string
	for _, v := range u.Results {
		got = append(got, fmt.Sprint(v.Accepted, " ", v.Message))
	}
	want := []string{
		"true ", "false duplicate: Pod default/same is already in source file",
		"false duplicate: Pod default/other is already in source file",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
	if u.Pods["u1"].Spec.Containers[0].Image != "i:file" || u.Pods["u2"] != nil || u.Pods["u3"] == nil {
		t.Errorf("%v", u.Pods)
	}
	m.Set(Snapshot{Source: pods.SourceFile})
	if u := m.Current(); u.Pods["u2"] == nil || u.Pods["u1"].Annotations[pods.AnnotationSource] != pods.SourceHTTP {
		t.Error("the second source did not get its pods back")
	}
}

// Objects are there before the pods that use them.
func TestMuxObjectsFirst(t *testing.T) {
	store := objects.New()
	var order []string
	store.OnChange(func(_, _, name string) { order = append(order, "object "+name) })
	m := NewMux(named(pods.SourceFile),
		MuxDeps{Objects: store, Out: func(u Update) { order = append(order, fmt.Sprintf("%d pods", len(u.Pods))) }})
	cm := &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "m"}}
	m.Set(Snapshot{Source: pods.SourceFile, Pods: []*v1.Pod{muxPod("a", "u1", "i")}, Objects: []objects.Object{cm}})
	m.Set(Snapshot{Source: "unknown", Pods: []*v1.Pod{muxPod("b", "u2", "i")}})
	if got := strings.Join(order, ", "); got != "object m, 1 pods" {
		t.Error(got)
	}
}
