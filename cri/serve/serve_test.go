package serve_test

import (
	"path/filepath"
	"testing"

	"github.com/berthd/berth/cri/fake"
	"github.com/berthd/berth/cri/remote"
	"github.com/berthd/berth/cri/serve"
	"github.com/berthd/berth/cri/suite"
)

// The fake keeps its contract over a socket, too.
func TestContract(t *testing.T) {
	const image, other = "docker.io/library/busybox:latest", "docker.io/library/alpine:3"
	suite.Run(t, func(t *testing.T) suite.Target {
		path := filepath.Join(t.TempDir(), "cri.sock")
		stop, err := serve.Start(t.Context(), path, fake.New(fake.Config{
			Images: []fake.Image{{Name: image, Present: true}, {Name: other}}, StrictImages: true, WriteLogs: true,
		}))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(stop)
		rt, err := remote.Dial(t.Context(), remote.Config{Endpoint: "unix://" + path})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = rt.Close() })
		return suite.Target{Runtime: rt, Image: image, PullImage: other}
	})
}
