//go:build integration

package integration

import (
	"errors"
	"fmt"
	"maps"
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
	// adoptionLimit is how soon a restarted agent has all pods again, on a machine that starts a
	// program in programStart or sooner. A slower or busy one has more time in proportion. adoptions
	// is how often that is measured at least, and adoptionTries at most: the load comes and goes.
	adoptionLimit            = time.Second
	programStart             = 50 * time.Millisecond
	adoptions, adoptionTries = 3, 20
)

// chaos is a node whose pods change all the time. It knows the current manifests, and the pods that
// nobody changes.
type chaos struct {
	e    *env.Env
	a    *env.Agent
	rand *rand.Rand
	// traces is what the containers have written.
	traces *chaosTraces
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
		e: e, a: e.StartAgent(t, env.AgentOptions{}), rand: rand.New(rand.NewPCG(seed, 0)),
		traces: newChaosTraces(t, e.Checkout), want: map[string]int{}, calm: map[string]string{},
		floor: map[string]int32{},
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
	c.traces.check(t, c.lost())
}

func (c *chaos) lost() map[string]bool {
	return c.traces.lost(filepath.Join(c.e.Dir, "containerd.log"))
}

// write writes a version of a pod's manifest. Its container writes the version and UID of its pod
// when it starts and when it ends: see [chaosTraces]. It takes a second to end, so that one that
// comes too early meets it. Every third pod has a probe.
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
      - /trace/testapp
      - alone
      - /trace/%[2]s.lock
      - /trace/%[2]s.trace
      - "%[1]d $(UID_)"
      - sh
      - -c
      - |
        trap 'sleep 1; echo "end %[1]d $UID_" >> /trace/%[2]s.trace; exit 0' TERM
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
`, version, name, c.traces.dir, probe))
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
	for _, name := range slices.Sorted(maps.Keys(c.want)) {
		if len(c.want) > chaosPods && strings.HasPrefix(name, "churn-") {
			c.a.RemoveManifest(t, name+".yaml")
			delete(c.want, name)
		}
	}
	c.settle(t)
	before := c.all(t)
	var took []time.Duration
	soon := false
	for len(took) < adoptions || !soon && len(took) < adoptionTries {
		c.a.Kill9()
		begin := time.Now()
		c.a.CLI("ps", "--help")
		limit := adoptionLimit * time.Duration(max(1, int(time.Since(begin)/programStart)))
		begin = time.Now()
		if err := c.a.Start(); err != nil {
			t.Fatal(err)
		}
		c.settle(t)
		took = append(took, time.Since(begin))
		soon = soon || took[len(took)-1] <= limit
	}
	t.Logf("adopting %d pods took %v", len(c.want), took)
	if !soon {
		t.Errorf("adopting %d pods took %v, each time more than %v for each %v of a program's start", len(c.want), took,
			adoptionLimit, programStart)
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
		if err := c.traces.know(t.Context(), c.e.Runtime()); err != nil {
			t.Fatal(err)
		}
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

// settle waits until exactly the wanted pods exist, in their latest version, and are ready and have
// written that they started.
func (c *chaos) settle(t *testing.T) {
	t.Helper()
	c.a.WaitPods(t, "the pods that the manifests want", func(pods []corev1.Pod) bool {
		c.falls(t, pods)
		if len(pods) != len(c.want) {
			return false
		}
		for name, version := range c.want {
			p := env.Find(pods, name)
			instance := fmt.Sprintf("%d $(UID_)", version)
			if p == nil || !env.Ready(p) || p.Spec.Containers[0].Command[4] != instance ||
				!c.traces.settle(name, strings.Replace(instance, "$(UID_)", string(p.UID), 1)) {
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

// calmRuns checks that the calm pods' first containers run on. It asks nobody but the containers:
// the native runtime is in the agent, and answers no questions while that is dead.
func (c *chaos) calmRuns(t *testing.T) {
	t.Helper()
	for name, was := range c.calm {
		name = strings.TrimSuffix(name, "-node") // as in the manifest
		if n := c.traces.starts(name, "1 "+uidIn(was)); n != 1 || !c.traces.runs(t, name) {
			t.Errorf("%s has started %d times, or does not run: it was %s", name, n, was)
		}
	}
}

// uidIn returns the UID in a text of [running].
func uidIn(was string) string {
	_, uid, _ := strings.Cut(was, " ")
	uid, _, _ = strings.Cut(uid, ":")
	return uid
}

// forget takes the pods out of the calm ones that a starting containerd gave up on.
func (c *chaos) forget(t *testing.T) {
	t.Helper()
	lost := c.lost()
	for name, was := range c.calm {
		if lost[uidIn(was)] {
			t.Logf("containerd gave up on a calm pod: %s", was)
			delete(c.calm, name)
		}
	}
}

// check compares the calm pods with what they were before, and the runtime with the pods: each pod
// has one sandbox and one container.
func (c *chaos) check(t *testing.T) {
	t.Helper()
	lost := c.lost()
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
