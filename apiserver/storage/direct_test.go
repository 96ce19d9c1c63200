package storage

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/storagebackend"
	"k8s.io/client-go/kubernetes/scheme"
)

// TestBookmarksWithoutACache: a watch of a kind without a cache, of which nothing changes, hears how
// far the store is.
func TestBookmarksWithoutACache(t *testing.T) {
	s := startStore(t)
	direct := New(s.Client, time.Hour)
	defer direct.Close()
	config := &storagebackend.ConfigForResource{GroupResource: corev1.Resource("serviceaccounts")}
	config.Prefix, config.Codec = "/registry", scheme.Codecs.LegacyCodec(corev1.SchemeGroupVersion)
	kind, end, err := direct.seldom(config, "/serviceaccounts", nil,
		func() runtime.Object { return &corev1.ServiceAccount{} },
		func() runtime.Object { return &corev1.ServiceAccountList{} }, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	idle, err := kind.Watch(t.Context(), "/serviceaccounts", storage.ListOptions{
		Recursive: true,
		Predicate: storage.SelectionPredicate{
			Label: labels.Everything(), Field: fields.Everything(), AllowWatchBookmarks: true,
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Stop()
	for asked := time.NewTicker(10 * time.Millisecond); ; {
		select {
		case event := <-idle.ResultChan():
			account, ok := event.Object.(*corev1.ServiceAccount)
			if event.Type != watch.Bookmark || !ok || account.ResourceVersion == "" {
				t.Errorf("an idle watch hears %+v", event)
			}
			return
		case <-asked.C:
			// The store tells how far it is if something was written since the watch began.
			if _, err := direct.shared.Put(t.Context(), "/registry/other", "something changes elsewhere"); err != nil {
				t.Fatal(err)
			}
			if err := kind.RequestWatchProgress(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// lastOptions is storage that knows how its last watch was asked for.
type lastOptions struct {
	storage.Interface
	options storage.ListOptions
}

func (l *lastOptions) Watch(_ context.Context, _ string, options storage.ListOptions) (watch.Interface, error) {
	l.options = options
	return watch.NewFake(), nil
}

// TestBookmarksAreAskedFor: only who understands bookmarks gets them.
func TestBookmarksAreAskedFor(t *testing.T) {
	for _, understands := range []bool{true, false} {
		var inner lastOptions
		options := storage.ListOptions{Predicate: storage.SelectionPredicate{AllowWatchBookmarks: understands}}
		if _, err := (bookmarks{&inner}).Watch(t.Context(), "/", options); err != nil {
			t.Fatal(err)
		}
		if inner.options.ProgressNotify != understands {
			t.Errorf("a client that understands bookmarks: %v, gets them: %v", understands, inner.options.ProgressNotify)
		}
	}
}
