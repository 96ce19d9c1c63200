//go:build integration

package integration

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/test/env"
)

const (
	// chaosPods is how many pods there are at the start. chaosCalm is how many of them nobody
	// changes.
	chaosPods, chaosCalm = 30, 15
	agentKills           = 20
	runtimeKills         = 5
	// seedVariable repeats a run: its value is the seed that the run printed.
	seedVariable = "BERTH_TEST_SEED"
	// adoptionLimit is many times what an adoption takes on an idle machine. The test's log has the
	// measured time.
	adoptionLimit = 10 * time.Second
)

// chaos is a node whose pods change all the time. It knows the current manifests, and the pods that
// nobody changes.
type chaos struct {
	e    *env.Env
	a    *env.Agent
	rand *rand.Rand
	// trace is a folder of the host. Every container writes to it when it starts and when it ends.
	trace string
	// want has the version of each pod whose manifest is there.
	want map[string]int
	calm map[string]string
	next int
	// floor has the highest restart count seen so far, by the pod's UID.
	floor map[string]int32
}

// TestChaos kills the agent at random moments while pods come, change and go, and then kills
// containerd.
func TestChaos(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv(seedVariable); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%s=%d repeats this run's choices", seedVariable, seed)
	e := env.Containerd(t, env.Options{})
	c := &chaos{
		e: e, a: e.StartAgent(t, env.AgentOptions{}), rand: rand.New(rand.NewPCG(seed, 0)), trace: t.TempDir(),
		want: map[string]int{}, calm: map[string]string{}, floor: map[string]int32{},
	}
	if err := os.Chmod(c.trace, 0o777); err != nil {
		t.Fatal(err)
	}
	c.a.WaitUp(t)
	c.a.WriteManifest(t, "objects.yaml",
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: chaos}\ndata: {conf: keep calm}\n")
	for i := range chaosPods {
		name := fmt.Sprintf("churn-%d", i)
		if i < chaosCalm {
			name = fmt.Sprintf("calm-%d", i)
		}
		c.write(t, name, 1)
	}
	c.next = chaosPods
	c.settle(t)
	for _, p := range c.pods(t) {
		if strings.HasPrefix(p.Name, "calm-") {
			c.calm[p.Name] = running(&p)
		}
	}
	if len(c.calm) != chaosCalm {
		t.Fatalf("%d calm pods", len(c.calm))
	}
	t.Run("agent", c.killAgent)
	t.Run("adoption", c.adoption)
	t.Run("containerd", c.killRuntime)
	t.Run("volumes", c.volumes)
	for name := range c.want {
		c.a.RemoveManifest(t, name+".yaml")
		delete(c.want, name)
	}
	env.Eventually(t, "all pods to be gone", func() error {
		if pods := c.pods(t); len(pods) > 0 {
			return errors.New(env.Describe(pods))
		}
		return nil
	})
	nothingLeft(t, e.Leaks)
	c.traces(t)
}

// write writes a version of a pod's manifest. Its container writes the version and UID of its pod
// when it starts and when it ends. Every third pod has a probe. The container waits a moment before
// it writes: if containerd is cut off during a start because its caller is killed, the container
// runs until containerd ends it, and this does not count as an instance.
func (c *chaos) write(t *testing.T, name string, version int) {
	t.Helper()
	probe := ""
	if n, err := strconv.Atoi(name[strings.Index(name, "-")+1:]); err == nil && n%3 == 0 {
		probe = "    readinessProbe: {exec: {command: [grep, -q, calm, /files/conf, /one]}, timeoutSeconds: 10}"
	}
	put(t, c.a, name, fmt.Sprintf(`
terminationGracePeriodSeconds: 10
containers:
  - name: main
    image: berth.local/busybox:v1
    command:
      - sh
      - -c
      - |
        trap 'grep -qx "start %[1]d $UID_" /trace/%[2]s && echo "end %[1]d $UID_" >> /trace/%[2]s; exit 0' TERM
        sleep 0.5 & wait $!
        echo "start %[1]d $UID_" >> /trace/%[2]s
        echo "$UID_" > /shared/id
        while true; do sleep 100 & wait $!; done
    env: [{name: UID_, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}]
%[4]s
    volumeMounts:
      - {name: trace, mountPath: /trace}
      - {name: memory, mountPath: /memory}
      - {name: memory, mountPath: /shared, subPath: below}
      - {name: files, mountPath: /files}
      - {name: files, mountPath: /one, subPath: conf}
volumes:
  - {name: trace, hostPath: {path: %[3]s}}
  - {name: memory, emptyDir: {medium: Memory}}
  - {name: files, configMap: {name: chaos}}
`, version, name, c.trace, probe))
	c.want[name] = version
}

