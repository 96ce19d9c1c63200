package scenario

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/tools/txtar"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	"github.com/berthd/berth/cri/fake"
)

// podLife is a pod's whole life, which the tests crash everywhere. It has acts, each with the state
// that it leads to.
type podLife struct {
	name string
	// bound says that agents are connected with an API server.
	bound bool
	// behave is what containers do, by name and attempt. All attempts after the last do the same.
	behave map[string][]fake.Behavior
	acts   []act
}

// script returns the behavior of a container of the pod life.
func (s podLife) script(_ *runtimeapi.PodSandboxConfig, c *runtimeapi.ContainerConfig) (fake.Behavior, bool) {
	list := s.behave[c.GetMetadata().GetName()]
	if len(list) == 0 {
		return fake.Behavior{}, false
	}
	return list[min(int(c.GetMetadata().GetAttempt()), len(list)-1)], true
}

// act is something that happens, and its expected result.
type act struct {
	do   func(m *machine) error
	goal func(m *machine) error
}

// goalLimit is how long it may take to reach the goal of an act, with crashes: back-offs, graces
// and a periodic relist together.
const goalLimit = 5 * time.Minute

func podLives(t *testing.T) []podLife {
	t.Helper()
	manifest := manifestsFor(t)
	exits := func(code int32, after time.Duration) fake.Behavior {
		return fake.Behavior{Exit: &fake.Exit{Code: code, After: after}}
	}
	gone := func(names ...string) act {
		return act{
			do: func(m *machine) error {
				for _, n := range names {
					m.manifests.remove(n)
				}
				return nil
			},
			goal: func(m *machine) error {
				if left := m.leftovers(); len(left) > 0 {
					return fmt.Errorf("left over: %q", left)
				}
				return nil
			},
		}
	}
	slow := fake.Behavior{
		Exec: func([]string) fake.ExecResult { return fake.ExecResult{After: time.Second} },
		Term: fake.Term{After: time.Second},
	}
	lives := []podLife{
		{name: "simple", acts: []act{
			{manifest("simple"), ready("simple", 0)},
			{func(m *machine) error { return m.runtime.Exit("app", 1) }, ready("simple", 1)},
			gone("simple"),
		}},
		{
			name:   "full",
			behave: map[string][]fake.Behavior{"setup": {exits(0, time.Second)}, "web": {slow}, "log": {slow}},
			acts: []act{
				{manifest("full"), ready("full", 0)},
				gone("full"),
			},
		},
		{name: "sidecar", behave: map[string][]fake.Behavior{"mesh": {slow}, "app": {slow}}, acts: []act{
			{manifest("sidecar"), ready("sidecar", 0)},
			gone("sidecar"),
		}},
		{
			name:   "job",
			behave: map[string][]fake.Behavior{"good": {exits(0, 2*time.Second)}, "bad": {exits(3, time.Second)}},
			acts: []act{
				{manifest("job"), phase("job", v1.PodFailed)},
				{restart, phase("job", v1.PodFailed)},
				gone("job"),
			},
		},
		{
			name: "retry", behave: map[string][]fake.Behavior{"work": {exits(1, time.Second), exits(0, time.Second)}},
			acts: []act{
				{manifest("retry"), phase("retry", v1.PodSucceeded)},
				gone("retry"),
			},
		},
		{name: "edit", behave: map[string][]fake.Behavior{"first": {slow}}, acts: []act{
			{manifest("edit1", "edit"), ready("edit", 0)},
			{manifest("edit2", "edit"), all(ready("edit", 0), runs("second"))},
			gone("edit"),
		}},
		{name: "same-uid", behave: map[string][]fake.Behavior{"first": {slow}}, acts: []act{
			{manifest("uid1", "uid"), ready("uid", 0)},
			{manifest("uid2", "uid"), all(ready("uid", 0), runs("second"))},
			gone("uid"),
		}},
		{name: "lost-sandbox", behave: map[string][]fake.Behavior{"setup": {exits(0, 0)}}, acts: []act{
			{manifest("full"), ready("full", 0)},
			{func(m *machine) error { return m.runtime.LoseSandbox(full("full")) }, ready("full", 1)},
			gone("full"),
		}},
		{name: "operator", behave: map[string][]fake.Behavior{
			"setup": {exits(0, time.Second)}, "web": {slow}, "log": {slow},
		}, acts: []act{
			{manifest("full"), ready("full", 0)},
			{stopPod("full"), all(reason("full", "Stopped"), stops("web"), stops("log"))},
			{restart, all(reason("full", "Stopped"), stops("web"), stops("log"))},
			gone("full"),
		}},
		{
			name: "restart-all", acts: []act{{manifest("restart-all"), ready("restart-all", 1)}, gone("restart-all")},
			behave: map[string][]fake.Behavior{
				"setup": {exits(0, time.Second)}, "source": {exits(42, 2*time.Second), {}},
				"app": {{Term: fake.Term{Ignore: true}}},
			},
		},
		{name: "bound", bound: true, behave: map[string][]fake.Behavior{"app": {slow}}, acts: []act{
			{bind("bound"), all(ready("bound", 0), readyInAPI("bound", 0))},
			{func(m *machine) error { return m.runtime.Exit("app", 1) }, all(ready("bound", 1), readyInAPI("bound", 1))},
			deleted("bound"),
		}},
		{name: "deadline", behave: map[string][]fake.Behavior{"app": {slow}, "mesh": {slow}}, acts: []act{
			{manifest("deadline"), all(phase("deadline", v1.PodFailed), reason("deadline", "DeadlineExceeded"))},
			gone("deadline"),
		}},
		{name: "rejected", acts: []act{
			{manifest("port1"), ready("port1", 0)},
			{manifest("port2"), all(phase("port2", v1.PodFailed), ready("port1", 0))},
			gone("port1", "port2"),
		}},
		{name: "delete-early", behave: map[string][]fake.Behavior{"setup": {exits(0, 10*time.Second)}}, acts: []act{
			{manifest("full"), func(m *machine) error { return runs("setup")(m) }},
			gone("full"),
		}},
		{name: "resize", acts: []act{
			{manifest("resize1", "resize"), all(ready("resize", 0), sized("resize", "307/60000/192", "64Mi"))},
			{manifest("resize2", "resize"), all(ready("resize", 0), sized("resize", "409/70000/96", "32Mi"))},
			{restart, all(ready("resize", 0), sized("resize", "409/70000/96", "32Mi"))},
			{manifest("resize1", "resize"), all(ready("resize", 0), sized("resize", "307/60000/192", "64Mi"))},
			gone("resize"),
		}},
		{name: "resize-restart", behave: map[string][]fake.Behavior{"first": {slow}}, acts: []act{
			{manifest("restart1", "restart"), all(ready("restart", 0), sized("restart", "102/20000/64", "64Mi"))},
			{manifest("restart2", "restart"), all(ready("restart", 1), sized("restart", "102/30000/128", "128Mi"))},
			gone("restart"),
		}},
	}
	if os.Geteuid() == 0 { // mounting needs root
		// two file systems in memory, and two subPaths
		lives = append(lives, podLife{name: "mounted", acts: []act{
			{manifest("mounted"), all(ready("mounted", 0), mounted(4))},
			{func(m *machine) error { return m.runtime.Exit("app", 1) }, all(ready("mounted", 1), mounted(4))},
			gone("mounted"),
		}})
	}
	return lives
}

