package watched

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/berthd/berth/agent/source/objects"
)

// client returns a client of a group of the server at a URL.
func client(t *testing.T, url, path string, gv schema.GroupVersion) rest.Interface {
	t.Helper()
	s := runtime.NewScheme()
	metav1.AddToGroupVersion(s, v1.SchemeGroupVersion)
	for _, add := range []func(*runtime.Scheme) error{v1.AddToScheme, nodev1.AddToScheme} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	c, err := rest.RESTClientFor(&rest.Config{Host: url, APIPath: path, QPS: -1, ContentConfig: rest.ContentConfig{
		GroupVersion: &gv, NegotiatedSerializer: serializer.NewCodecFactory(s).WithoutConversion(),
	}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// answers serves one answer for each path with query, and records the other requests.
func answers(t *testing.T, byPath map[string]any) restAPI {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query()
		if timeout := query.Get("timeoutSeconds"); timeout != "" {
			var seconds float64
			_, _ = fmt.Sscan(timeout, &seconds)
			if d := time.Duration(seconds) * time.Second; d < watchTimeout || d > 2*watchTimeout {
				t.Errorf("a watch of %s", d)
			}
			query.Del("timeoutSeconds")
		}
		path := r.URL.Path
		if len(query) > 0 {
			path += "?" + query.Encode()
		}
		answer, known := byPath[path]
		if !known {
			t.Errorf("asked for %s", path)
		}
		w.Header().Set("Content-Type", "application/json")
		if status, ok := answer.(*apierrors.StatusError); ok {
			w.WriteHeader(int(status.ErrStatus.Code))
			answer = status.ErrStatus
		}
		_ = json.NewEncoder(w).Encode(answer)
	}))
	t.Cleanup(server.Close)
	return restAPI{
		core: client(t, server.URL, "/api", v1.SchemeGroupVersion),
		node: client(t, server.URL, "/apis", nodev1.SchemeGroupVersion),
	}
}

func TestRequestsAreNoWiderThanANodeMaySee(t *testing.T) {
	meta := metav1.ListMeta{ResourceVersion: "7"}
	status := apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "t", nil)
	status.ErrStatus.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	api := answers(t, map[string]any{
		"/api/v1/namespaces/ns/configmaps?fieldSelector=metadata.name%3Da": v1.ConfigMapList{
			TypeMeta: metav1.TypeMeta{Kind: "ConfigMapList", APIVersion: "v1"},
			ListMeta: meta,
			Items:    []v1.ConfigMap{*configMap("a", "1")},
		},
		"/api/v1/namespaces/ns/secrets?fieldSelector=metadata.name%3Ds": v1.SecretList{
			TypeMeta: metav1.TypeMeta{Kind: "SecretList", APIVersion: "v1"}, ListMeta: meta,
		},
		"/api/v1/namespaces/ns/secrets?fieldSelector=metadata.name%3Dt": status,
		"/api/v1/services": v1.ServiceList{
			TypeMeta: metav1.TypeMeta{Kind: "ServiceList", APIVersion: "v1"}, ListMeta: meta,
		},
		"/apis/node.k8s.io/v1/runtimeclasses": nodev1.RuntimeClassList{
			TypeMeta: metav1.TypeMeta{Kind: "RuntimeClassList", APIVersion: "node.k8s.io/v1"}, ListMeta: meta,
			Items: []nodev1.RuntimeClass{{ObjectMeta: metav1.ObjectMeta{Name: "fast"}}},
		},
	})
	for _, c := range []struct {
		key       objects.Key
		n         int
		forbidden bool
	}{
		{objects.Key{Kind: objects.KindConfigMap, Namespace: "ns", Name: "a"}, 1, false},
		{objects.Key{Kind: objects.KindSecret, Namespace: "ns", Name: "s"}, 0, false},
		{objects.Key{Kind: objects.KindSecret, Namespace: "ns", Name: "t"}, 0, true},
		{allServices, 0, false},
		{allClasses, 1, false},
	} {
		list, version, err := api.list(t.Context(), c.key)
		if len(list) != c.n || apierrors.IsForbidden(err) != c.forbidden ||
			!c.forbidden && (err != nil || version != "7") {
			t.Errorf("%s: %d objects, version %q, %v", describe(c.key), len(list), version, err)
		}
	}
}

