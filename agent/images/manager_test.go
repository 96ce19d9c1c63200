package images

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/test/leaks"
)

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

// fakeRuntime has images, and pulls by a function of the test.
type fakeRuntime struct {
	mu      sync.Mutex
	present map[string]*runtimeapi.Image // by full name and by id
	pulls   []string                     // full names, in the order in which they began
	inspect error
	pull    func(ctx context.Context, name string) error // nil succeeds
	// the user of each pull's login, "-" for none
	users []string
	deny  func(name, user string) error // nil lets everybody pull
	// removing is called before an image is removed; nil for nothing.
	removing func(id string) error
}

func (f *fakeRuntime) put(name string) *runtimeapi.Image {
	f.mu.Lock()
	defer f.mu.Unlock()
	image := &runtimeapi.Image{Id: "id-of-" + name, Size: 1234, Uid: &runtimeapi.Int64Value{Value: 1000}}
	f.present[name], f.present[image.Id] = image, image
	return image
}

func (f *fakeRuntime) remove(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.present, name)
	delete(f.present, "id-of-"+name)
}

func (f *fakeRuntime) begun() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.pulls)
}

func (f *fakeRuntime) ImageStatus(_ context.Context, spec *runtimeapi.ImageSpec) (*runtimeapi.Image, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	name := spec.Image
	if full, err := FullName(name); err == nil && !strings.HasPrefix(name, "id-of-") {
		name = full
	}
	return f.present[name], f.inspect
}

func (f *fakeRuntime) ListImages(context.Context) ([]*runtimeapi.Image, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []*runtimeapi.Image
	for name, image := range f.present {
		if name != image.Id {
			image.RepoTags = []string{name}
			list = append(list, image)
		}
	}
	return list, f.inspect
}

func (f *fakeRuntime) RemoveImage(_ context.Context, spec *runtimeapi.ImageSpec) error {
	f.mu.Lock()
	removing := f.removing
	f.mu.Unlock()
	if removing != nil {
		if err := removing(spec.Image); err != nil {
			return err
		}
	}
	f.remove(strings.TrimPrefix(spec.Image, "id-of-"))
	return nil
}

func (f *fakeRuntime) PullImage(
	ctx context.Context, spec *runtimeapi.ImageSpec, auth *runtimeapi.AuthConfig, _ *runtimeapi.PodSandboxConfig,
) (string, error) {
	name, err := FullName(spec.Image)
	if err != nil {
		return "", err
	}
	user := "-"
	if auth != nil {
		user = auth.Username
	}
	f.mu.Lock()
	f.pulls = append(f.pulls, name)
	f.users = append(f.users, user)
	pull, deny := f.pull, f.deny
	f.mu.Unlock()
	if deny != nil {
		if err := deny(name, user); err != nil {
			return "", err
		}
	}
	if pull != nil {
		if err := pull(ctx, name); err != nil {
			return "", err
		}
	}
	return f.put(name).Id, nil
}

// bench is a running manager.
type bench struct {
	*testing.T
	*Manager
	runtime *fakeRuntime
	woken   chan types.UID
	end     func() // ends Run and waits for it

	mu     sync.Mutex
	events []string
}

// start runs a manager with a fake runtime until the test ends, or until end is called.
func start(t *testing.T, cfg Config, deps Deps) *bench {
	t.Helper()
	b := &bench{T: t, runtime: &fakeRuntime{present: map[string]*runtimeapi.Image{}}, woken: make(chan types.UID, 1000)}
	if deps.Runtime != nil {
		b.runtime = deps.Runtime.(*fakeRuntime)
	}
	deps.Runtime = b.runtime
	deps.Wake = func(uid types.UID) { b.woken <- uid }
	also := deps.Events
	deps.Events = func(pod *v1.Pod, container, kind, reason, message string) {
		if also != nil {
			also(pod, container, kind, reason, message)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.events = append(b.events, fmt.Sprintf("%s/%s %s %s: %s", pod.UID, container, kind, reason, message))
	}
	b.Manager = New(cfg, deps)
	b.run()
	return b
}

// run runs the manager.
func (b *bench) run() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.Manager.Run(ctx) }()
	b.end = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			b.Errorf("run: %v", err)
		}
	})
	b.Cleanup(b.end)
	synctest.Wait()
}

