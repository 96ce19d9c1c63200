package control

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// kindsServer answers which kinds it has, with a mark, and counts the answers that have a body.
type kindsServer struct {
	mark    atomic.Pointer[string]
	kind    atomic.Pointer[string]
	answers atomic.Int32
	broken  atomic.Bool
	// refusals counts the requests while it was broken.
	refusals atomic.Int32
}

func (s *kindsServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.broken.Load() {
		s.refusals.Add(1)
		http.Error(w, "broken", http.StatusInternalServerError)
		return
	}
	w.Header().Set("ETag", *s.mark.Load())
	if r.Header.Get("If-None-Match") == *s.mark.Load() {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	s.answers.Add(1)
	w.Header().Set("Content-Type", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList")
	var list apidiscovery.APIGroupDiscoveryList
	list.Kind, list.APIVersion = "APIGroupDiscoveryList", "apidiscovery.k8s.io/v2"
	if r.URL.Path == "/apis" {
		list.Items = []apidiscovery.APIGroupDiscovery{{
			ObjectMeta: metav1.ObjectMeta{Name: "example.com"},
			Versions: []apidiscovery.APIVersionDiscovery{{Version: "v1", Resources: []apidiscovery.APIResourceDiscovery{{
				Resource: *s.kind.Load(), Scope: apidiscovery.ScopeNamespace, Verbs: []string{"list"},
				ResponseKind: &metav1.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Kind"},
			}}}},
		}}
	}
	_ = json.NewEncoder(w).Encode(list)
}

// TestKindsAreReadOnce asks for kinds again and again: the server answers anew only when they have
// changed, and what it could not answer is not kept.
func TestKindsAreReadOnce(t *testing.T) {
	server := new(kindsServer)
	set := func(mark, kind string) {
		server.mark.Store(&mark)
		server.kind.Store(&kind)
	}
	set(`"1"`, "apples")
	h := httptest.NewServer(server)
	defer h.Close()
	k, err := newKinds(&rest.Config{Host: h.URL})
	if err != nil {
		t.Fatal(err)
	}
	has := func(want string, anew bool) {
		t.Helper()
		for range 3 {
			before := server.answers.Load()
			for _, ask := range []func() ([]*metav1.APIResourceList, error){
				k.ServerPreferredResources, k.ServerPreferredNamespacedResources,
			} {
				var names []string
				lists, err := ask()
				for _, list := range lists {
					for _, r := range list.APIResources {
						names = append(names, list.GroupVersion+"/"+r.Name)
					}
				}
				if got := strings.Join(names, " "); got != "example.com/v1/"+want || err != nil {
					t.Errorf("the kinds are %q, %v", got, err)
				}
			}
			if now := server.answers.Load(); now != before != anew {
				t.Errorf("%d answers had the kinds, before %d", now, before)
			}
			anew = false
		}
	}
	has("apples", true)
	set(`"2"`, "pears")
	has("pears", true)
	server.broken.Store(true)
	if _, err := k.ServerPreferredResources(); err == nil {
		t.Error("a server that does not answer has kinds")
	}
	server.broken.Store(false)
	has("pears", true)
}

// TestConstructorsGetTheKinds: while controllers are made, a server that does not answer yet is asked
// again; when it ends, what asks ends by a panic that [unlessEnding] takes for the end; later, an error
// is an error.
func TestConstructorsGetTheKinds(t *testing.T) {
	server := new(kindsServer)
	one, apples := `"1"`, "apples"
	server.mark.Store(&one)
	server.kind.Store(&apples)
	h := httptest.NewServer(server)
	defer h.Close()
	building, end := context.WithCancelCause(t.Context())
	client, err := controllerClients{loopback: &rest.Config{Host: h.URL}, building: building}.Client("a")
	if err != nil {
		t.Fatal(err)
	}
	ask := func() ([]*metav1.APIResourceList, error) {
		return client.Discovery().ServerPreferredNamespacedResources()
	}

	server.broken.Store(true)
	asked := make(chan int)
	go func() {
		lists, _ := ask()
		asked <- len(lists)
	}()
	for server.refusals.Load() == 0 {
		runtime.Gosched()
	}
	server.broken.Store(false)
	if n := <-asked; n != 1 {
		t.Errorf("it has %d lists of kinds", n)
	}

	server.broken.Store(true)
	_, err = unlessEnding(building, func() ([]*metav1.APIResourceList, error) {
		end(errors.New("the server ends"))
		return ask()
	})
	if err == nil {
		t.Error("a constructor goes on without kinds")
	}

	building, end = context.WithCancelCause(t.Context())
	end(errBuilt)
	kinds, err := newKinds(&rest.Config{Host: h.URL})
	if err != nil {
		t.Fatal(err)
	}
	if lists, err := (answered{kinds, building}).ServerPreferredNamespacedResources(); err == nil {
		t.Errorf("there are %v", lists)
	}
}