func TestWatchAndGet(t *testing.T) {
	event := func(o runtime.Object) metav1.WatchEvent {
		return metav1.WatchEvent{Type: "ADDED", Object: runtime.RawExtension{Object: o}}
	}
	cm := configMap("a", "1")
	cm.TypeMeta = metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"}
	api := answers(t, map[string]any{
		"/api/v1/namespaces/ns/" +
			"configmaps?allowWatchBookmarks=true&fieldSelector=metadata.name%3Da&resourceVersion=7&watch=true": event(
			cm),
		"/api/v1/namespaces/ns/persistentvolumeclaims/c": v1.PersistentVolumeClaim{TypeMeta: metav1.TypeMeta{
			Kind: "PersistentVolumeClaim", APIVersion: "v1",
		}},
		"/api/v1/namespaces/ns/secrets/c": v1.Secret{TypeMeta: metav1.TypeMeta{
			Kind: "Secret", APIVersion: "v1",
		}},
		"/api/v1/persistentvolumes/v": v1.PersistentVolume{TypeMeta: metav1.TypeMeta{
			Kind: "PersistentVolume", APIVersion: "v1",
		}},
	})
	w, err := api.watch(t.Context(), objects.KeyOf(cm), "7")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	e := <-w.ResultChan()
	if got, ok := e.Object.(*v1.ConfigMap); !ok || got.Data["k"] != "1" {
		t.Errorf("watched %v", e)
	}
	for _, key := range []objects.Key{
		{Kind: objects.KindClaim, Namespace: "ns", Name: "c"},
		{Kind: objects.KindPersistentVolume, Name: "v"},
		{Kind: objects.KindSecret, Namespace: "ns", Name: "c"},
	} {
		if _, err := api.get(t.Context(), key); err != nil {
			t.Error(err)
		}
	}
	if _, err := api.get(t.Context(), objects.Key{
		Kind:      objects.KindConfigMap,
		Namespace: "ns",
		Name:      "c",
	}); err == nil {
		t.Error("got a ConfigMap, which is for watches")
	}
}

// The client library logs bodies at high verbosity. It must not log those of Secrets.
func TestBodiesStayOutOfLogs(t *testing.T) {
	var log bytes.Buffer
	klog.SetSlogLogger(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.Level(-100)})))
	defer klog.ClearLogger()
	secret := v1.Secret{
		TypeMeta:   metav1.TypeMeta{Kind: "Secret", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "s"},
		Data:       map[string][]byte{"k": []byte("hunter2")},
	}
	const path = "/api/v1/namespaces/ns/secrets?"
	api := answers(t, map[string]any{
		path + "fieldSelector=metadata.name%3Ds": v1.SecretList{
			TypeMeta: metav1.TypeMeta{Kind: "SecretList", APIVersion: "v1"}, Items: []v1.Secret{secret},
		},
		path +
			"allowWatchBookmarks=true&fieldSelector=metadata.name%3Ds&resourceVersion=7&watch=true": metav1.WatchEvent{
			Type: "ADDED", Object: runtime.RawExtension{Object: &secret},
		},
	})
	key := objects.KeyOf(&secret)
	if list, _, err := api.list(t.Context(), key); err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	w, err := api.watch(t.Context(), key, "7")
	if err != nil {
		t.Fatal(err)
	}
	<-w.ResultChan()
	w.Stop()
	for range w.ResultChan() { // until nobody logs any more
	}
	if strings.Contains(log.String(), "aHVudGVyMg") {
		t.Errorf("quoted: %s", log.String())
	}
}

// This tests a whole watcher on a server that holds its watches open, and ends them later.
func TestOnAServer(t *testing.T) {
	changed := make(chan *v1.ConfigMap)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Query().Get("watch") == "":
			kind := "ConfigMapList"
			if r.URL.Path == "/api/v1/namespaces/default/services" {
				kind = "ServiceList"
			}
			_, _ = fmt.Fprintf(w, `{"kind": %q, "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": []}`,
				kind)
			return
		case r.URL.Path == "/api/v1/namespaces/ns/configmaps":
			w.(http.Flusher).Flush()
			select {
			case cm := <-changed:
				_ = json.NewEncoder(w).Encode(metav1.WatchEvent{
					Type: "ADDED", Object: runtime.RawExtension{Object: cm},
				})
			case <-r.Context().Done():
			}
		}
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	}))
	defer server.Close()
	bell := make(chan struct{}, 10)
	w := New(Deps{
		Core: client(t, server.URL, "/api", v1.SchemeGroupVersion),
		Node: client(t, server.URL, "/apis", nodev1.SchemeGroupVersion),
		Wake: func(uid types.UID) { bell <- struct{}{} },
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- w.Run(ctx) }()
	pod := podWith("1", "a")
	w.Use(pod)
	for {
		<-bell
		if _, err := w.ConfigMap(pod, "a"); apierrors.IsNotFound(err) {
			break
		}
	}
	cm := configMap("a", "1")
	cm.TypeMeta = metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"}
	changed <- cm
	for {
		<-bell
		if got, err := w.ConfigMap(pod, "a"); err == nil && got.Data["k"] == "1" {
			break
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