// boundPod is the pod with a manifest's name that the API server has: bound to the node, with a
// ConfigMap volume, and with a Secret in its environment.
func boundPod(name string) *v1.Pod {
	pod := apiPod("u1")
	pod.Name = name + "-" + nodeName
	pod.Spec.TerminationGracePeriodSeconds = ptr.To(int64(20))
	return pod
}

// bind makes the API server's pod, with its objects.
func bind(name string) func(*machine) error {
	return func(m *machine) error {
		m.runtime.SetImage(fake.Image{Name: "img:1"})
		m.api.Put(core("configmaps"), &v1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "config"}, Data: map[string]string{"k": "1"},
		})
		m.api.Put(core("secrets"), &v1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "login"}, Data: map[string][]byte{"pass": []byte("x")},
		})
		m.api.Put(core("pods"), boundPod(name))
		return nil
	}
}

// readyInAPI checks that the API server knows the pod as ready, with its containers restarted that
// often.
func readyInAPI(name string, restarts int32) func(*machine) error {
	return func(m *machine) error {
		p := m.api.Pod("ns", name+"-"+nodeName)
		if p == nil || !isReady(p) || p.Status.ContainerStatuses[0].RestartCount != restarts {
			return fmt.Errorf("the API server has the pod as %+v", p)
		}
		return nil
	}
}

