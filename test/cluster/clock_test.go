//go:build cluster

package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/test/env"
)

const (
	// patience is the time after which the controller manager considers a node dead whose Lease is
	// not renewed.
	patience = 30 * time.Second
	// leaving is the grace of the pods that are being deleted while the clock is moved.
	leaving = 8 * time.Second
)

// timed are the pods that depend on the clock. Their probes have an initial delay, so the first
// probe is due at a time that follows from the runtime's clock, not from the agent's.
const timed = `
apiVersion: v1
kind: Pod
metadata: {name: probed}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: main
      image: berth.local/busybox:v1
      command: [sh, -c, "touch /ok; exec sleep 7200"]
      startupProbe: {exec: {command: ["true"]}, periodSeconds: 1, timeoutSeconds: 30, initialDelaySeconds: 1}
      livenessProbe: {exec: {command: ["true"]}, periodSeconds: 1, timeoutSeconds: 30, initialDelaySeconds: 3}
      readinessProbe: {exec: {command: [cat, /ok]}, periodSeconds: 1, timeoutSeconds: 30, initialDelaySeconds: 3}
---
{apiVersion: v1, kind: Pod, metadata: {name: crashes}, spec: {terminationGracePeriodSeconds: 1, containers: [
  {name: main, image: "berth.local/busybox:v1", command: [sh, -c, "sleep 0.5; exit 1"]}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: bounded}, spec: {terminationGracePeriodSeconds: 1,
  activeDeadlineSeconds: 1800, containers: [
  {name: main, image: "berth.local/busybox:v1", command: [sleep, "7200"]}]}}
---
{apiVersion: batch/v1, kind: Job, metadata: {name: job}, spec: {activeDeadlineSeconds: 1800,
  template: {spec: {terminationGracePeriodSeconds: 1, restartPolicy: Never, containers: [
  {name: main, image: "berth.local/busybox:v1", command: [sleep, "7200"]}]}}}}
---
{apiVersion: v1, kind: Pod, metadata: {name: account}, spec: {terminationGracePeriodSeconds: 1, volumes: [
  {name: token, projected: {sources: [{serviceAccountToken: {path: token, expirationSeconds: 600,
    audience: tests}}]}}], containers: [
  {name: main, image: "berth.local/busybox:v1", command: [sleep, "7200"],
    volumeMounts: [{name: token, mountPath: /token}]}]}}
---
`

// passing is a pod that does not end before its grace is over, and a pod whose deadline passes
// soon.
func passing(n int) string {
	return fmt.Sprintf(
		`{apiVersion: v1, kind: Pod, metadata: {name: leaves-%d}, spec: {terminationGracePeriodSeconds: %d, containers: [
  {name: main, image: "berth.local/busybox:v1", command: [sh, -c, "trap : TERM; while :; do sleep 1; done"]}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: short-%d}, spec: {terminationGracePeriodSeconds: 1,
  activeDeadlineSeconds: 15, containers: [
  {name: main, image: "berth.local/busybox:v1", command: [sleep, "7200"]}]}}
---
`, n, leaving/time.Second, n)
}

// moving is a node whose clock is moved.
type moving struct {
	c      *Cluster
	a      *env.Agent
	w      *Witness
	before map[string]string
}

// TestClock sets the clock of a running node an hour ahead, and then an hour behind. What runs goes
// on, and whatever waits for a time waits as long as without the change.
func TestClock(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("a process's clock can be moved on amd64 only")
	}
	c := Start(t, Options{
		ControllerManager: []string{"--node-monitor-grace-period", patience.String(), "--node-monitor-period", "1s"},
	})
	m := &moving{
		c: c, w: c.Witness(t),
		a: c.StartNode(t, env.AgentOptions{
			Kubelet: "nodeLeaseDurationSeconds: 20\ncrashLoopBackOff: {maxContainerRestartPeriod: 3s}\n",
		}),
	}
	c.WaitNodeReady(t)
	account(t, c)
	m.a.WriteManifest(t, "s.yaml",
		strings.Replace(staticSleeper("s"), "command:",
			"livenessProbe: {exec: {command: [\"true\"]}, periodSeconds: 1, timeoutSeconds: 30, initialDelaySeconds: "+
				"2}\n      command:", 1))
	c.Apply(t, timed)
	m.w.shows(t, "pods", func(pods map[string]*v1.Pod) error {
		for _, name := range []string{"probed", "bounded", "account", mirrorOf("s")} {
			if pods[name] == nil || !env.Ready(pods[name]) {
				return fmt.Errorf("%s is not ready", name)
			}
		}
		if p := jobsPod(pods); p == nil || !env.Ready(p) {
			return errors.New("the job's pod is not ready")
		}
		return nil
	})
	m.before = identities(t, m.w)
	delete(m.before, "crashes")
	clock := c.Env.Clock(t)
	t.Run("an hour ahead", func(t *testing.T) { m.move(t, clock, 0, time.Hour) })
	t.Run("an hour behind", func(t *testing.T) { m.move(t, clock, 1, -time.Hour) })
}

