//go:build integration

package integration

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/test/env"
)

// livenessRestarts checks that a container whose liveness probe fails is restarted, and no other
// container is.
func livenessRestarts(t *testing.T, e *env.Env, a *env.Agent) {
	put(t, a, "alive", `
terminationGracePeriodSeconds: 2
containers:
  - name: main
    image: berth.local/web:v1
    startupProbe:
      httpGet: {path: /readyz, port: 8080}
      periodSeconds: 1
      timeoutSeconds: 30
      failureThreshold: 100
    livenessProbe:
      httpGet: {path: /healthz, port: 8080}
      periodSeconds: 1
      timeoutSeconds: 30
      failureThreshold: 2
  - name: other
    image: berth.local/web:v1
    args: [sleep]
`)
	a.WaitReady(t, "alive")
	before := podOf(t, a, "alive")
	if _, err := ask(t, "POST", before, "/healthz?ok=false"); err != nil {
		t.Fatal(err)
	}
	after := waitPod(t, a, "alive", "restarted", func(p *corev1.Pod) error {
		if n := statusOf(p, "main").RestartCount; n != 1 || !env.Ready(p) {
			return fmt.Errorf("%d restarts", n)
		}
		return nil
	})
	if b, f := statusOf(before, "other"), statusOf(after, "other"); b.ContainerID != f.ContainerID ||
		f.RestartCount != 0 {
		t.Errorf("the other container was %+v and is %+v", b, f)
	}
	if before.Status.PodIP != after.Status.PodIP {
		t.Errorf("the pod's address was %s and is %s", before.Status.PodIP, after.Status.PodIP)
	}
	waitEvent(t, a, "Unhealthy", "Liveness probe failed")
	waitEvent(t, a, "Killing", "failed liveness probe, will be restarted")
	removed(t, e, a, "alive")
}

// readinessFlips checks that a readiness probe makes a pod unready and ready again, and restarts
// nothing.
func readinessFlips(t *testing.T, e *env.Env, a *env.Agent) {
	put(t, a, "readying", `
terminationGracePeriodSeconds: 2
containers:
  - name: main
    image: berth.local/web:v1
    args: [serve, --unready]
    readinessProbe:
      httpGet: {path: /readyz, port: 8080}
      periodSeconds: 1
      timeoutSeconds: 30
      failureThreshold: 1
    livenessProbe:
      tcpSocket: {port: 8080}
      periodSeconds: 1
      timeoutSeconds: 30
      failureThreshold: 100
      initialDelaySeconds: 1
`)
	p := waitPod(t, a, "readying", "running with an address", func(p *corev1.Pod) error {
		if _, err := ask(t, "GET", p, "/healthz"); err != nil {
			return err
		}
		return nil
	})
	waitEvent(t, a, "Unhealthy", "Readiness probe failed")
	before := running(podOf(t, a, "readying"))
	for _, ready := range []bool{true, false, true} {
		if _, err := ask(t, "POST", p, fmt.Sprintf("/readyz?ok=%t", ready)); err != nil {
			t.Fatal(err)
		}
		waitPod(t, a, "readying", fmt.Sprintf("ready: %t", ready), func(p *corev1.Pod) error {
			if env.Ready(p) != ready || statusOf(p, "main").Ready != ready {
				return errors.New("not yet")
			}
			return nil
		})
	}
	if after := running(podOf(t, a, "readying")); after != before {
		t.Errorf("the pod changed from %s to %s", before, after)
	}
	removed(t, e, a, "readying")
}

// startupGates checks that until the startup probe succeeds, the container has not started and is
// not ready, and its liveness probe does not run.
func startupGates(t *testing.T, e *env.Env, a *env.Agent) {
	put(t, a, "slow", `
terminationGracePeriodSeconds: 2
containers:
  - name: main
    image: berth.local/web:v1
    args: [sleep]
    startupProbe:
      exec: {command: [/testapp, cat, /www/up]}
      periodSeconds: 1
      timeoutSeconds: 30
      failureThreshold: 1000
    livenessProbe:
      exec: {command: [/testapp, cat, /www/up]}
      periodSeconds: 1
      timeoutSeconds: 30
      failureThreshold: 1
`)
	waitPod(t, a, "slow", "starting", func(p *corev1.Pod) error {
		c := statusOf(p, "main")
		if c.State.Running == nil || c.Started == nil || *c.Started {
			return errors.New("not running, or started already")
		}
		return nil
	})
	env.Eventually(t, "some failures of the startup probe", func() error {
		for _, ev := range answers[api.EventList](t, a, "events").Items {
			if ev.Reason == "Unhealthy" && ev.InvolvedObject.Name == "slow-"+env.NodeName && ev.Count >= 4 {
				return nil
			}
		}
		return errors.New("they are fewer")
	})
	if p := podOf(t, a, "slow"); env.Ready(p) || statusOf(p, "main").RestartCount != 0 {
		t.Errorf("before its start it is %s", env.Describe([]corev1.Pod{*p}))
	}
	inside(t, a, "slow", "main", "/testapp", "write", "/www/up", "yes")
	a.WaitReady(t, "slow")
	if c := statusOf(podOf(t, a, "slow"), "main"); c.Started == nil || !*c.Started || c.RestartCount != 0 {
		t.Errorf("the ready container is %+v", c)
	}
	removed(t, e, a, "slow")
}