// want asks for an image for container "c" of the pod.
func (b *bench) want(uid, image string, change ...func(*Request)) Result {
	req := Request{Pod: &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}}, Container: "c", Image: image}
	for _, f := range change {
		f(&req)
	}
	res := b.Ensure(context.Background(), req)
	synctest.Wait()
	return res
}

func policy(p v1.PullPolicy) func(*Request) { return func(r *Request) { r.Policy = p } }
func attempt(n uint32) func(*Request)       { return func(r *Request) { r.Attempt = n } }
func priority(n int32) func(*Request)       { return func(r *Request) { r.Pod.Spec.Priority = &n } }
func container(name string) func(*Request)  { return func(r *Request) { r.Container = name } }
func (b *bench) forget(uid string)          { b.Forget(types.UID(uid)); synctest.Wait() }
func (b *bench) sleep(d time.Duration)      { time.Sleep(d); synctest.Wait() } // the bubble's clock
func (b *bench) takeEvents() (events []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	events, b.events = b.events, nil
	return events
}

// takeWoken returns the pods that were woken since the last call, sorted.
func (b *bench) takeWoken() []types.UID {
	var out []types.UID
	for len(b.woken) > 0 {
		out = append(out, <-b.woken)
	}
	slices.Sort(out)
	return out
}

func (b *bench) wantEvents(want ...string) {
	b.Helper()
	got := b.takeEvents()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		b.Errorf("events:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func (b *bench) wantWoken(want ...types.UID) {
	b.Helper()
	if got := b.takeWoken(); !slices.Equal(got, want) {
		b.Errorf("woken: %v, want %v", got, want)
	}
}

func (b *bench) wantPulls(want ...string) {
	b.Helper()
	if got := b.runtime.begun(); !slices.Equal(got, want) {
		b.Errorf("pulls: %v, want %v", got, want)
	}
}

// wantWait fails the test if the result is another one.
func wantWait(t *testing.T, res Result, reason, message string, after time.Duration) {
	t.Helper()
	want := Result{Reason: reason, Message: message}
	if after > 0 {
		want.RetryAt = time.Now().Add(after)
	}
	if res != want {
		t.Errorf("result is %+v, want %+v", res, want)
	}
}

func wantReady(t *testing.T, res Result) {
	t.Helper()
	if !res.Ready {
		t.Errorf("result is %+v, want ready", res)
	}
}

// held is a pull that waits until it is released or ended.
func held() (pull func(context.Context, string) error, release func(error)) {
	gate := make(chan error)
	return func(ctx context.Context, _ string) error {
			select {
			case err := <-gate:
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}, func(err error) {
			gate <- err
			synctest.Wait()
		}
}

var errPull = errors.New("failed to resolve reference: connection refused")

func TestPresentImageIsReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, Config{}, Deps{})
		b.runtime.put("docker.io/library/busybox:1")
		for range 3 {
			res := b.want("a", "busybox:1")
			if !res.Ready || res.Image.Ref != "id-of-docker.io/library/busybox:1" || res.Image.UID == nil ||
				*res.Image.UID != 1000 {
				t.Errorf("result is %+v, want ready with id and user", res)
			}
		}
		wantReady(t, b.want("a", "busybox:1", policy(v1.PullNever), attempt(1)))
		b.wantPulls()
		b.wantEvents(
			// once for each attempt
			`a/c Normal Pulled: Container image "busybox:1" already present on machine and can be accessed by the pod`,
			`a/c Normal Pulled: Container image "busybox:1" already present on machine and can be accessed by the pod`)
	})
}

