package observe

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/test/leaks"
)

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

// stub is a runtime of lists. Any of its things may vanish, and any call may fail, between two
// calls.
type stub struct {
	mu         sync.Mutex
	sandboxes  map[string]*runtimeapi.PodSandboxStatus
	containers map[string]*runtimeapi.ContainerStatus
	within     map[string]string // container to sandbox
	calls      map[string]int
	fail       map[string]error
	// listed is called after each list has been made.
	listed func()
}

func newStub() *stub {
	return &stub{
		sandboxes:  map[string]*runtimeapi.PodSandboxStatus{},
		containers: map[string]*runtimeapi.ContainerStatus{},
		within:     map[string]string{},
		calls:      map[string]int{},
		fail:       map[string]error{},
	}
}

func labels(uid, container string) map[string]string {
	l := map[string]string{cri.LabelPodUID: uid, cri.LabelPodName: "name-" + uid, cri.LabelPodNamespace: "ns"}
	if container != "" {
		l[cri.LabelContainerName] = container
	}
	return l
}

func (s *stub) sandbox(uid string, attempt uint32) *runtimeapi.PodSandboxStatus {
	st := &runtimeapi.PodSandboxStatus{
		Id:          fmt.Sprintf("%s-S%d", uid, attempt),
		Metadata:    &runtimeapi.PodSandboxMetadata{Attempt: attempt},
		CreatedAt:   int64(attempt),
		Labels:      labels(uid, ""),
		Annotations: map[string]string{"attempt": fmt.Sprint(attempt)},
		Network:     &runtimeapi.PodSandboxNetworkStatus{Ip: "10.0.0.1"},
	}
	s.sandboxes[st.Id] = st
	return st
}

func (s *stub) container(uid, name string, attempt uint32) *runtimeapi.ContainerStatus {
	st := &runtimeapi.ContainerStatus{
		Id:          fmt.Sprintf("%s-%s%d", uid, name, attempt),
		Metadata:    &runtimeapi.ContainerMetadata{Name: name, Attempt: attempt},
		State:       runtimeapi.ContainerState_CONTAINER_RUNNING,
		Labels:      labels(uid, name),
		Annotations: map[string]string{cri.AnnotationHash: "abc", cri.AnnotationTerminationGracePeriod: "7"},
	}
	s.containers[st.Id] = st
	s.within[st.Id] = uid + "-S0"
	return st
}

// begin counts a call. Its result says whether the call has to fail.
func (s *stub) begin(call string) error {
	s.calls[call]++
	return s.fail[call]
}

func matches(labels, selector map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return true
}

func (s *stub) ListPodSandbox(_ context.Context, f *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.begin("ListPodSandbox"); err != nil {
		return nil, err
	}
	var out []*runtimeapi.PodSandbox
	for _, id := range slices.Sorted(maps.Keys(s.sandboxes)) {
		if st := s.sandboxes[id]; matches(st.Labels, f.GetLabelSelector()) {
			out = append(out, &runtimeapi.PodSandbox{
				Id:          st.Id,
				Metadata:    st.Metadata,
				State:       st.State,
				CreatedAt:   st.CreatedAt,
				Labels:      st.Labels,
				Annotations: st.Annotations,
			})
		}
	}
	return out, nil
}

func (s *stub) ListContainers(_ context.Context, f *runtimeapi.ContainerFilter) ([]*runtimeapi.Container, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.begin("ListContainers"); err != nil {
		return nil, err
	}
	var out []*runtimeapi.Container
	for _, id := range slices.Sorted(maps.Keys(s.containers)) {
		if st := s.containers[id]; matches(st.Labels, f.GetLabelSelector()) {
			out = append(out, &runtimeapi.Container{
				Id:           st.Id,
				Metadata:     st.Metadata,
				State:        st.State,
				Labels:       st.Labels,
				Annotations:  st.Annotations,
				PodSandboxId: s.within[st.Id],
			})
		}
	}
	if s.listed != nil {
		s.listed()
	}
	return out, nil
}

