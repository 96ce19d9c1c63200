//go:build integration

package integration

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/cri/fake"
	"github.com/berthd/berth/cri/serve"
	"github.com/berthd/berth/test/env"
)

const (
	// probedPods is as many pods as a node may have. Each of them runs a command every second.
	probedPods = 100
	// probeWatch is how long the agent of the pods is watched.
	probeWatch = 20 * time.Second
	// probeWatches is how often the watching is repeated if others used the machine meanwhile.
	probeWatches = 6
	// probeAim is the part of one core that the agent should use for all pods. The test logs the
	// measured part. On a machine that is busy with other things the same work costs more, so only
	// runawayShare is an error.
	probeAim     = 0.05
	runawayShare = 0.2
	// ticks is the number of units of CPU time in /proc/PID/stat for one second: USER_HZ, which is
	// 100 on every architecture that Linux still has.
	ticks = 100
)

// countedExecs is a runtime that counts the commands that it runs.
type countedExecs struct {
	cri.Runtime
	n atomic.Int64
}

func (c *countedExecs) ExecSync(
	ctx context.Context, id string, cmd []string, timeout time.Duration,
) (*runtimeapi.ExecSyncResponse, error) {
	c.n.Add(1)
	return c.Runtime.ExecSync(ctx, id, cmd, timeout)
}

// cpuTime returns how long a process has run, in user mode and in the kernel.
func cpuTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), ") ") // the name before it may contain anything
	fields := strings.Fields(rest)
	var user, kernel int64
	if _, err := fmt.Sscan(fields[11]+" "+fields[12], &user, &kernel); err != nil {
		t.Fatal(err)
	}
	return time.Duration(user+kernel) * time.Second / ticks
}

// TestExecProbesAreCheap measures what exec probes cost the agent: /bin/true every second in each
// of 100 pods. The test's own process serves the runtime, so the runtime's work does not count, and
// the node can run all probes in time. Every call goes over a socket, as with containerd.
func TestExecProbesAreCheap(t *testing.T) {
	remoteOnly(t, "it serves a CRI of its own")
	e := env.Containerd(t, env.Options{})
	rt := &countedExecs{Runtime: fake.New(fake.Config{CgroupDriver: runtimeapi.CgroupDriver_CGROUPFS, WriteLogs: true})}
	socket := filepath.Join(t.TempDir(), "cri.sock")
	stop, err := serve.Start(t.Context(), socket, rt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	a := e.StartAgent(t, env.AgentOptions{Kubelet: "containerRuntimeEndpoint: unix://" + socket})
	a.WaitUp(t)
	for i := range probedPods {
		put(t, a, fmt.Sprintf("probed-%d", i), `
terminationGracePeriodSeconds: 1
containers:
  - name: main
    image: busybox
    command: [sleep, infinity]
    readinessProbe:
      exec: {command: [/bin/true]}
      periodSeconds: 1
`)
	}
	a.WaitPods(t, "all pods to be ready", func(pods []corev1.Pod) bool {
		ready := 0
		for i := range pods {
			if env.Ready(&pods[i]) {
				ready++
			}
		}
		return ready == probedPods
	})
	time.Sleep(5 * time.Second) // the work after the start is then done
	for range probeWatches {
		before, execs, began := cpuTime(t, a.PID()), rt.n.Load(), time.Now()
		time.Sleep(probeWatch)
		used, ran, took := cpuTime(t, a.PID())-before, rt.n.Load()-execs, time.Since(began)
		share := used.Seconds() / took.Seconds()
		t.Logf("%d exec probes in %s, %.1f a second: the agent used %.2f %% of a core (the aim is %.0f %%), "+
			"%s for each probe",
			ran, took.Round(time.Millisecond), float64(ran)/took.Seconds(), 100*share, 100*probeAim,
			(used / time.Duration(max(ran, 1))).Round(time.Microsecond))
		if ran >= int64(0.9*probedPods*took.Seconds()) && share < runawayShare {
			return
		}
	}
	t.Errorf("in none of %d times at least 0.9 probes a second of each pod ran, "+
		"and the agent used less than %.0f %% of a core", probeWatches, 100*runawayShare)
}