func TestOnePullServesAllWaiters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, Config{}, Deps{})
		var release func(error)
		b.runtime.pull, release = held()
		wantWait(t, b.want("a", "busybox:1"), ReasonCreating, `Pulling image "busybox:1"`, 0)
		b.sleep(time.Second)
		wantWait(t, b.want("b", "docker.io/busybox:1"), ReasonCreating, `Pulling image "docker.io/busybox:1"`, 0)
		wantWait(t, b.want("b", "busybox:1", container("d")), ReasonCreating, `Pulling image "busybox:1"`, 0)
		for range 5 {
			b.want("a", "busybox:1")
		}
		b.sleep(time.Second)
		release(nil)
		b.wantPulls("docker.io/library/busybox:1")
		b.wantWoken("a", "b")
		wantReady(t, b.want("a", "busybox:1"))
		wantReady(t, b.want("b", "docker.io/busybox:1"))
		wantReady(t, b.want("b", "busybox:1", container("d")))
		b.wantEvents(
			`a/c Normal Pulling: Pulling image "busybox:1"`,
			`b/c Normal Pulling: Pulling image "docker.io/busybox:1"`,
			`b/d Normal Pulling: Pulling image "busybox:1"`,
			`a/c Normal Pulled: Successfully pulled image "busybox:1" in 2s (2s including waiting). Image size: `+
				`1234 bytes.`,
			`b/c Normal Pulled: Successfully pulled image "docker.io/busybox:1" in 2s (2s including waiting). Image `+
				`size: 1234 bytes.`,
			`b/d Normal Pulled: Successfully pulled image "busybox:1" in 2s (2s including waiting). Image size: `+
				`1234 bytes.`)
		if got := b.Progress(context.Background()); len(got) != 0 {
			t.Errorf("progress is %v, want none", got)
		}
	})
}

// TestEventsOfPullsAreInOrder checks that a pod's event about the pull comes before the event about
// the pull's end, also if the pod joins a pull at the moment of its end. So nothing may happen to a
// pull while one of its events is recorded.
func TestEventsOfPullsAreInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b *bench
		b = start(t, Config{}, Deps{Events: func(pod *v1.Pod, _, _, reason, _ string) {
			if b.Manager.mu.TryLock() {
				b.Manager.mu.Unlock()
				t.Errorf("%s of %s is recorded while pulls go on", reason, pod.UID)
			}
		}})
		for _, end := range []error{nil, errPull} {
			var release func(error)
			b.runtime.pull, release = held()
			image := fmt.Sprintf("x:%t", end == nil)
			b.want("a", image)
			b.want("late", image)
			release(end)
			synctest.Wait()
			for _, uid := range []string{"a/c", "late/c"} {
				events := slices.DeleteFunc(slices.Clone(b.events), func(e string) bool {
					return !strings.HasPrefix(e, uid)
				})
				if len(events) < 2 || !strings.Contains(events[0], " Pulling: ") ||
					strings.Contains(events[1], "Pulling: ") {
					t.Errorf("%s has the events %q", uid, events)
				}
			}
			b.takeEvents()
		}
	})
}

func TestFailedPullBacksOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, Config{}, Deps{})
		failing := make(chan struct{})
		b.runtime.pull = func(context.Context, string) error {
			<-failing
			return errPull
		}
		const inBackOff = `Back-off pulling image "x:1": ErrImagePull: failed to resolve reference: connection refused`
		for i, seconds := range []int{10, 20, 40, 80, 160, 300, 300, 300} {
			delay := time.Duration(seconds) * time.Second
			res := b.want("a", "x:1") // answered while the pull is under way
			failing <- struct{}{}
			synctest.Wait()
			if i == 0 {
				wantWait(t, res, ReasonCreating, `Pulling image "x:1"`, 0)
			} else {
				wantWait(t, res, ReasonBackOff, inBackOff, 0)
			}
			b.wantWoken("a")
			wantWait(t, b.want("a", "x:1"), ReasonPull, errPull.Error(), failureShown)
			b.sleep(failureShown)
			for range 3 {
				wantWait(t, b.want("a", "x:1"), ReasonBackOff, inBackOff, delay-failureShown)
			}
			b.wantEvents(
				`a/c Normal Pulling: Pulling image "x:1"`,
				`a/c Warning Failed: Failed to pull image "x:1": failed to resolve reference: connection refused`,
				`a/c Warning Failed: Error: ErrImagePull`,
				`a/c Normal BackOff: Back-off pulling image "x:1"`,
				`a/c Warning Failed: Error: ImagePullBackOff`)
			b.sleep(delay - failureShown - time.Nanosecond)
			wantWait(t, b.want("a", "x:1"), ReasonBackOff, inBackOff, time.Nanosecond)
			b.sleep(time.Nanosecond)
			if got := len(b.runtime.begun()); got != i+1 {
				t.Fatalf("%d pulls after %d back-offs", got, i+1)
			}
		}
		close(failing)
		// so long after the last failure the back-off starts again
		b.sleep(2*DefaultBackoffMax + time.Second)
		b.want("a", "x:1")
		b.sleep(failureShown)
		wantWait(t, b.want("a", "x:1"), ReasonBackOff, inBackOff, DefaultBackoffInitial-failureShown)
		b.takeWoken()
		b.takeEvents()

		// Another pod tries at once; its success wakes the one in back-off.
		b.runtime.pull = nil
		b.want("b", "x:1")
		b.wantWoken("a", "b")
		wantReady(t, b.want("a", "x:1"))
		// And the back-off is over.
		b.runtime.remove("docker.io/library/x:1")
		b.runtime.pull = func(ctx context.Context, _ string) error {
			<-ctx.Done()
			return ctx.Err()
		}
		wantWait(t, b.want("a", "x:1", attempt(1)), ReasonCreating, `Pulling image "x:1"`, 0)
	})
}

func TestReasonsOfFailures(t *testing.T) {
	for text, want := range map[string][2]string{
		"anything": {ReasonPull, "anything"},
		"RegistryUnavailable: pull QPS exceeded": {
			ReasonRegistry, "image pull failed for x:1 because the registry is unavailable: pull QPS exceeded",
		},
		"": {ReasonPull, "the runtime does not say why"},
		"SignatureValidationFailed: bad": {
			ReasonSignature, "image pull failed for x:1 because the signature validation failed: bad",
		},
	} {
		reason, message := failureOf("x:1", nil, errors.New(text)).reasonOf("x:1")
		if reason != want[0] || message != want[1] {
			t.Errorf("%q gives %s: %s, want %s", text, reason, message, want)
		}
	}
}

func TestPolicies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, Config{}, Deps{})
		const never = `Container image "x:1" is not present with pull policy of Never`
		for range 2 {
			wantWait(t, b.want("a", "x:1", policy(v1.PullNever)), ReasonNeverPull, never, recheck)
		}
		b.wantEvents(`a/c Warning ErrImageNeverPull: `+never, `a/c Warning Failed: Error: ErrImageNeverPull`)
		b.wantPulls()

		// Always pulls once for each attempt, even if the image is there.
		const latest = "docker.io/library/busybox:latest"
		b.runtime.put(latest)
		for n := range 3 {
			for range 3 {
				b.want("a", "busybox", attempt(uint32(n)))
			}
			wantReady(t, b.want("a", "busybox", attempt(uint32(n))))
		}
		b.wantPulls(latest, latest, latest)
		b.runtime.remove(latest)
		if res := b.want("a", "busybox", attempt(2)); res.Ready {
			t.Error("an image that is gone is ready")
		}
		wantReady(t, b.want("a", "busybox", attempt(2)))
		b.wantPulls(latest, latest, latest, latest)
	})
}

func TestBadNamesAndBrokenRuntimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, Config{}, Deps{})
		const bad = `Failed to apply default image tag "Upper": couldn't parse image name "Upper": invalid reference ` +
			`format: repository name (library/Upper) must be lowercase`
		for range 2 {
			wantWait(t, b.want("a", "Upper"), ReasonInvalidName, bad, 0)
		}
		b.wantEvents("a/c Warning InspectFailed: "+bad, "a/c Warning Failed: Error: InvalidImageName")

		b.runtime.inspect = errdefs.ErrUnavailable.WithMessage("no runtime")
		for range 2 {
			wantWait(t, b.want("a", "x:1"), ReasonInspect, `Failed to inspect image "x:1": no runtime`,
				DefaultBackoffInitial)
		}
		b.wantEvents(`a/c Warning InspectFailed: Failed to inspect image "x:1": no runtime`,
			"a/c Warning Failed: Error: ImageInspectError")
		b.runtime.inspect = nil
		wantWait(t, b.want("a", "x:1"), ReasonCreating, `Pulling image "x:1"`, 0)
		wantReady(t, b.want("a", "x:1"))
	})
}