func (s *stub) PodSandboxStatus(_ context.Context, id string) (*runtimeapi.PodSandboxStatus, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.begin("PodSandboxStatus"); err != nil {
		return nil, err
	}
	if st := s.sandboxes[id]; st != nil {
		return proto.CloneOf(st), nil
	}
	return nil, errdefs.ErrNotFound
}

func (s *stub) ContainerStatus(_ context.Context, id string) (*runtimeapi.ContainerStatus, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.begin("ContainerStatus"); err != nil {
		return nil, err
	}
	if st := s.containers[id]; st != nil {
		return proto.CloneOf(st), nil
	}
	return nil, errdefs.ErrNotFound
}

// look observes a pod and lists the ids that were found.
func look(t *testing.T, o *Observer, uid types.UID) string {
	t.Helper()
	obs, err := o.Pod(t.Context(), uid)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, s := range obs.Sandboxes {
		out = append(out, s.Id)
	}
	for _, c := range obs.Containers {
		out = append(out, c.Id)
	}
	return strings.Join(out, " ")
}

func TestPodIsSortedAndApart(t *testing.T) {
	s := newStub()
	o := New(s)
	s.sandbox("u", 0).State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	s.sandbox("u", 1)
	s.container("u", "a", 2)
	s.container("u", "a", 10)
	s.sandbox("v", 0)
	s.container("v", "a", 0)
	if got := look(t, o, "u"); got != "u-S1 u-S0 u-a10 u-a2" {
		t.Errorf("observed %s", got)
	}
	obs, _ := o.Pod(t.Context(), "u")
	if c := obs.Containers[0]; c.Hash != "abc" || c.SandboxID != "u-S0" || c.Attempt() != 10 {
		t.Errorf("container %+v", c)
	}
	if got := look(t, o, "nobody"); got != "" {
		t.Errorf("observed of nobody: %s", got)
	}
}

func TestDetailsAreAskedOnce(t *testing.T) {
	s := newStub()
	o := New(s)
	sb, c := s.sandbox("u", 0), s.container("u", "a", 0)
	asked := func(want int) {
		t.Helper()
		before := s.calls["PodSandboxStatus"] + s.calls["ContainerStatus"]
		look(t, o, "u")
		if n := s.calls["PodSandboxStatus"] + s.calls["ContainerStatus"] - before; n != want {
			t.Errorf("%d details asked for, want %d", n, want)
		}
	}
	asked(2)
	asked(0)
	c.State, c.ExitCode = runtimeapi.ContainerState_CONTAINER_EXITED, 3
	asked(1)
	if obs, _ := o.Pod(t.Context(), "u"); obs.Containers[0].ExitCode != 3 {
		t.Error("the exit code is not known")
	}
	asked(0)
	c.State = runtimeapi.ContainerState_CONTAINER_UNKNOWN
	asked(1)
	asked(1) // anything may become known of a container that the runtime has lost track of
	c.State = runtimeapi.ContainerState_CONTAINER_RUNNING
	asked(1)

	sb.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	asked(1)
	asked(0)
	sb.State, sb.Network = runtimeapi.PodSandboxState_SANDBOX_READY, &runtimeapi.PodSandboxNetworkStatus{}
	asked(1)
	asked(1) // its address may still come
	sb.Network.Ip = "10.0.0.2"
	asked(1)
	asked(0)
	sb.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	look(t, o, "u")
	sb.State, sb.Network = runtimeapi.PodSandboxState_SANDBOX_READY, nil
	sb.Linux = &runtimeapi.LinuxPodSandboxStatus{
		Namespaces: &runtimeapi.Namespace{Options: &runtimeapi.NamespaceOption{Network: runtimeapi.NamespaceMode_NODE}},
	}
	asked(1)
	asked(0) // the host's network gives no address
}

