package cluster

import (
	"fmt"
	"net"
	"net/http/httptest"
	"testing"

	"github.com/berthd/berth/test/images"
)

// upstreamRegistry is the registry from which upstream's tests pull their images.
const upstreamRegistry = "registry.k8s.io"

// ServeUpstream replaces the registry of upstream's images until the test ends. containerd pulls
// from it what it would pull from the registry.
func (c *Cluster) ServeUpstream(t testing.TB) {
	t.Helper()
	mirror, err := images.Upstream(t.Context(), c.Checkout)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(mirror)
	_ = server.Listener.Close() // the listener in the network of this process
	listen := func() (err error) {
		server.Listener, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		return err
	}
	if err := c.In(listen); err != nil {
		t.Fatalf("listen in the cluster's network: %v", err)
	}
	server.Start()
	t.Cleanup(server.Close)
	c.TrustRegistry(t, upstreamRegistry,
		fmt.Sprintf("server = %q\n[host.%q]\n  capabilities = [\"pull\", \"resolve\"]\n", server.URL, server.URL))
}