// deleted deletes the API server's pod. The agent confirms it when nothing is left.
func deleted(name string) act {
	return act{
		do: func(m *machine) error {
			m.api.Delete(core("pods"), "ns", name+"-"+nodeName, nil)
			return nil
		},
		goal: func(m *machine) error {
			left := m.leftovers()
			if m.api.Pod("ns", name+"-"+nodeName) != nil {
				left = append(left, "the pod in the API server")
			}
			if len(left) > 0 {
				return fmt.Errorf("left over: %q", left)
			}
			return nil
		},
	}
}

// mounted checks how much is mounted for the pods.
func mounted(n int) func(*machine) error {
	return func(m *machine) error {
		if at := m.mounts(); len(at) != n {
			return fmt.Errorf("%d mounts, want %d: %q", len(at), n, at)
		}
		return nil
	}
}

// sized checks that the pod's cgroup has these limits, that its first container has this much
// memory, and that no resize is left.
func sized(name, limits, memory string) func(*machine) error {
	return func(m *machine) error {
		p := m.pod(name)
		if p == nil || len(p.Status.ContainerStatuses) == 0 {
			return errors.New("there is no pod " + name)
		}
		for _, c := range p.Status.Conditions {
			if c.Type == v1.PodResizePending || c.Type == v1.PodResizeInProgress {
				return fmt.Errorf("it has the condition %s: %s %s", c.Type, c.Reason, c.Message)
			}
		}
		m.cgroups.mu.Lock()
		have := amounts(m.cgroups.limits[p.UID])
		m.cgroups.mu.Unlock()
		if have != limits {
			return fmt.Errorf("its cgroup is held to %s, want %s", have, limits)
		}
		first := p.Spec.Containers[0].Name
		want := resource.MustParse(memory)
		linux := m.runtime.Container(p.Name + "/" + first).GetResources().GetLinux()
		if linux.GetMemoryLimitInBytes() != want.Value() {
			return fmt.Errorf("container %s has %d bytes, want %s", first, linux.GetMemoryLimitInBytes(), memory)
		}
		for _, c := range p.Status.ContainerStatuses {
			if c.Name == first && (c.Resources == nil || c.Resources.Limits.Memory().Cmp(want) != 0) {
				return fmt.Errorf("container %s is told to have %+v, want %s", first, c.Resources, memory)
			}
		}
		return nil
	}
}

// manifestsFor reads the manifests of the pod lives. It returns a function that puts one of them
// into the manifest directory, under its own name or another.
func manifestsFor(t *testing.T) func(file string, as ...string) func(*machine) error {
	t.Helper()
	data, err := os.ReadFile("testdata/crash/manifests")
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, f := range txtar.Parse(data).Files {
		files[f.Name] = f.Data
	}
	return func(file string, as ...string) func(*machine) error {
		return func(m *machine) error {
			return m.manifests.put(append(as, file)[0], files[file])
		}
	}
}

// restart ends the agent in the normal way and starts another.
func restart(m *machine) error {
	if m.fell() {
		m.bury()
	}
	m.stop()
	m.start()
	return nil
}

// ready checks that the pod is ready and each app container was restarted that often.
func ready(name string, restarts int32) func(*machine) error {
	return func(m *machine) error {
		p := m.pod(name)
		if p == nil || p.DeletionTimestamp != nil || !isReady(p) {
			return fmt.Errorf("pod %s is not ready", name)
		}
		for _, c := range p.Status.ContainerStatuses {
			if c.RestartCount != restarts {
				return fmt.Errorf("container %s has %d restarts", c.Name, c.RestartCount)
			}
		}
		return nil
	}
}

func phase(name string, want v1.PodPhase) func(*machine) error {
	return func(m *machine) error {
		if p := m.pod(name); p == nil || p.Status.Phase != want {
			return fmt.Errorf("pod %s is not %s", name, want)
		}
		return nil
	}
}

func reason(name, want string) func(*machine) error {
	return func(m *machine) error {
		if p := m.pod(name); p == nil || p.Status.Reason != want {
			return fmt.Errorf("pod %s has not the reason %s", name, want)
		}
		return nil
	}
}

// runs checks that a container runs.
func runs(container string) func(*machine) error {
	return func(m *machine) error {
		if c := m.runtime.Container(container); c == nil || c.StartedAt == 0 || c.FinishedAt != 0 {
			return errors.New("container " + container + " does not run")
		}
		return nil
	}
}

func all(goals ...func(*machine) error) func(*machine) error {
	return func(m *machine) error {
		var errs []error
		for _, g := range goals {
			errs = append(errs, g(m))
		}
		return errors.Join(errs...)
	}
}
