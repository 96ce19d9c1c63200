package garbage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berthd/berth/agent/images"
	"github.com/berthd/berth/cri/fake"
	"github.com/berthd/berth/test/leaks"
)

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

// usual has the kubelet's defaults.
var usual = Policy{High: 85, Low: 80, MinAge: 2 * time.Minute}

// node is a node whose disk has capacity bytes, of which others use some.
type node struct {
	*testing.T
	*Collector
	fake    *fake.Runtime
	runtime Runtime
	file    string
	pins    images.Pins
	manager *images.Manager

	mu               sync.Mutex
	capacity, others uint64
	pods             []*v1.Pod
	events           []string
	removed          []string
}

func newNode(t *testing.T, list ...fake.Image) *node {
	t.Helper()
	n := &node{T: t, fake: fake.New(fake.Config{Images: list}), file: filepath.Join(t.TempDir(), "berth", "uses.json")}
	n.runtime, n.capacity = n.fake, 1000
	return n
}

// start makes the collector, as a start of the agent does, and runs it until stop.
func (n *node) start(p Policy) (stop func()) {
	n.manager = images.New(images.Config{Pins: n.pins}, images.Deps{Runtime: n.fake})
	n.Collector = New(p, n.file, Deps{
		Runtime: n.runtime, Images: n.manager,
		Wanted: func() []*v1.Pod { n.mu.Lock(); defer n.mu.Unlock(); return n.pods },
		FileSystem: func(ctx context.Context) (*statsapi.FsStats, error) {
			n.mu.Lock()
			defer n.mu.Unlock()
			info, err := n.fake.ImageFsInfo(ctx)
			if err != nil {
				return nil, err
			}
			used := n.others + info.ImageFilesystems[0].UsedBytes.Value
			return &statsapi.FsStats{CapacityBytes: new(n.capacity), AvailableBytes: new(n.capacity - used)}, nil
		},
		Event: func(kind, reason, message string) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.events = append(n.events, kind+" "+reason+": "+message)
		},
		Removed: func(reason string) { n.mu.Lock(); defer n.mu.Unlock(); n.removed = append(n.removed, reason) },
		Logger:  slog.New(slog.NewTextHandler(n.Output(), nil)),
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := n.Collector.Run(ctx); err != nil {
			n.Error(err)
		}
	}()
	synctest.Wait()
	return func() { cancel(); <-done }
}

// rounds lets so many rounds pass.
func (n *node) rounds(count int) {
	time.Sleep(time.Duration(count) * period)
	synctest.Wait()
}

// want checks which images the node has, by their short names.
func (n *node) want(names ...string) {
	n.Helper()
	list, err := n.fake.ListImages(context.Background())
	if err != nil {
		n.Fatal(err)
	}
	var got []string
	for _, i := range list {
		got = append(got, strings.TrimSuffix(strings.TrimPrefix(i.RepoTags[0], "docker.io/library/"), ":latest"))
	}
	if !slices.Equal(got, names) {
		n.Errorf("the node has %q, want %q", got, names)
	}
}

func (n *node) wantEvents(want ...string) {
	n.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if !slices.Equal(n.events, want) {
		n.Errorf("events:\n%s\nwant:\n%s", strings.Join(n.events, "\n"), strings.Join(want, "\n"))
	}
	n.events = nil
}

func (n *node) wantReasons(want ...string) {
	n.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if !slices.Equal(n.removed, want) {
		n.Errorf("removed for %q, want %q", n.removed, want)
	}
	n.removed = nil
}

func (n *node) setPods(pods ...*v1.Pod) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.pods = pods
}

func (n *node) setOthers(bytes uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.others = bytes
}

func podOf(image string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: image, UID: "uid-of-" + "pod"},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "c", Image: image}}},
	}
}

func image(name string, size uint64) fake.Image {
	return fake.Image{Name: name, Present: true, Size: size}
}

// container makes a container of somebody else's pod, and starts it.
func (n *node) container(name string) (remove func()) {
	n.Helper()
	ctx := context.Background()
	config := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "ns", Uid: "uid-" + name},
	}
	id, err := n.fake.RunPodSandbox(ctx, config, "")
	if err != nil {
		n.Fatal(err)
	}
	c, err := n.fake.CreateContainer(ctx, id, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, Image: &runtimeapi.ImageSpec{Image: name},
	}, config)
	if err != nil {
		n.Fatal(err)
	}
	return func() {
		if err := errors.Join(n.fake.RemoveContainer(ctx, c), n.fake.RemovePodSandbox(ctx, id)); err != nil {
			n.Error(err)
		}
	}
}

func TestFreesSpaceByLastUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, image("never", 100), image("early", 100), image("late", 100), image("wanted", 100),
			image("running", 100), fake.Image{Name: "pinned", Present: true, Size: 100, Pinned: true})
		n.setPods(podOf("wanted"))
		removeRunning := n.container("running")
		removeEarly, removeLate := n.container("early"), n.container("late")
		defer n.start(usual)()
		n.rounds(1)
		removeEarly()
		n.rounds(1)
		removeLate()
		n.rounds(1)
		n.want("early", "late", "never", "pinned", "running", "wanted")
		n.setOthers(250) // 850 of 1000 bytes: 50 have to go
		n.rounds(1)
		n.want("early", "late", "pinned", "running", "wanted")
		n.setOthers(500) // 1000 of 1000 bytes: 200 have to go
		n.rounds(1)
		n.want("pinned", "running", "wanted")
		n.wantReasons("space", "space", "space")
		n.wantEvents()

		n.setOthers(700)
		n.rounds(1)
		full := "Insufficient free disk space on the node's image filesystem (100% of 1000 B used). " +
			"Failed to free sufficient space by deleting unused images (freed 0 bytes). " +
			"Investigate disk usage, as it could be used by active images, logs, volumes, or other data."
		n.wantEvents("Warning FreeDiskSpaceFailed: " + full)
		n.rounds(1)
		n.wantEvents("Warning FreeDiskSpaceFailed: "+full, "Warning ImageGCFailed: "+full)
		removeRunning()
		n.setPods()
		n.rounds(1)
		n.want("pinned")
	})
}

// The disk is left alone below the high threshold, and freed no further than to the low one.
func TestThresholds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, image("a", 60), image("b", 10), image("c", 10), image("d", 10))
		n.setOthers(750)
		defer n.start(usual)()
		n.rounds(2)
		n.want("a", "b", "c", "d") // 840 of 1000
		n.setOthers(770)
		n.rounds(1)
		n.want("b", "c", "d") // of 860, 60 were too many
		n.wantEvents()
		n.wantReasons("space")
	})
}

func TestMinimumAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, image("old", 500))
		defer n.start(Policy{High: 85, Low: 80, MinAge: 7 * time.Minute})()
		n.fake.SetImage(image("new", 500))
		n.rounds(1) // old was seen five minutes ago
		n.want("new", "old")
		n.rounds(1)
		n.want("new") // seen for the first time one round ago
		n.setOthers(500)
		n.rounds(1)
		n.want()
	})
}

func TestMaximumAgeCountsOverRestarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, image("never", 1), image("once", 1), image("used", 1))
		n.setPods(podOf("used"))
		remove := n.container("once")
		week := Policy{High: 100, Low: 80, MinAge: 2 * time.Minute, MaxAge: 7 * 24 * time.Hour}
		stop := n.start(week)
		n.rounds(12 * 24) // a day
		remove()
		stop()
		time.Sleep(5 * 24 * time.Hour)
		stop = n.start(week)
		n.rounds(12 * 24)
		n.want("never", "once", "used") // seven days
		n.rounds(1)
		n.want("once", "used")
		n.rounds(12 * 24)
		n.want("used")
		n.wantReasons("age", "age")
		n.wantEvents()
		stop()
	})
}

// A time in the future says that the clock was put back.
func TestFileOfTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, content := range map[string]string{
			"no JSON":       "{",
			"other version": `{"version": 2, "images": {}}`,
			"future": fmt.Sprintf(`{"version": 1, "images": {%q: {"firstSeen": %q, "lastUsed": %q}}}`, idOf(t, "a"),
				time.Now().Add(time.Hour).Format(time.RFC3339), time.Now().Add(time.Hour).Format(time.RFC3339)),
		} {
			n := newNode(t, image("a", 1))
			if err := os.MkdirAll(filepath.Dir(n.file), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(n.file, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			stop := n.start(usual)
			list, err := n.List(t.Context())
			if err != nil || len(list) != 1 || list[0].FirstSeen.After(time.Now()) || list[0].LastUsed.After(time.Now()) {
				t.Errorf("%s: images %+v, %v", name, list, err)
			}
			stop()
		}
	})
}

func idOf(t *testing.T, name string) string {
	t.Helper()
	list, err := fake.New(fake.Config{Images: []fake.Image{image(name, 1)}}).ListImages(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return list[0].Id
}

func TestNever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, image("a", 100))
		n.setOthers(900)
		defer n.start(Policy{High: 100, Low: 80, MinAge: 2 * time.Minute})()
		n.rounds(3)
		n.want("a")
		n.wantEvents()
	})
}