// A pull may end before the pod's next sync: its first event still comes first, and the pod is not
// in back-off yet.
func TestPullsThatEndAtOnce(t *testing.T) {
	for _, end := range []error{nil, errPull} {
		synctest.Test(t, func(t *testing.T) {
			b := start(t, Config{MaxParallelPulls: -1}, Deps{})
			b.runtime.pull = func(context.Context, string) error { return end }
			for n := range 300 {
				pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(fmt.Sprint(n))}}
				image := fmt.Sprintf("x:%d", n)
				wantWait(t, b.Ensure(t.Context(), Request{Pod: pod, Container: "c", Image: image}), ReasonCreating,
					fmt.Sprintf("Pulling image %q", image), 0)
				synctest.Wait()
				if events := b.takeEvents(); len(events) < 2 ||
					!strings.HasSuffix(events[0], fmt.Sprintf("Normal Pulling: Pulling image %q", image)) {
					t.Fatalf("events %q", events)
				}
				b.takeWoken()
			}
		})
	}
}

func TestHangingPullsGiveUpTheirPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, Config{MaxParallelPulls: 2}, Deps{})
		b.runtime.pull, _ = held()
		for _, pod := range []string{"a", "b", "c"} {
			b.want(pod, pod+":1")
		}
		began := time.Now()
		wantWait(t, b.want("c", "c:1"), ReasonCreating, `Image "c:1" is queued for its pull`, 0)
		states := func() (out []State) {
			for _, p := range b.Progress(context.Background()) {
				out = append(out, p.State)
				if p.Since.After(time.Now()) || len(p.Pods) != 1 {
					t.Errorf("progress is %+v", p)
				}
			}
			return out
		}
		if got := states(); !slices.Equal(got, []State{Pulling, Pulling, Queued}) {
			t.Errorf("states are %v", got)
		}
		b.sleep(DefaultStallTimeout)
		if got := states(); !slices.Equal(got, []State{Stalled, Stalled, Pulling}) {
			t.Errorf("states after the stall timeout are %v", got)
		}
		b.wantWoken()
		b.sleep(DefaultPullTimeout - DefaultStallTimeout)
		b.wantWoken("a", "b")
		wantWait(t, b.want("a", "a:1"), ReasonPull, "the pull did not end within 1h0m0s: context deadline exceeded",
			failureShown)
		b.sleep(failureShown)
		if got := states(); !slices.Equal(got, []State{BackOff, BackOff, Stalled}) {
			t.Errorf("states after the pull timeout are %v", got)
		}
		if time.Since(began) > DefaultPullTimeout+time.Minute {
			t.Error("the clock ran away")
		}
	})
}

func TestOrderOfPulls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, Config{MaxParallelPulls: 2}, Deps{})
		var release func(error)
		b.runtime.pull, release = held()
		b.want("a", "one.example/a:1")
		b.want("b", "one.example/b:1")
		b.want("c", "one.example/c:1")
		b.want("d", "two.example/d:1")
		b.want("e", "one.example/e:1", priority(1000))
		// c waits for the same image with a higher priority
		b.want("f", "one.example/c:1", priority(-5))
		for range 5 {
			release(nil)
		}
		b.wantPulls("one.example/a:1", "one.example/b:1", "one.example/e:1", "two.example/d:1", "one.example/c:1")
	})
}

