//go:build cluster

package cluster

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/test/env"
)

const (
	// chaosPods is how many pods there are at the start. chaosCalm is how many of them nobody
	// deletes.
	chaosPods, chaosCalm = 20, 10
	agentKills           = 12
	runtimeKills         = 3
	// seedVariable repeats a run's choices: its value is the seed that the run printed.
	seedVariable = "BERTH_TEST_SEED"
)

// chaos is a node whose agent and containerd are killed while pods of the API server come and go.
type chaos struct {
	c    *Cluster
	a    *env.Agent
	w    *Witness
	rand *rand.Rand
	// want are the names of the pods that nobody has deleted. ids are the UIDs of those that somebody
	// has, and next is the number of the next pod.
	want map[string]bool
	ids  []string
	next int
}

// TestChaosOfBoundPods kills the agent at random moments while pods of the API server come and go,
// and then kills containerd. The pods that nobody deletes keep their containers and stay Ready, and
// the API server is told of every deletion.
func TestChaosOfBoundPods(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv(seedVariable); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%s=%d repeats this run's choices", seedVariable, seed)
	c := Start(t, Options{})
	x := &chaos{
		c: c, a: c.StartNode(t, env.AgentOptions{}), rand: rand.New(rand.NewPCG(seed, 0)), want: map[string]bool{},
	}
	c.WaitNodeReady(t)
	account(t, c)
	x.w = c.Witness(t)
	objects := "{apiVersion: v1, kind: ConfigMap, metadata: {name: chaos}, data: {conf: keep calm}}\n---\n"
	for i := range chaosPods {
		name := fmt.Sprintf("churn-%d", i)
		if i < chaosCalm {
			name = fmt.Sprintf("calm-%d", i)
		}
		objects += x.pod(name)
	}
	c.Apply(t, objects)
	x.next = chaosPods
	x.settle(t)
	x.kill(t, agentKills, func() error { x.a.Kill9(); return x.a.Start() })
	x.kill(t, runtimeKills, func() error {
		if err := c.Kill9(); err != nil {
			return err
		}
		return c.Start(t.Context())
	})
	for name := range maps.Clone(x.want) {
		x.remove(t, name)
	}
	x.settle(t)
	env.Eventually(t, "nothing to be left of the pods", func() error {
		if leaks := c.LeaksOf(x.ids...); len(leaks) > 0 {
			return fmt.Errorf("%s", strings.Join(leaks, "\n"))
		}
		return nil
	})
}

// pod returns the manifest of a pod, with volumes of each kind that every cluster has.
func (x *chaos) pod(name string) string {
	x.want[name] = true
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 2
  containers:
    - name: main
      image: berth.local/busybox:v1
      command: [sh, -c, "trap exit TERM; sleep 3600 & wait"]
      env: [{name: CONF, valueFrom: {configMapKeyRef: {name: chaos, key: conf}}}]
      volumeMounts:
        - {name: files, mountPath: /files}
        - {name: files, mountPath: /one, subPath: conf}
        - {name: memory, mountPath: /memory}
  volumes:
    - {name: files, configMap: {name: chaos}}
    - {name: memory, emptyDir: {medium: Memory}}
---
`, name)
}

// remove deletes a pod without waiting for its end.
func (x *chaos) remove(t *testing.T, name string) {
	t.Helper()
	x.ids = append(x.ids, string(x.w.Pod(name).UID))
	delete(x.want, name)
	x.c.Kubectl(t, "delete", "pod", name, "--wait=false")
}

// churn makes a pod, or deletes one.
func (x *chaos) churn(t *testing.T) {
	t.Helper()
	var names []string
	for name := range x.want {
		if strings.HasPrefix(name, "churn-") && x.w.Pod(name) != nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	if len(names) > chaosPods-chaosCalm-4 && x.rand.IntN(2) == 0 {
		x.remove(t, names[x.rand.IntN(len(names))])
		return
	}
	x.next++
	x.c.Apply(t, x.pod(fmt.Sprintf("churn-%d", x.next)))
}

// kill kills something at random moments, and then looks at the pods that nobody has deleted.
func (x *chaos) kill(t *testing.T, times int, kill func() error) {
	t.Helper()
	before := x.w.Identities()
	for range times {
		for range 1 + x.rand.IntN(2) {
			x.churn(t)
		}
		time.Sleep(time.Duration(x.rand.IntN(700)) * time.Millisecond) // the random moment
		if err := kill(); err != nil {
			t.Fatal(err)
		}
	}
	x.settle(t)
	after := x.w.Identities()
	for name, was := range before {
		short := strings.TrimPrefix(name, "default/")
		if !x.want[short] || after[name] == was {
			continue
		}
		if p := x.w.Pod(short); p != nil && slices.ContainsFunc(strings.Fields(was), x.c.GaveUpOn) {
			t.Logf("containerd gave up on a container of %s", name)
			continue
		}
		t.Errorf("pod %s was %s and is %s", name, was, after[name])
	}
}

// settle waits until the API server has the wanted pods as Ready, and no others.
func (x *chaos) settle(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*eventually)
	defer cancel()
	var late []v1.Pod
	err := x.w.Wait(ctx, func(pods map[string]*v1.Pod) bool {
		late = nil
		for _, p := range pods {
			if !env.Ready(p) || !x.want[p.Name] {
				late = append(late, *p)
			}
		}
		return len(late) == 0 && len(pods) == len(x.want)
	})
	if err != nil {
		t.Fatalf("wait for %d pods to be ready: %v\n%s", len(x.want), err, env.Describe(late))
	}
}
