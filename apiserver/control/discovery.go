package control

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// askTimeout is how long the server may take to say whether its kinds have changed.
const askTimeout = 30 * time.Second

// kinds tells controllers which kinds the server has. Two of them ask twice a minute for all that
// there is, and the answer is the same for weeks. So it is read again only when the server says that
// it has changed (RFC 9110, section 13.1.2). Its methods may be called from any goroutine.
type kinds struct {
	discovery.DiscoveryInterface
	client *http.Client
	server *url.URL

	mu sync.Mutex
	// tags are the server's marks of what it answered last, by path.
	tags            map[string]string
	all, namespaced []*metav1.APIResourceList
}

// newKinds returns what asks the server of that config.
func newKinds(config *rest.Config) (*kinds, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	server, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("find the server: %w", err)
	}
	asks, err := discovery.NewDiscoveryClientForConfigAndClient(config, client)
	if err != nil {
		return nil, fmt.Errorf("make a client that asks for kinds: %w", err)
	}
	return &kinds{DiscoveryInterface: asks, client: client, server: server, tags: map[string]string{}}, nil
}

// ServerPreferredResources returns the kinds, each in the version that the server prefers. The lists
// are not to be changed.
func (k *kinds) ServerPreferredResources() ([]*metav1.APIResourceList, error) {
	return k.remembered(&k.all, k.DiscoveryInterface.ServerPreferredResources)
}

// ServerPreferredNamespacedResources returns those that are in namespaces.
func (k *kinds) ServerPreferredNamespacedResources() ([]*metav1.APIResourceList, error) {
	return k.remembered(&k.namespaced, k.DiscoveryInterface.ServerPreferredNamespacedResources)
}

// remembered returns the lists of before, or reads them. An answer with an error, which may be a part
// of one, is not kept.
func (k *kinds) remembered(
	lists *[]*metav1.APIResourceList, read func() ([]*metav1.APIResourceList, error),
) ([]*metav1.APIResourceList, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	// The marks are older than the lists: what changes in between is seen next time.
	if k.changed() {
		k.all, k.namespaced = nil, nil
	}
	if *lists != nil {
		return *lists, nil
	}
	answer, err := read()
	if err == nil {
		*lists = answer
	}
	return answer, err //nolint:wrapcheck // callers look for discovery's own errors
}

// changed asks the server whether there are other kinds than when it was last asked. What cannot be
// asked counts as changed.
func (k *kinds) changed() bool {
	changed := false
	for _, path := range []string{"/api", "/apis"} {
		tag := k.tag(path)
		changed = changed || tag == "" || tag != k.tags[path]
		k.tags[path] = tag
	}
	return changed
}

// tag returns the server's mark of what it has at a path now, "" if it has none.
func (k *kinds) tag(path string) string {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, k.server.JoinPath(path).String(), http.NoBody)
	if err != nil {
		return ""
	}
	request.Header.Set("Accept", discovery.AcceptV2)
	if known := k.tags[path]; known != "" {
		request.Header.Set("If-None-Match", known)
	}
	answer, err := k.client.Do(request)
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusNotModified {
		return ""
	}
	return answer.Header.Get("ETag")
}

// discovering is a client that asks in its own way which kinds the server has.
type discovering struct {
	kubernetes.Interface
	kinds discovery.DiscoveryInterface
}

// Discovery returns what asks.
func (d discovering) Discovery() discovery.DiscoveryInterface { return d.kinds }

// answered asks until it gets an answer while controllers are made: a constructor of upstream's exits
// the process if it gets none, as on a busy machine, or when the server ends.
type answered struct {
	discovery.DiscoveryInterface
	building context.Context //nolint:containedctx // upstream asks without one
}

// askInterval is the time between two questions for the kinds.
const askInterval = time.Second

// ServerPreferredNamespacedResources returns the kinds that are in namespaces. It panics if there is no
// answer when the server ends while controllers are made, see [unlessEnding].
func (a answered) ServerPreferredNamespacedResources() ([]*metav1.APIResourceList, error) {
	for {
		lists, err := a.DiscoveryInterface.ServerPreferredNamespacedResources()
		if len(lists) > 0 || errors.Is(context.Cause(a.building), errBuilt) {
			return lists, err //nolint:wrapcheck // callers look for discovery's own errors
		}
		select {
		case <-a.building.Done():
			if !errors.Is(context.Cause(a.building), errBuilt) {
				panic("the server ends before it has said which kinds it has")
			}
		case <-time.After(askInterval):
		}
	}
}

// errBuilt is why the context of building controllers ends well.
var errBuilt = errors.New("all controllers are made")
