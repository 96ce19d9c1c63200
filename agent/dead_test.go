package agent

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/cri/fake"
)

// three are a pod that has ended, one that runs, and one whose container crashes all the time.
const three = manifest(`{apiVersion: v1, kind: Pod, metadata: {name: done}, spec: {restartPolicy: Never, ` +
	`containers: [{name: done, image: done}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: web, image: web}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: crash}, spec: {containers: [{name: crash, image: crash}]}}
`)

func newThree() *fake.Runtime {
	rt := fake.New(fake.Config{WriteLogs: true})
	rt.Script("done", fake.Behavior{Exit: &fake.Exit{After: time.Second}})
	rt.Script("crash", fake.Behavior{Exit: &fake.Exit{After: time.Second, Code: 1}})
	return rt
}

// containersOf returns the states of the containers by name, the newest first.
func containersOf(t *testing.T, rt *fake.Runtime) map[string][]string {
	t.Helper()
	list, err := rt.ListContainers(context.Background(), nil)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(list, func(a, b *runtimeapi.Container) int { return cmp.Compare(b.CreatedAt, a.CreatedAt) })
	out := map[string][]string{}
	for _, c := range list {
		out[c.Metadata.Name] = append(out[c.Metadata.Name], strings.TrimPrefix(c.State.String(), "CONTAINER_"))
	}
	return out
}

func logsOf(t *testing.T, dir, container string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "logs", "*", container, "*.log"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func phases(a *Agent) map[string]v1.PodPhase {
	out := map[string]v1.PodPhase{}
	for _, p := range a.Pods() {
		out[p.Labels["x"]+strings.TrimSuffix(p.Name, "-node")] = p.Status.Phase
	}
	return out
}

func TestDeleteDeadContainers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, rt := t.TempDir(), newThree()
		a, end := live(t, dir, rt, three)
		time.Sleep(time.Minute)
		before := containersOf(t, rt)
		if len(before["done"]) != 1 || len(logsOf(t, dir, "done")) != 1 {
			t.Fatalf("containers %v", before)
		}
		remove := rt.Inject(fake.Fault{Method: "RemoveContainer", Err: errors.New("busy")})
		if err := a.engine.DeleteDeadContainers(t.Context()); err == nil || !strings.Contains(err.Error(), "busy") {
			t.Errorf("the runtime refuses, and the error is %v", err)
		}
		remove()
		for range 2 { // the second time there is nothing to do
			if err := a.engine.DeleteDeadContainers(t.Context()); err != nil {
				t.Error(err)
			}
		}
		after := containersOf(t, rt)
		if len(after["done"]) != 0 || len(after["web"]) != 1 || len(after["crash"]) != len(before["crash"]) {
			t.Errorf("containers %v, before %v", after, before)
		}
		if logs := logsOf(t, dir, "done"); len(logs) != 0 {
			t.Errorf("logs are left: %v", logs)
		}
		if links, _ := os.ReadDir(filepath.Join(dir, "links")); len(links) != len(after["web"])+len(after["crash"]) {
			t.Errorf("links %v", links)
		}
		sandboxes, err := rt.ListPodSandbox(t.Context(), nil)
		if err != nil || len(sandboxes) != 2 {
			t.Errorf("%d sandboxes, %v", len(sandboxes), err)
		}
		end()
		a, end = live(t, dir, rt, three)
		defer func() { end() }()
		time.Sleep(time.Minute)
		if got := phases(a); got["done"] != v1.PodSucceeded || got["web"] != v1.PodRunning {
			t.Errorf("phases %v", got)
		}
		if got := containersOf(t, rt); len(got["done"]) != 0 {
			t.Errorf("the ended pod ran again: %v", got)
		}
	})
}

func TestLimitsOfDeadContainers(t *testing.T) {
	for name, c := range map[string]struct {
		limits             configs.ContainerGCOptions
		crash, done, files int // how many containers are dead, and how many logs the one that crashes has
	}{
		"the defaults":     {configs.ContainerGCOptions{MaxPerContainer: 1, MaxTotal: -1}, 1, 1, 1},
		"three each":       {configs.ContainerGCOptions{MaxPerContainer: 3, MaxTotal: -1}, 3, 1, 3},
		"two on the node":  {configs.ContainerGCOptions{MaxPerContainer: 3, MaxTotal: 2}, 1, 1, 1},
		"one on the node":  {configs.ContainerGCOptions{MaxPerContainer: 3, MaxTotal: 1}, 1, 0, 1},
		"none on the node": {configs.ContainerGCOptions{MaxPerContainer: 3, MaxTotal: 0}, 1, 0, 1},
		"old ones":         {configs.ContainerGCOptions{MaxPerContainer: 1, MaxTotal: 0, MinAge: 24 * time.Hour}, 7, 1, 7},
	} {
		synctest.Test(t, func(t *testing.T) {
			dir, rt := t.TempDir(), newThree()
			a, end := liveWith(t, dir, rt, three, Deps{}, func(cfg *configs.Config) { cfg.ContainerGC = c.limits })
			defer end()
			time.Sleep(10*time.Minute - 10*time.Second) // the crashing container waits
			got := containersOf(t, rt)
			if len(got["crash"]) != c.crash || len(got["done"]) != c.done || len(got["web"]) != 1 {
				t.Errorf("%s: containers %v", name, got)
			}
			if logs := logsOf(t, dir, "crash"); len(logs) != c.files {
				t.Errorf("%s: logs %v", name, logs)
			}
			if got := phases(a); got["done"] != v1.PodSucceeded || got["crash"] != v1.PodRunning {
				t.Errorf("%s: phases %v", name, got)
			}
		})
	}
}

// A runtime that does not answer the collector is reported, as a kubelet does it.
func TestContainerGCFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newThree()
		a, end := live(t, t.TempDir(), rt, three)
		defer end()
		time.Sleep(2 * time.Minute)
		rt.Inject(fake.Fault{Method: "ListPodSandbox", Err: errors.New("down")})
		time.Sleep(2 * time.Minute)
		if !slices.ContainsFunc(a.Events(), func(e v1.Event) bool {
			return e.Reason == "ContainerGCFailed" && strings.Contains(e.Message, "down") && e.InvolvedObject.Kind == "Node"
		}) {
			t.Errorf("events %v", a.Events())
		}
	})
}

// The containers of one pod that has ended are removed, and those of no other pod.
func TestDeleteContainersOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, rt := t.TempDir(), newThree()
		a, end := live(t, dir, rt, three)
		defer end()
		time.Sleep(time.Minute)
		before := containersOf(t, rt)
		for _, pod := range a.Pods() {
			if err := a.engine.DeleteContainersOf(t.Context(), pod.UID); err != nil {
				t.Error(err)
			}
		}
		if err := a.engine.DeleteContainersOf(t.Context(), "nobody"); err != nil {
			t.Error(err)
		}
		after := containersOf(t, rt)
		if len(before["done"]) != 1 || len(after["done"]) != 0 || len(after["web"]) != 1 ||
			len(after["crash"]) != len(before["crash"]) {
			t.Errorf("containers %v, before %v", after, before)
		}
		if logs := logsOf(t, dir, "done"); len(logs) != 0 {
			t.Errorf("logs are left: %v", logs)
		}
	})
}