// jobsPod returns the pod of the job.
func jobsPod(pods map[string]*v1.Pod) *v1.Pod {
	for name, p := range pods {
		if strings.HasPrefix(name, "job-") {
			return p
		}
	}
	return nil
}

// move moves the clock and checks everything that depends on it.
func (m *moving) move(t *testing.T, clock *env.Clock, n int, to time.Duration) {
	leaves, short, after := fmt.Sprintf("leaves-%d", n), fmt.Sprintf("short-%d", n), fmt.Sprintf("after-%d", n)
	m.c.Apply(t, passing(n))
	m.w.shows(t, "passing pods", func(pods map[string]*v1.Pod) error {
		if pods[leaves] == nil || !env.Ready(pods[leaves]) || pods[short] == nil || !env.Ready(pods[short]) {
			return errors.New("they are not ready")
		}
		return nil
	})
	requestsBefore, renewal := requests(t, m.c), m.renewal(t)
	deleted := time.Now()
	m.c.Kubectl(t, "delete", "pod", leaves, "--wait=false")

	clock.Move(t, to)
	moved := time.Now()
	restarts, runs := m.restarts(t), m.probeRuns(t)
	m.c.Apply(t,
		strings.Replace(sleeper(after), "command:",
			"livenessProbe: {exec: {command: [\"true\"]}, periodSeconds: 1, timeoutSeconds: 30, initialDelaySeconds: "+
				"2}\n      command:", 1))
	m.a.WriteManifest(t, "static.yaml", strings.Replace(staticSleeper("static"), "3600", fmt.Sprint(7200+n), 1))
	m.w.shows(t, "pods after that", func(pods map[string]*v1.Pod) error {
		if pods[after] == nil || !env.Ready(pods[after]) {
			return errors.New("the new one is not ready")
		}
		if p := pods[mirrorOf("static")]; p == nil || p.Spec.Containers[0].Command[1] != fmt.Sprint(7200+n) ||
			!env.Ready(p) {
			return errors.New("the static pod is not ready")
		}
		return nil
	})
	m.w.shows(t, "the end of the deleted pod", func(pods map[string]*v1.Pod) error {
		if pods[leaves] != nil {
			return errors.New("it is still there")
		}
		return nil
	})
	if took := time.Since(deleted); took < leaving {
		t.Errorf("the deleted pod was gone after %s: its grace is %s", took, leaving)
	}
	m.w.shows(t, "the deadline of a pod", func(pods map[string]*v1.Pod) error {
		if p := pods[short]; p.Status.Phase != v1.PodFailed || p.Status.Reason != "DeadlineExceeded" {
			return fmt.Errorf("it is %s %s", p.Status.Phase, p.Status.Reason)
		}
		return nil
	})
	env.Eventually(t, "restarts and probes", func() error {
		if now := m.restarts(t); now < restarts+2 {
			return fmt.Errorf("the pod that crashes has restarted %d times, and %d before", now, restarts)
		}
		now := m.probeRuns(t)
		for probe, before := range runs {
			if now[probe] < before+3 {
				return fmt.Errorf("probe %s ran %v times, and %v before", probe, now[probe], before)
			}
		}
		return nil
	})
	for _, want := range []string{"False", "True"} {
		command := map[string][]string{"False": {"rm", "/ok"}, "True": {"touch", "/ok"}}[want]
		m.c.Kubectl(t, append([]string{"exec", "probed", "--"}, command...)...)
		m.c.Eventually(t, Contains("Running "+want), "get", "pod", "probed", "-o", phaseAndReady)
	}
	m.c.Eventually(t, Contains("Started"), "get", "events", "--field-selector", "involvedObject.name="+after, "-o",
		"jsonpath={.items[*].reason}")
	m.checkToken(t)
	env.Eventually(t, "renewals of the lease", func() error {
		if now := m.renewal(t); now == renewal || time.Since(moved) < patience+5*time.Second {
			return fmt.Errorf("it was renewed at %s", now)
		}
		return nil
	})
	m.c.WaitNodeReady(t)
	m.undisturbed(t)
	m.checkRequests(t, requestsBefore, time.Since(moved))
	// the other pod's probe must run on when the clock is moved again
	m.c.Kubectl(t, "delete", "pod", short, "--timeout=180s")
}

