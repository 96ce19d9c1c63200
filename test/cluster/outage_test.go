//go:build cluster

package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berthd/berth/test/env"
)

const (
	// outageVariable is how long the API server is away in TestOutage, as a Go duration. Without
	// it, outageLength is. The project promises five minutes.
	outageVariable = "BERTH_OUTAGE"
	outageLength   = 45 * time.Second
	// promised is how soon after its return the API server has heard everything.
	promised = 10 * time.Second
	// glance is the pause of the client that [Witness.promptly] measures time with.
	glance = 100 * time.Millisecond
)

// staticSleeper is a sleeper as a static pod.
func staticSleeper(name string) string { return strings.TrimSuffix(sleeper(name), "---\n") }

// mirrorOf is the name with which the API shows a static pod.
func mirrorOf(name string) string { return name + "-" + env.NodeName }

// shows waits until the condition accepts the API server's pods, and returns how long that took.
func (w *Witness) shows(t *testing.T, what string, check func(pods map[string]*v1.Pod) error) time.Duration {
	t.Helper()
	began := time.Now()
	for pace := env.NewPace(); ; {
		pods, err := w.list(t.Context())
		if err == nil {
			err = check(pods)
		}
		if err == nil {
			return time.Since(began)
		}
		if time.Since(began) > eventually {
			t.Fatalf("%s: not within %s: %v", what, eventually, err)
		}
		time.Sleep(pace.Pause())
	}
}

// promptly is shows for what is promised within a time. The time is that of a bare client of the
// same API server, which makes a request after each [glance]: so many requests of the client may be
// answered as fit into the time if they take none. What is slow on a busy machine is so for both.
func (w *Witness) promptly(t *testing.T, what string, within time.Duration,
	check func(pods map[string]*v1.Pod) error,
) time.Duration {
	t.Helper()
	began := time.Now()
	for answers := 0; ; {
		pods, err := w.list(t.Context())
		if err == nil {
			answers++
			err = check(pods)
		}
		if err == nil {
			return time.Since(began)
		}
		if time.Duration(answers)*glance >= within || time.Since(began) > eventually {
			t.Fatalf("%s: not within %s, as a client counts it (in fact %s): %v", what, within, time.Since(began), err)
		}
		time.Sleep(glance)
	}
}

// list reads the pods of the namespace default, by name. A watch may notice late that the API
// server is back.
func (w *Witness) list(ctx context.Context) (map[string]*v1.Pod, error) {
	items, _, err := w.client.List(ctx, "default", metav1.ListOptions{})
	out := map[string]*v1.Pod{}
	for _, p := range items {
		out[p.Name] = p
	}
	return out, err
}

// allReady returns an error unless there are n pods, all Ready.
func allReady(pods map[string]*v1.Pod, n int) error {
	var late []v1.Pod
	for _, p := range pods {
		if !env.Ready(p) {
			late = append(late, *p)
		}
	}
	if len(pods) != n || len(late) > 0 {
		return fmt.Errorf("of %d pods there are %d, and not ready are:\n%s", n, len(pods), env.Describe(late))
	}
	return nil
}