// It may become known after a container's end that it was killed because memory ran out.
func TestLateOOMIsSeen(t *testing.T) {
	s := newStub()
	o := New(s)
	s.sandbox("u", 0)
	c := s.container("u", "a", 0)
	c.State, c.ExitCode, c.Reason, c.FinishedAt = runtimeapi.ContainerState_CONTAINER_EXITED, 137, "Error",
		time.Now().UnixNano()
	reason := func() string {
		t.Helper()
		obs, err := o.Pod(t.Context(), "u")
		if err != nil {
			t.Fatal(err)
		}
		return obs.Containers[0].Reason
	}
	if got := reason(); got != "Error" {
		t.Errorf("at first the reason is %q", got)
	}
	c.Reason = "OOMKilled"
	if got := reason(); got != "OOMKilled" {
		t.Errorf("later the reason is %q", got)
	}
	asked := s.calls["ContainerStatus"]
	if reason(); s.calls["ContainerStatus"] != asked {
		t.Error("it is asked for again although nothing can change")
	}
	old := s.container("u", "b", 0)
	old.State, old.ExitCode, old.Reason, old.FinishedAt = runtimeapi.ContainerState_CONTAINER_EXITED, 137, "Error",
		time.Now().Add(-time.Minute).UnixNano()
	reason()
	asked = s.calls["ContainerStatus"]
	if reason(); s.calls["ContainerStatus"] != asked {
		t.Error("a kill of long ago is asked for again")
	}
}

func TestWhatVanishesIsLeftOut(t *testing.T) {
	s := newStub()
	o := New(s)
	s.sandbox("u", 0)
	s.sandbox("u", 1)
	s.container("u", "a", 0)
	s.container("u", "b", 0)
	s.listed = func() {
		delete(s.sandboxes, "u-S1")
		delete(s.containers, "u-a0")
	}
	if got := look(t, o, "u"); got != "u-S0 u-b0" {
		t.Errorf("observed %s", got)
	}
}

func TestFailuresAreNotAnEmptyPod(t *testing.T) {
	for _, call := range []string{"ListPodSandbox", "ListContainers", "PodSandboxStatus", "ContainerStatus"} {
		s := newStub()
		o := New(s)
		s.sandbox("u", 0)
		s.container("u", "a", 0)
		s.fail[call] = errdefs.ErrUnavailable
		if _, err := o.Pod(t.Context(), "u"); !errors.Is(err, errdefs.ErrUnavailable) ||
			!strings.Contains(err.Error(), "pod u") {
			t.Errorf("%s: %v", call, err)
		}
		if _, err := o.Relist(t.Context()); strings.HasPrefix(call, "List") && !errors.Is(err, errdefs.ErrUnavailable) {
			t.Errorf("%s: %v", call, err)
		}
		delete(s.fail, call)
		if got := look(t, o, "u"); got != "u-S0 u-a0" {
			t.Errorf("%s: afterwards %s", call, got)
		}
	}
}

