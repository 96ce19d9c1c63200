package gc

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	csiapi "github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/node/plugins"
	"github.com/berthd/berth/agent/pod/observe"
	"github.com/berthd/berth/agent/volumes"
	"github.com/berthd/berth/agent/volumes/csi"
	"github.com/berthd/berth/cri/fake"
	"github.com/berthd/berth/internal/notify"
	"github.com/berthd/berth/test/leaks"
)

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

// bare is a node without pods but one, wanted. updated says that the QoS cgroups were brought up to
// date, and removed has the pods whose cgroups were removed.
type bare struct {
	updated notify.Signal
	removed chan types.UID
}

func newBare() *bare { return &bare{updated: notify.New(), removed: make(chan types.UID, 8)} }

func (*bare) Has(uid types.UID) bool                   { return uid == "wanted" }
func (*bare) Known() map[types.UID]bool                { return nil }
func (*bare) Wake(types.UID)                           {}
func (*bare) Tidy(context.Context)                     {}
func (*bare) TrimDeadContainers(context.Context) error { return nil }

func (b *bare) UpdateQoS(context.Context, []*v1.Pod) error {
	b.updated.Notify()
	return nil
}

func (b *bare) RemovePod(_ context.Context, uid types.UID) error {
	b.removed <- uid
	return nil
}

// deps are the surroundings of a collector on that node.
func (b *bare) deps(root string, drivers *csi.Drivers, log *slog.Logger) Deps {
	return Deps{
		Workers: b, Cgroups: b, Images: b, Containers: b,
		Live:        func() []*v1.Pod { return nil },
		Ready:       func() bool { return true },
		Observer:    observe.New(fake.New(fake.Config{})),
		Volumes:     volumes.New(volumes.Config{RootDir: root}, volumes.Deps{CSI: csi.Deps{Drivers: drivers}}),
		Event:       func(string, string, string) {},
		PodLogsDir:  filepath.Join(root, "logs"),
		LinksDir:    filepath.Join(root, "links"),
		Marks:       NewMarks(),
		Changed:     notify.New(),
		Interrupted: notify.New(),
		Logger:      log,
	}
}

// silentDriver is a CSI driver that does not answer when it is asked to unstage a volume.
type silentDriver struct {
	csiapi.UnimplementedNodeServer
	// asked says that it was asked, and left that the caller does not wait for the answer any more.
	asked, left notify.Signal
}

func (*silentDriver) NodeGetInfo(
	context.Context, *csiapi.NodeGetInfoRequest,
) (*csiapi.NodeGetInfoResponse, error) {
	return &csiapi.NodeGetInfoResponse{NodeId: "node"}, nil
}

func (d *silentDriver) NodeUnstageVolume(
	ctx context.Context, _ *csiapi.NodeUnstageVolumeRequest,
) (*csiapi.NodeUnstageVolumeResponse, error) {
	d.asked.Notify()
	<-ctx.Done()
	d.left.Notify()
	return nil, ctx.Err()
}

// register starts the driver, and returns it as the node's only one.
func (d *silentDriver) register(t *testing.T) *csi.Drivers {
	t.Helper()
	dir, err := os.MkdirTemp("", "csi") //nolint:usetesting // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", filepath.Join(dir, "csi.sock"))
	if err != nil {
		t.Fatal(err)
	}
	server, served := grpc.NewServer(), make(chan error, 1)
	csiapi.RegisterNodeServer(server, d)
	go func() { served <- server.Serve(l) }()
	t.Cleanup(func() { server.Stop(); <-served })
	drivers := csi.NewDrivers(func() {}, nil, nil)
	if err := drivers.Register(t.Context(), plugins.Plugin{
		Name: "silent.berth.dev", Endpoint: l.Addr().String(), Versions: []string{"1.0.0"}, Socket: "reg",
	}); err != nil {
		t.Fatal(err)
	}
	return drivers
}

// A driver that does not answer when a volume is unstaged holds up neither the rounds nor the
// removal of what is left of pods.
func TestUnstagingThatHangsHoldsUpNothing(t *testing.T) {
	root, node := t.TempDir(), newBare()
	driver := &silentDriver{asked: notify.New(), left: notify.New()}
	staged := filepath.Join(root, "plugins/kubernetes.io/csi/silent.berth.dev",
		fmt.Sprintf("%x", sha256.Sum256([]byte("volume"))))
	if err := os.MkdirAll(filepath.Join(staged, "globalmount"), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(staged, "vol_data.json"),
		[]byte(`{"volumeHandle": "volume", "driverName": "silent.berth.dev"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	deps := node.deps(root, driver.register(t), slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- New(deps).Run(ctx) }()
	defer func() { cancel(); <-ended }()

	deps.Changed.Notify()
	<-driver.asked
	<-node.updated // in the round that has asked for it
	if err := os.MkdirAll(filepath.Join(root, "pods", "gone"), 0o750); err != nil {
		t.Fatal(err)
	}
	deps.Changed.Notify()
	for updated, removed := false, false; !updated || !removed; {
		select {
		case <-node.updated:
			updated = true
		case <-node.removed:
			removed = true
		case <-driver.left:
			t.Fatalf("until the driver was given up: another round %t, the leftover removed %t", updated, removed)
		}
	}
}

// forgetful is a runtime whose leftovers cannot be removed, with the error that it has now.
type forgetful struct{ err atomic.Pointer[error] }

func (f *forgetful) now() error {
	if err := f.err.Load(); err != nil {
		return *err
	}
	return nil
}

func (f *forgetful) EndForgottenShims(context.Context) (int, error)    { return 0, f.now() }
func (f *forgetful) RemoveForgottenPaths(context.Context) (int, error) { return 0, f.now() }

// A failure that lasts is logged when it begins, and then seldom. One that comes back is logged
// again at once.
func TestLastingFailuresAreLoggedSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		deps := newBare().deps(t.TempDir(), nil, slog.New(slog.NewTextHandler(&log, nil)))
		runtime := &forgetful{}
		deps.Repairer = runtime
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- New(deps).Run(ctx) }()
		logged := func(what string, fails error, during time.Duration, least, most int) {
			t.Helper()
			log.Reset()
			runtime.err.Store(&fails)
			time.Sleep(during)
			synctest.Wait()
			for _, kind := range []string{"processes", "files"} {
				n := strings.Count(log.String(), kind+" that the runtime has lost track of")
				if n < least || n > most {
					t.Errorf("%s: %s are logged %d times", what, kind, n)
				}
			}
		}
		refused := errors.New("operation not permitted")
		logged("the first minutes", refused, 3*time.Minute, 1, 1)
		logged("it is over", nil, time.Minute, 0, 0)
		logged("it comes back", refused, time.Minute, 1, 1)
		logged("another one", errors.New("read-only file system"), time.Minute, 1, 1)
		logged("six hours", refused, 6*time.Hour, 1, 6*60/5)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