func TestEndOfRunEndsPulls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, Config{MaxParallelPulls: 1}, Deps{})
		b.runtime.pull, _ = held()
		b.want("a", "a:1")
		b.want("b", "b:1")
		if err := b.Manager.Run(context.Background()); err == nil {
			t.Error("a second run beside the first succeeded")
		}
		b.end()
		b.wantWoken()
		b.wantPulls("docker.io/library/a:1")
		b.want("a", "a:1")
		b.wantPulls("docker.io/library/a:1") // nothing is pulled while the manager does not run
		b.runtime.pull = nil
		b.run()
		b.wantWoken("a", "b")
		wantReady(t, b.want("a", "a:1")) // and the first end was no failure
		wantReady(t, b.want("b", "b:1"))
	})
}

func TestForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, Config{MaxParallelPulls: 1}, Deps{})
		var release func(error)
		b.runtime.pull, release = held()
		b.want("a", "x:1")
		b.want("b", "x:1")
		b.want("c", "y:1")
		b.forget("a")
		b.forget("a")
		b.forget("unknown")
		b.wantPulls("docker.io/library/x:1")
		b.forget("b") // no pod waits for x any more: its pull ends, and y's begins
		b.wantPulls("docker.io/library/x:1", "docker.io/library/y:1")
		release(errPull)
		b.wantWoken("c")
		b.forget("c")
		if got := b.Progress(context.Background()); len(got) != 0 {
			t.Errorf("progress after all was forgotten is %v", got)
		}
		b.takeEvents()
		// no back-off is left
		wantWait(t, b.want("c", "y:1"), ReasonCreating, `Pulling image "y:1"`, 0)
		release(nil)
		wantReady(t, b.want("c", "y:1"))
		if len(b.backoffs) != 0 || len(b.pulls) != 0 || len(b.wants) != 1 {
			t.Errorf("left: %d back-offs, %d pulls, %d wants", len(b.backoffs), len(b.pulls), len(b.wants))
		}
	})
}

func TestImageThatComesDuringItsPull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, Config{MaxParallelPulls: 1}, Deps{})
		var release func(error)
		b.runtime.pull, release = held()
		b.want("a", "x:1")
		b.want("b", "y:1")
		b.runtime.put("docker.io/library/x:1")
		b.runtime.put("docker.io/library/y:1")
		wantReady(t, b.want("a", "x:1"))
		wantReady(t, b.want("b", "y:1"))
		b.forget("a")
		if got := b.Progress(context.Background()); len(got) != 1 || got[0].State != Pulling || len(got[0].Pods) != 0 {
			t.Errorf("progress is %+v, want the pull under way, for nobody", got)
		}
		release(nil)
		b.wantPulls("docker.io/library/x:1") // y's was dropped from the queue
		b.wantWoken()
		if got := b.Progress(context.Background()); len(got) != 0 {
			t.Errorf("progress is %+v, want none", got)
		}
	})
}

// TestManyPods has pods that come, wait and go in many goroutines. It is for the race detector, and
// checks that nothing is left.
func TestManyPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, Config{MaxParallelPulls: 3}, Deps{})
		b.runtime.pull = func(_ context.Context, name string) error {
			time.Sleep(time.Second)
			if strings.Contains(name, "bad") {
				return errPull
			}
			return nil
		}
		var wg sync.WaitGroup
		for i := range 60 {
			wg.Go(func() {
				uid := fmt.Sprint("pod", i)
				image := []string{"a:1", "b:1", "c", "bad:1", "d:1"}[i%5]
				for n := range 40 {
					res := b.Ensure(context.Background(), Request{
						Pod:       &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}},
						Container: "c",
						Image:     image,
						Attempt:   uint32(n / 20),
					})
					if res.Ready != (res.Reason == "") {
						t.Errorf("result is %+v", res)
					}
					b.Progress(context.Background())
					time.Sleep(300 * time.Millisecond)
				}
				b.Forget(types.UID(uid))
			})
		}
		wg.Wait()
		synctest.Wait()
		if len(b.backoffs) != 0 || len(b.pulls) != 0 || len(b.wants) != 0 {
			t.Errorf("left: %d back-offs, %d pulls, %d wants", len(b.backoffs), len(b.pulls), len(b.wants))
		}
		if n := len(b.runtime.begun()); n > 100 {
			t.Errorf("%d pulls", n)
		}
	})
}