// TestOutage takes the API server away while 30 pods run. Nothing restarts, and static pods come,
// change and go. After its return the API server has all of that in [promised], and no pod is made
// again.
func TestOutage(t *testing.T) {
	t.Parallel()
	const static, bound = 10, 20
	length := outageLength
	if text := os.Getenv(outageVariable); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	c := Start(t, Options{})
	a := c.StartNode(t, env.AgentOptions{})
	c.WaitNodeReady(t)
	account(t, c)
	w := c.Witness(t)
	all := ""
	for i := range bound {
		all += strings.Replace(sleeper(fmt.Sprintf("a-%d", i)), "command:",
			"readinessProbe: {exec: {command: [\"true\"]}, periodSeconds: 5, timeoutSeconds: 30}\n      command:", 1)
	}
	for i := range static {
		name := fmt.Sprintf("s-%d", i)
		a.WriteManifest(t, name+".yaml", staticSleeper(name))
	}
	c.Apply(t, all+watched)
	w.shows(t, "all pods", func(pods map[string]*v1.Pod) error { return allReady(pods, static+bound+1) })
	before := identities(t, w)
	readySince := []string{
		"get", "node", env.NodeName, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].lastTransitionTime}`,
	}
	readyAtFirst := c.Kubectl(t, readySince...)

	if err := c.APIServer.Stop(); err != nil {
		t.Fatal(err)
	}
	asked := requests(t, c)
	ends := time.Now().Add(length)
	a.WriteManifest(t, "s-new.yaml", staticSleeper("s-new"))
	a.WriteManifest(t, "s-0.yaml", strings.Replace(staticSleeper("s-0"), "3600", "3601", 1))
	a.RemoveManifest(t, "s-1.yaml")
	a.WaitPods(t, "static pods to be changed", func(pods []v1.Pod) bool {
		changed := env.Find(pods, "s-0")
		return env.Find(pods, "s-1") == nil && env.Find(pods, "s-new") != nil && env.Ready(env.Find(pods, "s-new")) &&
			changed != nil && changed.Spec.Containers[0].Command[1] == "3601" && env.Ready(changed)
	})
	// A probe fails meanwhile. The agent then does what is needed without the API server.
	if _, errOut, code := a.CLI("exec", "watched", "--", "rm", "/ok"); code != 0 {
		t.Fatalf("end a pod's health: %d %s", code, errOut)
	}
	a.WaitPods(t, "the pod whose probe fails to be restarted", func(pods []v1.Pod) bool {
		p := env.Find(pods, "watched")
		return p != nil && env.Ready(p) && restartsOf(p) == 1
	})
	time.Sleep(time.Until(ends))
	pods, err := a.Pods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i := range pods {
		if !env.Ready(&pods[i]) {
			t.Errorf("while the API server is away: %s", env.Describe(pods[i:i+1]))
		}
	}

	renewals := func() (n int) {
		for _, r := range c.nodeRequests(t) {
			if r.ObjectRef.Resource == "leases" && r.ResponseStatus.Code == http.StatusOK {
				n++
			}
		}
		return n
	}
	renewed := renewals()
	c.StartAPIServer(t)
	took := w.promptly(t, "after its return", promised, func(pods map[string]*v1.Pod) error {
		if pods[mirrorOf("s-1")] != nil || pods[mirrorOf("s-new")] == nil {
			return errors.New("the mirrors are still those of before")
		}
		if m := pods[mirrorOf("s-0")]; m == nil || m.Spec.Containers[0].Command[1] != "3601" {
			return errors.New("the mirror of the changed pod is still that of before")
		}
		if p := pods["watched"]; p == nil || restartsOf(p) != 1 {
			return errors.New("the pod that was restarted meanwhile is that of before")
		}
		if err := allReady(pods, static+bound+1); err != nil {
			return err
		}
		if renewals() == renewed {
			return errors.New("the node has not renewed its Lease")
		}
		return nil
	})
	t.Logf("after %s the API server had heard everything %s after its return", length, took.Round(10*time.Millisecond))
	c.WaitNodeReady(t)
	time.Sleep(calm) // and then nothing happens
	w.shows(t, "and later", func(pods map[string]*v1.Pod) error { return allReady(pods, static+bound+1) })
	// The node reads what it watches once more, and reports what has changed, but not everything
	// about every pod.
	now := requests(t, c)
	n, what := since(asked, now)
	t.Logf("%d requests after its return: %s", n, what)
	most := 3 * 4
	// the controllers had marked the node as dead, and its pods as not ready, before the node
	// reported again
	if c.Kubectl(t, readySince...) != readyAtFirst {
		most += static + bound + 1
	}
	if patched := now["patch pods/status"] - asked["patch pods/status"]; patched > most || n > 5*(static+bound) {
		t.Errorf("%d requests after its return, %d of which told statuses of pods, of which four had changed: %s", n,
			patched, what)
	}
	for name, now := range identities(t, w) {
		if old := before[name]; old != now && name != mirrorOf("s-0") && name != mirrorOf("s-new") &&
			name != "watched" {
			t.Errorf("%s was %s and is %s", name, old, now)
		}
	}
}

// watched is a pod that is restarted if its file is gone. It starts with a new file.
const watched = `
apiVersion: v1
kind: Pod
metadata: {name: watched}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: main
      image: berth.local/busybox:v1
      command: [sh, -c, "touch /ok; exec sleep 3600"]
      livenessProbe: {exec: {command: [cat, /ok]}, periodSeconds: 1, timeoutSeconds: 30, failureThreshold: 1,
        initialDelaySeconds: 1}
`

// restartsOf returns how often a pod's first container has restarted.
func restartsOf(p *v1.Pod) int32 {
	if len(p.Status.ContainerStatuses) == 0 {
		return -1
	}
	return p.Status.ContainerStatuses[0].RestartCount
}

// identities reads what must stay the same for each pod.
func identities(t *testing.T, w *Witness) map[string]string {
	t.Helper()
	pods, err := w.list(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for name, p := range pods {
		out[name] = Identity(p)
	}
	return out
}
