package podsource

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/cluster/kube"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/internal/pods"
)

// played is a follower that makes recorded calls of its handler.
type played func(h kube.Handler[*v1.Pod])

func (p played) Follow(_ context.Context, namespace, selector string, h kube.Handler[*v1.Pod]) {
	if namespace != "" || selector != "spec.nodeName=node" {
		panic("follows " + namespace + " " + selector)
	}
	p(h)
}

func apiPod(name, revision string, annotations ...string) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name:            name,
		Namespace:       "ns",
		UID:             types.UID("uid-" + name),
		ResourceVersion: revision,
		ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "x"}},
	}}
	for _, a := range annotations {
		p.Annotations = map[string]string{a: "x"}
	}
	return p
}

func TestSource(t *testing.T) {
	var said, seen []string
	var last source.Snapshot
	note := func(list *[]string, what string, pods ...*v1.Pod) {
		for _, p := range pods {
			what += " " + p.Name + p.ResourceVersion
		}
		*list = append(*list, what)
	}
	watcher := kube.Handler[*v1.Pod]{
		Replace: func(items []*v1.Pod) {
			slices.SortFunc(items, func(a, b *v1.Pod) int { return strings.Compare(a.Name, b.Name) })
			note(&seen, "replace", items...)
		},
		Set:    func(p *v1.Pod) { note(&seen, "set", p) },
		Remove: func(p *v1.Pod) { note(&seen, "remove", p) },
	}
	a := New("node",
		Deps{
			Logger: slog.New(slog.DiscardHandler),
			Seen:   []kube.Handler[*v1.Pod]{watcher},
			Pods: played(func(h kube.Handler[*v1.Pod]) {
				h.Replace([]*v1.Pod{apiPod("b", "1"), apiPod("m", "2", v1.MirrorPodAnnotationKey), apiPod("a", "3")})
				h.Set(apiPod("a", "4"))
				h.Set(apiPod("a", "4"))
				h.Remove(apiPod("b", "5"))
				h.Replace([]*v1.Pod{apiPod("a", "4")})
			}),
		})
	var pointers []*v1.Pod
	err := a.Run(t.Context(), func(s source.Snapshot) {
		note(&said, "", s.Pods...)
		last = s
		pointers = append(pointers, s.Pods[0])
	})
	if err != nil || !last.Ready || last.Source != pods.SourceAPI || a.Name() != pods.SourceAPI {
		t.Errorf("%v, %+v", err, last)
	}
	if got := strings.Join(said, ","); got != " a3 b1, a4 b1, a4 b1, a4, a4" {
		t.Errorf("wanted %q", got)
	}
	if got := strings.Join(seen, ","); got != "replace a3 b1 m2,set a4,set a4,remove b5,replace a4" {
		t.Errorf("seen %q", got)
	}
	if pointers[1] != pointers[4] || pointers[0] == pointers[1] || last.Pods[0].ManagedFields != nil {
		t.Error("an unchanged pod is another pointer, or has what nobody reads")
	}
}
