package joint_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/cri/fake"
	"github.com/berthd/berth/cri/joint"
	"github.com/berthd/berth/cri/suite"
)

const image, other = "docker.io/library/busybox:latest", "docker.io/library/alpine:3"

func newFake() *fake.Runtime {
	return fake.New(fake.Config{
		Images: []fake.Image{{Name: image, Present: true}, {Name: other}}, StrictImages: true, WriteLogs: true,
	})
}

// node is a joint runtime of two fakes.
type node struct {
	*joint.Runtime
	first, former   *fake.Runtime
	closed, emptied atomic.Int32
	observed        atomic.Int32 // calls of the first
}

// newNode returns a node whose former runtime is nil if there is none.
func newNode(t *testing.T, former *fake.Runtime) *node {
	t.Helper()
	n := &node{first: newFake(), former: former}
	n.Runtime = joint.New(joint.Config{
		Choose: func(context.Context) (joint.Members, error) {
			members := joint.Members{First: &joint.Member{
				Runtime: n.first, Name: "the first", Close: func() {},
				Observe: func(string, time.Duration, error) { n.observed.Add(1) },
			}}
			if former != nil {
				members.Former = &joint.Member{Runtime: former, Name: "the former", Close: func() { n.closed.Add(1) }}
			}
			return members, nil
		},
		Emptied: func() error { n.emptied.Add(1); return nil },
	})
	t.Cleanup(n.Close)
	return n
}

// sandboxOf is the config of a pod's sandbox.
func sandboxOf(uid string) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: uid, Namespace: "default", Uid: uid},
	}
}

// start starts a container in a sandbox.
func start(t *testing.T, rt cri.Runtime, sandbox, uid, name string) string {
	t.Helper()
	id, err := rt.CreateContainer(t.Context(), sandbox, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name}, Image: &runtimeapi.ImageSpec{Image: image},
		Command: []string{"sleep", "1000"},
	}, sandboxOf(uid))
	if err == nil {
		err = rt.StartContainer(t.Context(), id)
	}
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// run runs a pod of one container.
func run(t *testing.T, rt cri.Runtime, uid string) (sandbox, container string) {
	t.Helper()
	sandbox, err := rt.RunPodSandbox(t.Context(), sandboxOf(uid), "")
	if err != nil {
		t.Fatal(err)
	}
	return sandbox, start(t, rt, sandbox, uid, "main")
}