// undisturbed checks that nothing has happened to what runs, and that nobody considers the node
// dead.
func (m *moving) undisturbed(t *testing.T) {
	t.Helper()
	now := identities(t, m.w)
	for name, was := range m.before {
		if now[name] != was {
			t.Errorf("%s was %s and is %s", name, was, now[name])
		}
	}
	if out := m.c.Kubectl(t, "get", "events", "-A", "--field-selector", "reason=NodeNotReady", "-o",
		"jsonpath={.items[*].message}"); out != "" {
		t.Errorf("the node was not ready: %s", out)
	}
}

// restarts returns the restart count of the crashing pod in the API server.
func (m *moving) restarts(t *testing.T) int32 {
	t.Helper()
	pods, err := m.w.list(t.Context())
	if err != nil || pods["crashes"] == nil || len(pods["crashes"].Status.ContainerStatuses) == 0 {
		t.Fatalf("the pod that crashes: %v %+v", err, pods["crashes"])
	}
	return pods["crashes"].Status.ContainerStatuses[0].RestartCount
}

// renewal returns the version of the node's Lease.
func (m *moving) renewal(t *testing.T) string {
	t.Helper()
	return m.c.Kubectl(t, "get", "lease", "-n", "kube-node-lease", env.NodeName, "-o",
		"jsonpath={.metadata.resourceVersion}")
}

// probeRuns returns how often the probes ran that go on, by kind and pod.
func (m *moving) probeRuns(t *testing.T) map[string]float64 {
	t.Helper()
	resp, err := m.a.Get(t.Context(), "/metrics/probes")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]float64{}
	for line := range bytes.Lines(text) {
		series, value, _ := strings.Cut(strings.TrimSpace(string(line)), "} ")
		for _, label := range []string{`probe_type="Liveness"`, `probe_type="Readiness"`} {
			_, pod, _ := strings.Cut(series, `pod="`)
			if n, err := strconv.ParseFloat(value, 64); err == nil &&
				strings.HasPrefix(series, "prober_probe_total{") && strings.Contains(series, label) {
				out[label+" "+pod[:strings.Index(pod, `"`)]] += n
			}
		}
	}
	if len(out) < 3 {
		t.Fatalf("of three probes and more the metrics know %v", out)
	}
	return out
}

// checkToken asks the API server whether it accepts a pod's token.
func (m *moving) checkToken(t *testing.T) {
	t.Helper()
	token := m.c.Kubectl(t, "exec", "account", "--", "cat", "/token/token")
	review := "{apiVersion: authentication.k8s.io/v1, kind: TokenReview, spec: {audiences: [tests], token: " +
		strings.TrimSpace(token) + "}}"
	if out := m.c.kubectl(t, review, "create", "-f", "-", "-o",
		"jsonpath={.status.authenticated} {.status.user.username}"); !strings.HasPrefix(out,
		"true system:serviceaccount:default") {
		t.Errorf("the pod's token: %s", out)
	}
}

// checkRequests checks that the node does not send too many requests to the API server, neither for
// its pods nor for tokens.
func (m *moving) checkRequests(t *testing.T, before map[string]int, d time.Duration) {
	t.Helper()
	n, what := since(before, requests(t, m.c))
	t.Logf("%d requests in %s: %s", n, d.Round(time.Second), what)
	if n > 200 { // most requests are about the pod that crashes, which it does every three seconds
		t.Errorf("%d requests in %s: %s", n, d.Round(time.Second), what)
	}
}