func TestNames(t *testing.T) {
	for in, want := range map[string]struct {
		full, tagged string
		policy       v1.PullPolicy
	}{
		"busybox":   {"docker.io/library/busybox:latest", "busybox:latest", v1.PullAlways},
		"busybox:1": {"docker.io/library/busybox:1", "busybox:1", v1.PullIfNotPresent},
		"docker.io/busybox": {
			"docker.io/library/busybox:latest", "docker.io/busybox:latest", v1.PullAlways,
		},
		"index.docker.io/library/a:1": {
			"docker.io/library/a:1", "index.docker.io/library/a:1", v1.PullIfNotPresent,
		},
		"registry.example:5000/a": {
			"registry.example:5000/a:latest", "registry.example:5000/a:latest", v1.PullAlways,
		},
		"localhost/a/b:v1": {"localhost/a/b:v1", "localhost/a/b:v1", v1.PullIfNotPresent},
		"a@sha256:" + strings.Repeat("0", 64): {
			"docker.io/library/a@sha256:" + strings.Repeat("0", 64), "a@sha256:" + strings.Repeat("0", 64),
			v1.PullIfNotPresent,
		},
		"a:1@sha256:" + strings.Repeat("0", 64): {
			"docker.io/library/a@sha256:" + strings.Repeat("0", 64), "a:1@sha256:" + strings.Repeat("0", 64),
			v1.PullIfNotPresent,
		},
	} {
		full, err := FullName(in)
		if err != nil || full != want.full || withTag(in) != want.tagged || policyOf("", full) != want.policy {
			t.Errorf("%q: %q, %q, %s, error %v, want %v", in, full, withTag(in), policyOf("", full), err, want)
		}
		if policyOf(v1.PullNever, full) != v1.PullNever {
			t.Errorf("%q: a policy that is set was changed", in)
		}
	}
	for _, in := range []string{
		"", " ", "A", "a b", "a:", "http://a/b", strings.Repeat("a", 300), strings.Repeat("0", 64),
	} {
		if full, err := FullName(in); err == nil {
			t.Errorf("%q gives %q, want an error", in, full)
		}
	}
}

// New limits are used at once, also for pulls that are queued already.
func TestSetLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, Config{MaxParallelPulls: 1}, Deps{})
		b.runtime.pull, _ = held()
		for _, pod := range []string{"a", "b", "c"} {
			b.want(pod, pod+":1")
		}
		pulling := func() (n int) {
			for _, p := range b.Progress(context.Background()) {
				if p.State == Pulling {
					n++
				}
			}
			return n
		}
		if n := pulling(); n != 1 {
			t.Errorf("%d pulls at once, want 1", n)
		}
		b.SetLimits(Config{MaxParallelPulls: 3, PullsPerSecond: 1, PullBurst: 1})
		synctest.Wait()
		if n := pulling(); n != 2 {
			t.Errorf("%d pulls at once after the first that the pace lets begin, want 2", n)
		}
		b.sleep(time.Second)
		if n := pulling(); n != 3 {
			t.Errorf("%d pulls at once, want 3", n)
		}
	})
}

// A panic on the way to a pull leaves no lock: what one pod meets keeps no other pod from its
// image.
func TestPanicLeavesNoLock(t *testing.T) {
	for _, event := range []string{eventPulling, eventPulled} {
		synctest.Test(t, func(t *testing.T) {
			b := start(t, Config{MaxParallelPulls: 1, PullTimeout: time.Hour}, Deps{
				Events: func(pod *v1.Pod, _, _, reason, _ string) {
					if pod.UID == "bad" && reason == event {
						panic("index out of range")
					}
				},
			})
			b.runtime.put("docker.io/library/there:latest")
			for _, image := range []string{"there", "new"} {
				func() {
					defer func() { _ = recover() }()
					b.want("bad", image, policy(v1.PullIfNotPresent))
				}()
				if event == eventPulled {
					break // the end of a pull is no pod's sync
				}
			}
			b.want("good", "other")
			if res := b.want("good", "other"); !res.Ready {
				t.Errorf("after a panic at %s, another pod waits: %+v", event, res)
			}
		})
	}
}