// changed relists and names the pods that changed.
func changed(t *testing.T, o *Observer) string {
	t.Helper()
	listed, err := o.Relist(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for uid, l := range listed {
		if l.Changed {
			out = append(out, string(uid)+":"+l.Name)
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func TestRelistFindsChanges(t *testing.T) {
	s := newStub()
	o := New(s)
	expect := func(what, want string) {
		t.Helper()
		if got := changed(t, o); got != want {
			t.Errorf("%s: changed %q, want %q", what, got, want)
		}
		for _, uid := range []types.UID{"u", "v"} {
			look(t, o, uid)
		}
	}
	expect("nothing there", "")
	sb := s.sandbox("u", 0)
	c := s.container("u", "a", 0)
	s.sandbox("v", 0)
	expect("never observed", "u:name-u v:name-v")
	expect("nothing happened", "")
	c.State = runtimeapi.ContainerState_CONTAINER_EXITED
	expect("container ended", "u:name-u")
	s.container("u", "a", 1)
	expect("container made", "u:name-u")
	delete(s.containers, c.Id)
	expect("container removed", "u:name-u")
	sb.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	expect("sandbox lost", "u:name-u")
	delete(s.sandboxes, "v-S0")
	expect("pod gone", "v:")
	expect("pod gone, observed", "")
	s.containers = map[string]*runtimeapi.ContainerStatus{}
	s.sandboxes = map[string]*runtimeapi.PodSandboxStatus{}
	if got := changed(t, o); got != "u:" {
		t.Errorf("everything gone: changed %q", got)
	}
	if got := changed(t, o); got != "u:" {
		t.Errorf("not observed since: changed %q", got)
	}
	o.Forget("u")
	expect("forgotten", "")
}

func TestRelistDescribesPods(t *testing.T) {
	s := newStub()
	o := New(s)
	s.sandbox("u", 1).State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	s.sandbox("u", 2)
	s.container("u", "a", 0)
	s.sandbox("v", 0).State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	s.container("w", "a", 0).Annotations[cri.AnnotationPorts] = "{malformed"
	delete(s.sandbox("", 0).Labels, cri.LabelPodUID)
	unmanaged := s.container("", "x", 0)
	unmanaged.Labels = nil
	got, err := o.Relist(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 3 {
		t.Errorf("%d pods", len(got))
	}
	if l := got["u"]; l.Namespace != "ns" || l.Name != "name-u" || l.Annotations["attempt"] != "2" ||
		l.GraceSeconds != 7 || !l.Ready {
		t.Errorf("u: %+v", l)
	}
	if l := got["v"]; l.GraceSeconds != v1.DefaultTerminationGracePeriodSeconds || l.Ready {
		t.Errorf("v: %+v", l)
	}
	if l := got["w"]; l.Name != "name-w" || l.GraceSeconds != 7 || l.Ready || l.Labels[cri.LabelContainerName] != "a" {
		t.Errorf("w: %+v", l)
	}
	if _, ok := o.Owner(unmanaged.Id); ok {
		t.Error("an unmanaged container has an owner")
	}
}

func TestOwner(t *testing.T) {
	s := newStub()
	o := New(s)
	s.sandbox("u", 0)
	c := s.container("u", "a", 0)
	if _, ok := o.Owner(c.Id); ok {
		t.Error("an owner before anything was observed")
	}
	look(t, o, "u")
	for _, id := range []string{"u-S0", c.Id} {
		if uid, ok := o.Owner(id); !ok || uid != "u" {
			t.Errorf("owner of %s: %s", id, uid)
		}
	}
	s.container("v", "b", 0)
	changed(t, o)
	if uid, _ := o.Owner("v-b0"); uid != "v" {
		t.Errorf("owner by relist: %q", uid)
	}
	delete(s.containers, c.Id)
	changed(t, o)
	if _, ok := o.Owner(c.Id); ok || len(o.containers) != 0 {
		t.Error("what is gone is still known")
	}
	look(t, o, "u")
	o.Forget("u")
	if _, ok := o.Owner("u-S0"); ok || len(o.sandboxes) != 0 {
		t.Error("what was forgotten is still known")
	}
	if _, ok := o.Owner("v-b0"); !ok {
		t.Error("another pod was forgotten, too")
	}
}

func TestConcurrentUse(t *testing.T) {
	s := newStub()
	o := New(s)
	for _, uid := range []string{"u", "v"} {
		s.sandbox(uid, 0)
		s.container(uid, "a", 0)
	}
	var wg sync.WaitGroup
	for _, uid := range []types.UID{"u", "v"} {
		wg.Go(func() {
			for range 100 {
				look(t, o, uid)
			}
		})
	}
	wg.Go(func() {
		for range 100 {
			changed(t, o)
			o.Owner("u-a0")
		}
	})
	wg.Wait()
}

func TestCounts(t *testing.T) {
	s := newStub()
	o := New(s)
	s.sandbox("u", 0).State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	s.sandbox("u", 1)
	s.container("u", "a", 0)
	s.container("u", "b", 0)
	s.container("u", "c", 0).State = runtimeapi.ContainerState_CONTAINER_EXITED
	look(t, o, "u")
	if ready, containers := o.Counts(); ready != 1 || fmt.Sprint(containers) != "map[exited:1 running:2]" {
		t.Errorf("%d ready, containers %v", ready, containers)
	}
	s.containers = nil
	changed(t, o)
	if _, containers := o.Counts(); len(containers) != 0 {
		t.Errorf("containers %v", containers)
	}
}