func TestDeleteUnusedImages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, image("a", 1), image("broken", 1), image("b", 1), image("configured", 1), image("sandbox", 1),
			image("asked", 1))
		pins, err := images.NewPins([]string{"configured"})
		if err != nil {
			t.Fatal(err)
		}
		n.pins = pins
		n.runtime = withConfig{n.fake, `{"sandboxImage": "sandbox:latest"}`}
		defer n.start(usual)()
		n.fake.Inject(fake.Fault{
			Method: "RemoveImage", Match: func(c fake.Call) bool { return c.ID == idOf(t, "broken") }, Err: errors.New("busy"),
		})
		n.manager.Ensure(t.Context(), images.Request{Pod: podOf("asked"), Container: "c", Image: "asked"})
		if err := n.DeleteUnusedImages(t.Context()); err != nil {
			t.Error(err)
		}
		n.want("a", "asked", "b", "broken", "configured", "sandbox") // all are young
		time.Sleep(2 * time.Minute)
		err = n.DeleteUnusedImages(t.Context())
		if err == nil || !strings.Contains(err.Error(), "wanted to free 9223372036854775807 bytes, but freed 2 bytes space "+
			"with errors in image deletion: remove image docker.io/library/broken:latest: RemoveImage: busy") {
			t.Errorf("error %v", err)
		}
		n.want("asked", "broken", "configured", "sandbox")
		n.wantReasons("space", "space")
	})
}

// withConfig is a runtime that tells its config, as containerd does.
type withConfig struct {
	*fake.Runtime
	config string
}

func (r withConfig) Status(context.Context, bool) (*runtimeapi.StatusResponse, error) {
	return &runtimeapi.StatusResponse{Info: map[string]string{"config": r.config}}, nil
}

// mounting is a runtime whose containers mount an image.
type mounting struct {
	*fake.Runtime
	image string
}

func (r mounting) ContainerStatus(ctx context.Context, id string) (*runtimeapi.ContainerStatus, error) {
	s, err := r.Runtime.ContainerStatus(ctx, id)
	s.Mounts = append(s.Mounts, &runtimeapi.Mount{Image: &runtimeapi.ImageSpec{Image: r.image}})
	return s, err
}

func TestMountedImagesAreInUse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, image("data", 1), image("app", 1), image("volume", 1), image("unused", 1))
		n.runtime = mounting{n.fake, idOf(t, "data")}
		n.container("app")
		pod := podOf("app")
		pod.Spec.Volumes = []v1.Volume{{VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "volume"}}}}
		n.setPods(pod)
		defer n.start(Policy{High: 85, Low: 80})()
		if err := n.DeleteUnusedImages(t.Context()); err != nil {
			t.Error(err)
		}
		n.want("app", "data", "volume")
	})
}

// Nothing is removed unless everything that may use an image is known.
func TestRuntimeThatFails(t *testing.T) {
	for _, method := range []string{"ListImages", "ListContainers", "ContainerStatus", "Status", "ImageStatus"} {
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t, image("a", 100), image("app", 1))
			n.container("app")
			n.setPods(podOf("elsewhere"))
			n.setOthers(899)
			n.fake.Inject(fake.Fault{Method: method, Err: errors.New("down")})
			stop := n.start(usual)
			n.rounds(1)
			n.wantEvents()
			n.rounds(1)
			if len(n.events) != 1 || !strings.HasPrefix(n.events[0], "Warning ImageGCFailed: ") ||
				!strings.HasSuffix(n.events[0], "down") {
				t.Errorf("%s: events %q", method, n.events)
			}
			n.fake.ClearFaults()
			n.rounds(2) // the first of them may see the images for the first time
			n.want("app")
			stop()
		})
	}
}

// A pod names an image by what is the beginning of several IDs, which containerd answers with an
// error. The other images are removed all the same.
func TestNameThatTheRuntimeRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t, image("app", 1), image("unused", 1))
		n.container("app")
		n.setPods(podOf("sha256:a"))
		n.fake.Inject(fake.Fault{
			Method: "ImageStatus", Match: func(c fake.Call) bool { return c.ID == "sha256:a" },
			Err: errors.New(`can not resolve "sha256:a" locally: ambiguous digest string`),
		})
		defer n.start(Policy{High: 85, Low: 80})()
		if err := n.DeleteUnusedImages(t.Context()); err != nil {
			t.Error(err)
		}
		n.want("app")
	})
}

func TestDiskWithoutCapacity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(t)
		n.capacity = 0
		defer n.start(usual)()
		n.rounds(2)
		const invalid = "invalid capacity 0 on image filesystem"
		n.wantEvents("Warning InvalidDiskCapacity: "+invalid, "Warning InvalidDiskCapacity: "+invalid,
			"Warning ImageGCFailed: "+invalid)
	})
}

func TestFormatSize(t *testing.T) {
	for bytes, want := range map[int64]string{
		1023: "1023 B", 1024: "1.0 KiB", 3 << 19: "1.5 MiB", 5 << 30: "5.0 GiB", 7 << 40: "7.0 TiB", 3 << 50: "3072.0 TiB",
	} {
		if got := formatSize(bytes); got != want {
			t.Errorf("%d bytes are %s, want %s", bytes, got, want)
		}
	}
}