// churn makes a random change to the manifests.
func (c *chaos) churn(t *testing.T) {
	t.Helper()
	var names []string
	for name := range c.want {
		if strings.HasPrefix(name, "churn-") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	name := names[c.rand.IntN(len(names))]
	switch c.rand.IntN(3) {
	case 0:
		c.write(t, name, c.want[name]+1)
	case 1:
		if len(names) > chaosPods-chaosCalm-5 {
			c.a.RemoveManifest(t, name+".yaml")
			delete(c.want, name)
		}
	case 2:
		if len(names) < chaosPods-chaosCalm+5 {
			c.next++
			c.write(t, fmt.Sprintf("churn-%d", c.next), 1)
		}
	}
}

func (c *chaos) killAgent(t *testing.T) {
	for range agentKills {
		for range 1 + c.rand.IntN(3) {
			c.churn(t)
		}
		time.Sleep(time.Duration(c.rand.IntN(700)) * time.Millisecond) // the random moment
		c.a.Kill9()
		c.calmRuns(t)
		if err := c.a.Start(); err != nil {
			t.Fatal(err)
		}
	}
	c.settle(t)
	c.check(t)
	env.Eventually(t, "one shim for each pod", func() error {
		if n := len(c.e.ShimPIDs()); n != len(c.want) {
			return fmt.Errorf("%d shims for %d pods", n, len(c.want))
		}
		return nil
	})
}

// adoption measures how long the agent takes from its start until it shows every pod as ready
// again, while it has nothing else to do.
func (c *chaos) adoption(t *testing.T) {
	for len(c.want) < chaosPods {
		c.next++
		c.write(t, fmt.Sprintf("churn-%d", c.next), 1)
	}
	c.settle(t)
	before := c.all(t)
	var took []time.Duration
	// a busy machine may be slow for a while
	for len(took) < 3 || slices.Min(took) > adoptionLimit && len(took) < 12 {
		c.a.Kill9()
		begin := time.Now()
		if err := c.a.Start(); err != nil {
			t.Fatal(err)
		}
		c.settle(t)
		took = append(took, time.Since(begin))
	}
	t.Logf("adopting %d pods took %v", len(c.want), took)
	if slices.Min(took) > adoptionLimit {
		t.Errorf("adopting %d pods took %v", len(c.want), took)
	}
	if after := c.all(t); !slices.Equal(before, after) {
		t.Errorf("the restarts changed the pods from\n%s\nto\n%s", strings.Join(before, "\n"),
			strings.Join(after, "\n"))
	}
}

func (c *chaos) killRuntime(t *testing.T) {
	for range runtimeKills {
		for range 1 + c.rand.IntN(3) {
			c.churn(t)
		}
		time.Sleep(time.Duration(c.rand.IntN(700)) * time.Millisecond) // the random moment
		if err := c.e.Kill9(); err != nil {
			t.Fatal(err)
		}
		if err := c.e.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.forget(t)
		c.calmRuns(t)
	}
	c.settle(t)
	c.check(t)
}

// volumes checks that the calm pods have the same volumes as at the start: what they wrote is
// there, also through a subPath, and what they were given.
func (c *chaos) volumes(t *testing.T) {
	for _, p := range c.pods(t) {
		if c.calm[p.Name] != "" {
			seen(t, c.a, p.Name, "main", "cat /memory/below/id /shared/id", string(p.UID)+"\n"+string(p.UID),
				"cat /files/conf /one", "keep calmkeep calm", "grep -c ' /memory tmpfs ' /proc/mounts", "1")
		}
	}
}

func (c *chaos) pods(t *testing.T) []corev1.Pod {
	t.Helper()
	pods, err := c.a.Pods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return pods
}

func (c *chaos) all(t *testing.T) []string {
	t.Helper()
	var out []string
	for _, p := range c.pods(t) {
		out = append(out, running(&p))
	}
	slices.Sort(out)
	return out
}

// settle waits until exactly the wanted pods exist, in their latest version, and are ready.
func (c *chaos) settle(t *testing.T) {
	t.Helper()
	c.a.WaitPods(t, "the pods that the manifests want", func(pods []corev1.Pod) bool {
		c.falls(t, pods)
		if len(pods) != len(c.want) {
			return false
		}
		for name, version := range c.want {
			p := env.Find(pods, name)
			if p == nil || !env.Ready(p) ||
				!strings.Contains(p.Spec.Containers[0].Command[2], fmt.Sprintf("\"start %d ", version)) {
				return false
			}
		}
		return true
	})
}

// falls checks that restart counts never fall.
func (c *chaos) falls(t *testing.T, pods []corev1.Pod) {
	t.Helper()
	for i := range pods {
		uid := string(pods[i].UID)
		n := statusOf(&pods[i], "main").RestartCount
		if n < c.floor[uid] {
			t.Errorf("the restart count of %s fell from %d to %d", pods[i].Name, c.floor[uid], n)
		}
		c.floor[uid] = n
	}
}

// calmRuns asks the runtime and checks that the calm pods' containers run on, and that no pod has
// two.
func (c *chaos) calmRuns(t *testing.T) {
	t.Helper()
	list, err := c.e.Runtime().ListContainers(t.Context(),
		&runtimeapi.ListContainersRequest{Filter: &runtimeapi.ContainerFilter{
			State: &runtimeapi.ContainerStateValue{State: runtimeapi.ContainerState_CONTAINER_RUNNING},
		}})
	if err != nil {
		t.Fatal(err)
	}
	byPod := map[string][]string{}
	for _, ctr := range list.Containers {
		name := ctr.Labels["io.kubernetes.pod.name"]
		byPod[name] = append(byPod[name], ctr.Id)
	}
	for name, ids := range byPod {
		if len(ids) > 1 {
			t.Errorf("%s runs %d times: %v", name, len(ids), ids)
		}
	}
	for name, was := range c.calm {
		if ids := byPod[name]; len(ids) != 1 || !strings.Contains(was, ids[0]) {
			t.Errorf("the containers of %s are %v, they were %s", name, ids, was)
		}
	}
}

// check compares the calm pods with what they were before, and the runtime with the pods: each pod
// has one sandbox and one container.
func (c *chaos) check(t *testing.T) {
	t.Helper()
	_, lost := c.fates()
	for _, p := range c.pods(t) {
		if lost[string(p.UID)] {
			continue
		}
		if was := c.calm[p.Name]; was != "" && running(&p) != was {
			t.Errorf("a calm pod was %s and is %s", was, running(&p))
		}
		if n := statusOf(&p, "main").RestartCount; n != 0 {
			t.Errorf("%s has restarted %d times", p.Name, n)
		}
	}
	env.Eventually(t, "the runtime to have what is wanted and no more", func() error {
		sandboxes, err := c.e.Runtime().ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})
		if err != nil {
			return err
		}
		containers, err := c.e.Runtime().ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
		if err != nil {
			return err
		}
		if len(sandboxes.Items) != len(c.want) || len(containers.Containers) != len(c.want) {
			return fmt.Errorf("%d sandboxes and %d containers for %d pods", len(sandboxes.Items),
				len(containers.Containers), len(c.want))
		}
		leaks := strings.Join(c.e.Leaks(), "\n")
		for _, kind := range []string{
			"address lease", "network namespace", "interface", "pod folder", "log folder", "log link",
		} {
			if n := strings.Count("\n"+leaks, "\n"+kind+" "); n != len(c.want) {
				return fmt.Errorf("%d of kind %s for %d pods", n, kind, len(c.want))
			}
		}
		return nil
	})
}

// traces checks what the containers wrote: an instance of a pod starts once and ends before the
// next one starts, and no calm pod starts twice.
func (c *chaos) traces(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(c.trace, "*"))
	if err != nil || len(files) < chaosPods {
		t.Fatalf("traces %v, %v", files, err)
	}
	cut, _ := c.fates()
	known := func(instance string) bool { // whether the instance may have ended without writing
		_, uid, _ := strings.Cut(instance, " ")
		return cut[uid]
	}
	for _, f := range files {
		open := ""
		started := map[string]bool{}
		for _, line := range lines(f) {
			what, instance, _ := strings.Cut(line, " ")
			switch {
			case what == "start" && (open != "" && !known(open) || started[instance] && !known(instance)):
				t.Errorf("%s: %s while %q has not ended, or again", filepath.Base(f), line, open)
			case what == "start":
				open, started[instance] = instance, true
			case what == "end" && open != instance:
				t.Errorf("%s: %s while %q runs", filepath.Base(f), line, open)
			case what == "end":
				open = ""
			}
		}
		if strings.HasPrefix(filepath.Base(f), "calm-") && len(started) != 1 {
			t.Errorf("%s has had %d instances", filepath.Base(f), len(started))
		}
	}
}
