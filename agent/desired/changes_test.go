package desired

import (
	"context"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/agent/source/objects"
	"github.com/berthd/berth/cri/fake"
	"github.com/berthd/berth/internal/pods"
)

// TestManifestChanges checks which fields an event about a changed manifest names.
func TestManifestChanges(t *testing.T) {
	var events []string
	r := &Reconciler{deps: Deps{PodEvent: func(pod *v1.Pod, _, _, reason, message string) {
		events = append(events, string(pod.UID)+" "+reason+" "+message)
	}}}
	pod := func(uid types.UID, change func(*v1.Pod)) *v1.Pod {
		p := podOf("a")
		p.UID, p.Spec.Containers = uid, []v1.Container{{Name: "c", Image: "secret:1"}}
		change(p)
		return p
	}
	before := pod("old", func(*v1.Pod) {})
	r.reportChange(before, pod("new", func(p *v1.Pod) {
		p.Spec.Containers[0].Image, p.Labels = "secret:2", map[string]string{"a": "b"}
	}))
	r.reportChange(before, pod("same", func(*v1.Pod) {}))
	r.reportChange(before, pod("all", func(p *v1.Pod) {
		p.Labels = map[string]string{}
		for _, key := range "abcdefghij" {
			p.Labels[string(key)] = ""
		}
	}))
	if want := []string{
		"new ManifestChanged Its manifest changed: metadata.labels.a, spec.containers[0].image",
		"same ManifestChanged Its manifest changed: nothing but its UID, which is a hash over the manifest and the path " +
			"of its file",
		"all ManifestChanged Its manifest changed: metadata.labels.a, metadata.labels.b, metadata.labels.c, " +
			"metadata.labels.d, metadata.labels.e, metadata.labels.f, metadata.labels.g, metadata.labels.h, and 2 more",
	}; !slices.Equal(events, want) {
		t.Errorf("%q", events)
	}

	known := map[types.UID]worker.Entry{
		"old":   {Pod: before},
		"next":  {Pod: pod("next", func(*v1.Pod) {}), Waiting: true},
		"other": {Pod: podOf("b")},
	}
	if got := predecessor(pod("new", func(*v1.Pod) {}), known); got != before {
		t.Errorf("the predecessor is %v", got)
	}
	delete(known, "old")
	if got := predecessor(pod("new", func(*v1.Pod) {}), known); got != nil {
		t.Errorf("a predecessor that never ran: %v", got)
	}
}

// TestObjectChanges checks what pods are told about the objects that they use: nothing when an
// object appears.
func TestObjectChanges(t *testing.T) {
	n := newNode(t, fake.New(fake.Config{}), handler{sync: func(context.Context, worker.Work) worker.Result {
		return worker.Result{}
	}})
	p := podOf("a")
	p.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{
		ConfigMap: &v1.ConfigMapVolumeSource{LocalObjectReference: v1.LocalObjectReference{Name: "conf"}},
	}}}
	p.Annotations = map[string]string{pods.AnnotationSource: pods.SourceFile}
	n.workers.Set(p)
	n.workers.Set(podOf("b"))
	var events []string
	store := objects.New()
	store.OnChange(LocalObjects{Store: store, Workers: n.workers, Event: func(pod *v1.Pod, _, _, reason, message string) {
		events = append(events, string(pod.UID)+" "+reason+" "+message)
	}}.Changed)
	for _, value := range []string{"1", "1", "2"} {
		store.Replace("file", []objects.Object{&v1.ConfigMap{
			TypeMeta: metav1.TypeMeta{Kind: "ConfigMap"}, ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "conf"},
			Data: map[string]string{"k": value},
		}})
	}
	store.Replace("file", nil)
	if want := []string{
		"a ObjectChanged ConfigMap conf changed", "a ObjectChanged ConfigMap conf is in no manifest any more",
	}; !slices.Equal(events, want) {
		t.Errorf("%q", events)
	}
}
