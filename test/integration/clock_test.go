//go:build integration

package integration

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/test/env"
)

// TestClock sets the clock of a node without a cluster an hour back and then ahead, while pods run.
// What runs goes on, and whatever waits for a time waits as long as without the change.
func TestClock(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("a process's clock can be moved on amd64 only")
	}
	t.Parallel()
	e := env.Containerd(t, env.Options{})
	a := e.StartAgent(t, env.AgentOptions{Kubelet: "crashLoopBackOff: {maxContainerRestartPeriod: 2s}\n"})
	put(t, a, "probed",
		"terminationGracePeriodSeconds: 1\ncontainers:\n"+
			shell("main", "volumeMounts: [{name: noted, mountPath: /noted}]",
				"livenessProbe: "+
					noted("alive", "true", "initialDelaySeconds: 2, periodSeconds: 1, timeoutSeconds: 30"),
				"readinessProbe: "+
					noted("ready", "true", "initialDelaySeconds: 2, periodSeconds: 1, timeoutSeconds: 30"))+
			"volumes: [{name: noted, emptyDir: {}}]\n")
	put(t, a, "bounded", "activeDeadlineSeconds: 1800\nterminationGracePeriodSeconds: 1\ncontainers:\n"+shell("main"))
	put(t, a, "crashes",
		"containers: [{name: main, image: berth.local/busybox:v1, command: [sh, -c, 'sleep 0.5; exit 1']}]")
	a.WaitReady(t, "probed", "bounded")
	containers := func() string {
		return statusOf(podOf(t, a, "probed"), "main").ContainerID + " " +
			statusOf(podOf(t, a, "bounded"), "main").ContainerID
	}
	probes := func() int { return len(strings.Fields(inside(t, a, "probed", "main", "cat", "/noted/alive"))) }
	readies := func() int { return len(strings.Fields(inside(t, a, "probed", "main", "cat", "/noted/ready"))) }
	before, clock := containers(), e.Clock(t)
	for i, to := range []time.Duration{-time.Hour, time.Hour} {
		leaves, short, next := fmt.Sprint("leaves-", i), fmt.Sprint("short-", i), fmt.Sprint("next-", i)
		put(t, a, leaves,
			"terminationGracePeriodSeconds: 5\ncontainers: [{name: main, image: berth.local/busybox:v1, "+
				"command: [sleep, '3600']}]") // process 1 ignores SIGTERM
		put(t, a, short, "activeDeadlineSeconds: 10\nterminationGracePeriodSeconds: 1\ncontainers:\n"+shell("main"))
		waitPod(t, a, short, "started", func(p *corev1.Pod) error {
			if p.Status.StartTime == nil {
				return errors.New("it has no start")
			}
			return nil
		})
		a.WaitReady(t, leaves)
		a.RemoveManifest(t, leaves+".yaml")
		clock.Move(t, to)
		crashed, alive, ready := statusOf(podOf(t, a, "crashes"), "main"), probes(), readies()
		put(t, a, next, "terminationGracePeriodSeconds: 1\ncontainers:\n"+shell("main"))
		a.WaitReady(t, next)
		a.WaitGone(t, leaves)
		waitPod(t, a, short, "over", func(p *corev1.Pod) error {
			if p.Status.Phase != corev1.PodFailed || p.Status.Reason != "DeadlineExceeded" {
				return errors.New(p.Status.Reason)
			}
			return nil
		})
		waitPod(t, a, "crashes", "restarted", func(p *corev1.Pod) error {
			if now := statusOf(p, "main"); now.RestartCount < crashed.RestartCount+2 ||
				now.ContainerID == crashed.ContainerID {
				return fmt.Errorf("it was %s, %d restarts", crashed.ContainerID, crashed.RestartCount)
			}
			return nil
		})
		env.Eventually(t, "the probes to go on", func() error {
			if nowAlive, nowReady := probes(), readies(); nowAlive < alive+3 || nowReady < ready+3 {
				return fmt.Errorf("they ran %d and %d times, and before %d and %d times", nowAlive, nowReady, alive,
					ready)
			}
			return nil
		})
		if now := containers(); now != before {
			t.Errorf("moved by %s: the containers were %s and are %s", to, before, now)
		}
	}
}