// lists returns how many sandboxes and containers a runtime lists.
func lists(t *testing.T, rt cri.Runtime) [2]int {
	t.Helper()
	sandboxes, err := rt.ListPodSandbox(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	containers, err := rt.ListContainers(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return [2]int{len(sandboxes), len(containers)}
}

// The joint runtime keeps the contract, alone and beside a former runtime that has a pod.
func TestContract(t *testing.T) {
	for name, former := range map[string]func(*testing.T) *fake.Runtime{
		"alone": func(*testing.T) *fake.Runtime { return nil },
		"beside another": func(t *testing.T) *fake.Runtime {
			former := newFake()
			run(t, former, "kept")
			return former
		},
	} {
		t.Run(name, func(t *testing.T) {
			suite.Run(t, func(t *testing.T) suite.Target {
				return suite.Target{Runtime: newNode(t, former(t)), Image: image, PullImage: other}
			})
		})
	}
}

// What the former runtime has made goes on there, what is new is made by the first, and the former
// is left when its last sandbox is gone.
func TestFormer(t *testing.T) {
	former := newFake()
	oldSandbox, oldMain := run(t, former, "old")
	n := newNode(t, former)
	newSandbox, newMain := run(t, n, "new")
	if got := [][2]int{lists(t, n), lists(t, n.first), lists(t, former)}; got[0] != [2]int{2, 2} ||
		got[1] != [2]int{1, 1} || got[2] != [2]int{1, 1} {
		t.Errorf("both, the first and the former list %v", got)
	}
	for id, at := range map[string]*fake.Runtime{oldMain: former, newMain: n.first} {
		if _, err := n.ExecSync(t.Context(), id, []string{"true"}, time.Second); err != nil {
			t.Error(err)
		}
		if calls := at.Calls("ExecSync"); len(calls) != 1 {
			t.Errorf("the container's runtime got %v", calls)
		}
	}
	if err := n.StopContainer(t.Context(), oldMain, 0); err != nil {
		t.Fatal(err)
	}
	again := start(t, n, oldSandbox, "old", "again")
	if status, err := n.ContainerStatus(t.Context(), again); err != nil || former.Container("again") == nil {
		t.Errorf("a container of the old sandbox: %v, %v", status, err)
	}
	for _, id := range []string{oldSandbox, newSandbox} {
		if err := n.StopPodSandbox(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{oldMain, again} {
		if err := n.RemoveContainer(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	if n.closed.Load()+n.emptied.Load() != 0 {
		t.Errorf("the former was closed %d times before its end", n.closed.Load())
	}
	if err := n.RemovePodSandbox(t.Context(), oldSandbox); err != nil {
		t.Fatal(err)
	}
	if got := lists(t, n); got != [2]int{1, 1} || n.closed.Load() != 1 || n.emptied.Load() != 1 {
		t.Errorf("in the end there are %v, and the former was closed %d and emptied %d times", got, n.closed.Load(),
			n.emptied.Load())
	}
	former.ResetCalls()
	if got := lists(t, n); got != [2]int{1, 1} || len(former.Calls()) > 0 {
		t.Errorf("later there are %v, and the former got %v", got, former.Calls())
	}
	if n.observed.Load() == 0 {
		t.Error("no call of the first was observed")
	}
}

// A pod of the former runtime has its images there, until its sandbox is made anew.
func TestImagesOfAPod(t *testing.T) {
	former := newFake()
	run(t, former, "old")
	n := newNode(t, former)
	pull := func() {
		t.Helper()
		if _, err := n.PullImage(t.Context(), &runtimeapi.ImageSpec{Image: other}, nil, sandboxOf("old")); err != nil {
			t.Fatal(err)
		}
	}
	status := func(uid string) bool {
		t.Helper()
		found, err := n.ImageStatus(t.Context(),
			&runtimeapi.ImageSpec{Image: other, Annotations: map[string]string{cri.LabelPodUID: uid}})
		if err != nil {
			t.Fatal(err)
		}
		return found != nil
	}
	pull()
	if !status("old") || status("new") {
		t.Errorf("the old pod has its image: %t, a new one: %t", status("old"), status("new"))
	}
	run(t, n, "old") // a sandbox in the first
	if status("old") {
		t.Error("the pod has a new sandbox, and its image is looked for in the former runtime")
	}
	pull()
	if !status("old") || !status("new") {
		t.Error("the first runtime did not pull")
	}
}

// A runtime is chosen again until the choice succeeds, and a former runtime that does not answer is
// not one without pods.
func TestChoiceIsMadeAgain(t *testing.T) {
	former := newFake()
	run(t, former, "old")
	former.Stop()
	tries := 0
	n := joint.New(joint.Config{
		Choose: func(context.Context) (joint.Members, error) {
			if tries++; tries == 1 {
				return joint.Members{}, errdefs.ErrUnavailable
			}
			return joint.Members{
				First:  &joint.Member{Runtime: newFake(), Name: "the first", Close: func() {}},
				Former: &joint.Member{Runtime: former, Name: "the former", Close: func() {}},
			}, nil
		},
		Emptied: func() error { return errors.New("it is not empty") },
	})
	t.Cleanup(n.Close)
	for range 2 {
		if list, err := n.ListPodSandbox(t.Context(), nil); !errdefs.IsUnavailable(err) {
			t.Errorf("the list is %v, %v", list, err)
		}
	}
	former.Start()
	if got := lists(t, n); got != [2]int{1, 1} || tries != 3 {
		t.Errorf("after %d tries there are %v", tries, got)
	}
	n.Close()
	if _, err := n.Version(t.Context()); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end: %v", err)
	}
}

// The stream has the events of both runtimes, and breaks with either.
func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		former := newFake()
		_, container := run(t, former, "old")
		n := newNode(t, former)
		events, err := n.Events(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		sandbox, err := n.RunPodSandbox(t.Context(), sandboxOf("new"), "")
		if err != nil {
			t.Fatal(err)
		}
		if err := former.StopContainer(t.Context(), container, 0); err != nil {
			t.Fatal(err)
		}
		seen := map[string]bool{}
		for !seen[sandbox] || !seen[container] {
			event, open := <-events
			if !open {
				t.Fatalf("the stream broke after %v", seen)
			}
			seen[event.ID] = true
		}
		former.BreakEvents()
		for range events { // until the end
		}
		n.Close()
	})
}
