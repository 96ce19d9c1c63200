//go:build integration

package integration

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/berthd/berth/test/env"
)

const (
	// hostileVariable says how long the hostile load lasts, for example 1h. Then it has
	// longVolumes volumes of a CSI driver, and not shortVolumes.
	hostileVariable = "BERTH_TEST_HOSTILE"
	hostileTime     = 2 * time.Minute
	shortVolumes    = 60
	longVolumes     = 500
	// volumesOfPod is how many of them one pod has.
	volumesOfPod = 20
	// slowClients is how many of them each listener has. Three of four want costly answers, which
	// are more than there are places for such requests. stormPods is how many pods fail their probes
	// each second. logFollowers follow the logs of logPods pods.
	slowClients  = 64
	stormPods    = 10
	logFollowers = 300
	logPods      = 10
	// answerLimit is less than how long a command waits, and many times what an answer takes on an
	// idle machine. The test's log has the measured time.
	answerLimit = 25 * time.Second
	// mostOfStart is how many times the start of a command that asks nobody the median of "berth ps"
	// may take. Both wait for the machine's cores alike, so this holds on a busy machine, too.
	mostOfStart = 20
	// slow is the time that an answer should not take. The test's log counts those that do.
	slow = time.Second
)

// hostile is a node under load that wants to break it.
type hostile struct {
	a   *env.Agent
	nfs *env.SilentServer
	// readOnly, healthz and api are the addresses of the agent's ports.
	readOnly, healthz, api string
	// calm are the containers of the pods to which nothing may happen, by the pod's name.
	calm map[string]string
	// took are the times that answers took, by the command or port. memory is the agent's memory after
	// each answer, in KiB.
	took   map[string][]time.Duration
	memory []int
}

// TestHostileLoad has slow clients on each listener, an NFS server that fell silent, followers of
// logs, probes that fail all the time, many volumes of a CSI driver and a fork bomb at the same
// time. The node goes on: every command is answered, no memory is lost, and nothing restarts. It
// runs alone: beside it, probes of other tests' pods time out, as they would on any such machine.
func TestHostileLoad(t *testing.T) {
	lasts, volumes := hostileTime, shortVolumes
	if text := os.Getenv(hostileVariable); text != "" {
		var err error
		if lasts, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
		volumes = longVolumes
	}
	e := env.Containerd(t, env.Options{})
	h := startHostile(t, e)
	d := newCSIDriver(t, e, h.a, "-can", "STAGE_UNSTAGE_VOLUME,GET_VOLUME_STATS")
	d.start(t)
	h.putPods(t, volumes)
	h.nfs.FallSilent()
	agent := h.a.PID()

	ctx, stop := context.WithTimeout(t.Context(), lasts)
	defer stop()
	var clients sync.WaitGroup
	for _, dial := range h.dialers() {
		for i := range slowClients {
			clients.Go(func() { slowClient(ctx, dial, i) })
		}
	}
	for i := range logFollowers {
		clients.Go(func() { h.follow(ctx, i) })
	}
	h.ask(ctx, t)
	clients.Wait()
	early, late := h.highest()
	t.Logf("answers: %s; the agent's memory: %d KiB in the first half, %d KiB in the second", h.times(), early, late)
	if ps, start := median(h.took["berth ps"]), median(h.took["berth ps --help"]); ps > mostOfStart*start {
		t.Errorf("half of the calls of berth ps took over %v; a command that asks nobody takes %v", ps, start)
	}
	if late > early+early/4 {
		t.Errorf("the agent's memory grew from %d to %d KiB", early, late)
	}
	if h.a.PID() != agent || !h.a.Running() {
		t.Error("the agent has ended")
	}
	for name, before := range h.calm {
		if after := running(podOf(t, h.a, name)); after != before {
			t.Errorf("the pod %s was %s and is %s", name, before, after)
		}
	}
	h.end(t, e)
}

// startHostile starts an agent with every listener, and the server of a network file system.
func startHostile(t *testing.T, e *env.Env) *hostile {
	t.Helper()
	helper, export := t.TempDir(), t.TempDir()
	writeFile(t, filepath.Join(helper, "mount.nfs"), fakeNFS, 0o755)
	h := &hostile{
		nfs: env.MountSilent(t, export), calm: map[string]string{}, took: map[string][]time.Duration{},
	}
	var ports [3]string
	for i := range ports {
		port, err := env.FreePort()
		if err != nil {
			t.Fatal(err)
		}
		ports[i] = strconv.Itoa(port)
	}
	h.readOnly, h.healthz, h.api = "127.0.0.1:"+ports[0], "127.0.0.1:"+ports[1], "127.0.0.1:"+ports[2]
	h.a = e.StartAgent(t, env.AgentOptions{
		Env: []string{"PATH=" + helper + ":" + os.Getenv("PATH")},
		Kubelet: "enableServer: true\naddress: 127.0.0.1\nreadOnlyPort: " + ports[0] + "\nhealthzPort: " + ports[1] +
			"\nport: " + ports[2] + "\npodPidsLimit: 60\nauthentication: {anonymous: {enabled: true}}\n" +
			"authorization: {mode: AlwaysAllow}\n",
	})
	h.a.WaitUp(t)
	h.a.WriteManifest(t, "hostile-objects.yaml", strings.Replace(persistent("silent", "silent",
		"nfs: {server: nfs.invalid, path: "+export+"}"), "[ReadWriteOnce, ReadOnlyMany]", "[ReadWriteOnce]", 1)+
		claim("silent", "silent", "")+
		"apiVersion: storage.k8s.io/v1\nkind: CSIDriver\nmetadata: {name: "+csiName+
		"}\nspec: {volumeLifecycleModes: [Ephemeral]}\n")
	return h
}

// putPods starts the pods, and waits until all that can run do.
func (h *hostile) putPods(t *testing.T, volumes int) {
	t.Helper()
	const limits = "resources: {limits: {cpu: 100m, memory: 64Mi}}"
	ready := []string{"calm", "on-nfs"}
	put(t, h.a, "calm", sleeper+"    livenessProbe: {exec: {command: [/testapp, exit, \"0\"]}, periodSeconds: 5, "+
		"timeoutSeconds: 30}\n")
	put(t, h.a, "on-nfs", "terminationGracePeriodSeconds: 1\ncontainers:\n"+
		shell("main", "volumeMounts: [{name: v, mountPath: /v}]")+
		"volumes: [{name: v, persistentVolumeClaim: {claimName: silent}}]\n")
	for i := range logPods {
		name := fmt.Sprintf("talks-%d", i)
		ready = append(ready, name)
		put(t, h.a, name, "terminationGracePeriodSeconds: 1\ncontainers:\n  - name: main\n"+
			"    image: berth.local/busybox:v1\n    "+limits+"\n"+
			"    command: [sh, -c, 'trap \"exit 0\" TERM; while true; do echo something to read; sleep 1 & wait $!; done']\n")
	}
	for i := range stormPods {
		put(t, h.a, fmt.Sprintf("fails-%d", i), "terminationGracePeriodSeconds: 1\ncontainers:\n"+
			shell("main", "readinessProbe: {tcpSocket: {port: 9}, periodSeconds: 1}"))
	}
	for i := range volumes / volumesOfPod {
		name := fmt.Sprintf("csi-%d", i)
		ready = append(ready, name)
		var mounts, list strings.Builder
		for v := range volumesOfPod {
			fmt.Fprintf(&mounts, "{name: v%d, mountPath: /v%d}, ", v, v)
			fmt.Fprintf(&list, "  - {name: v%d, csi: {driver: %s, volumeAttributes: {inline: 'yes'}}}\n", v, csiName)
		}
		put(t, h.a, name, "terminationGracePeriodSeconds: 1\ncontainers:\n"+
			shell("main", "volumeMounts: ["+mounts.String()+"]")+"volumes:\n"+list.String())
	}
	put(t, h.a, "bomb", "terminationGracePeriodSeconds: 1\ncontainers:\n  - name: main\n"+
		"    image: berth.local/busybox:v1\n    "+limits+"\n"+
		"    command: [sh, -c, 'while true; do sh -c \"b() { b | b & }; b\"; sleep 1; done']\n")
	for _, name := range ready { // one after the other, so that the wait lasts as long as pods become ready
		h.a.WaitReady(t, name)
		h.calm[name] = running(podOf(t, h.a, name))
	}
}

// dialers connect to each listener.
func (h *hostile) dialers() []func(context.Context) (net.Conn, error) {
	tcp := func(address string) func(context.Context) (net.Conn, error) {
		return func(ctx context.Context) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "tcp", address)
		}
	}
	return []func(context.Context) (net.Conn, error){
		func(ctx context.Context) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", h.a.Socket)
		},
		tcp(h.readOnly), tcp(h.healthz),
		func(ctx context.Context) (net.Conn, error) {
			d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // the attacker's
			return d.DialContext(ctx, "tcp", h.api)
		},
	}
}

// slowClient is a client that sends or reads slowly, in one of four ways. It comes again when it is
// cut off.
func slowClient(ctx context.Context, dial func(context.Context) (net.Conn, error), i int) {
	const many = 100
	for ctx.Err() == nil {
		conn, err := dial(ctx)
		if err != nil {
			pause(ctx, time.Second)
			continue
		}
		stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
		switch i % 16 {
		case 0: // a header that never ends
			_, err = io.WriteString(conn, "GET /pods HTTP/1.1\r\nHost: x\r\n")
			for err == nil {
				pause(ctx, time.Second)
				_, err = io.WriteString(conn, "A: b\r\n")
			}
		case 1: // a body that never comes
			_, _ = io.WriteString(conn, "POST /stats/summary HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n")
			_, _ = io.Copy(io.Discard, conn)
		case 2, 3: // answers that nobody reads, until the server gives up
			_, err = io.WriteString(conn, strings.Repeat("GET /pods HTTP/1.1\r\nHost: x\r\n\r\n", many))
			for err == nil {
				pause(ctx, time.Second)
				_, err = io.WriteString(conn, "GET /pods HTTP/1.1\r\nHost: x\r\n\r\n")
			}
		default: // costly answers that are read slowly
			_, err = io.WriteString(conn, strings.Repeat(
				"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\nGET /stats/summary HTTP/1.1\r\nHost: x\r\n\r\n", many))
			for buffer := make([]byte, 4096); err == nil; _, err = conn.Read(buffer) {
				pause(ctx, time.Second)
			}
		}
		stop()
		_ = conn.Close()
		pause(ctx, 100*time.Millisecond)
	}
}

// pause waits; a hostile client has its own pace.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// follow follows the log of one of the pods that talk. It comes again when it is refused.
func (h *hostile) follow(ctx context.Context, i int) {
	for ctx.Err() == nil {
		resp, err := h.a.Get(ctx, fmt.Sprintf("/containerLogs/default/talks-%d-%s/main?follow=true", i%logPods,
			env.NodeName))
		if err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
		pause(ctx, time.Second)
	}
}

// ask runs commands and asks the ports until the context ends.
func (h *hostile) ask(ctx context.Context, t *testing.T) {
	t.Helper()
	client := &http.Client{Timeout: 2 * answerLimit}
	defer client.CloseIdleConnections()
	for ctx.Err() == nil {
		for _, verb := range [][]string{
			{"ps"}, {"ps", "--help"}, {"why", "calm"}, {"top"}, {"events"}, {"exec", "calm", "--", "/testapp", "exit", "0"},
		} {
			asked := time.Now()
			_, errOut, code := h.a.CLI(verb...)
			h.note(t, "berth "+strings.Join(verb[:min(len(verb), 2)], " "), time.Since(asked))
			if code != 0 {
				t.Errorf("berth %v: code %d, %s", verb, code, errOut)
			}
		}
		for name, url := range map[string]string{
			"read-only port": "http://" + h.readOnly + "/pods", "healthz": "http://" + h.healthz + "/healthz",
		} {
			asked := time.Now()
			resp, err := client.Get(url)
			h.note(t, name, time.Since(asked))
			if err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				t.Errorf("%s: %s", name, resp.Status)
			}
		}
		pause(ctx, 200*time.Millisecond)
	}
}

// highest returns the agent's highest memory in the first half of the answers, and in the second.
func (h *hostile) highest() (early, late int) {
	half := len(h.memory) / 2
	return slices.Max(h.memory[:half]), slices.Max(h.memory[half:])
}

// times returns the median and the longest time of each kind of answer, and how many were slow, as
// text.
func (h *hostile) times() string {
	var out []string
	for _, who := range slices.Sorted(maps.Keys(h.took)) {
		took := slices.Sorted(slices.Values(h.took[who]))
		late, _ := slices.BinarySearch(took, slow)
		out = append(out, fmt.Sprintf("%s %v, at most %v, %d of %d over %v", who,
			median(took).Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond), len(took)-late, len(took), slow))
	}
	return strings.Join(out, "; ")
}

// median returns the median of some times.
func median(times []time.Duration) time.Duration {
	return slices.Sorted(slices.Values(times))[len(times)/2]
}

// note notes how long an answer took, and the agent's memory after it.
func (h *hostile) note(t *testing.T, who string, d time.Duration) {
	t.Helper()
	if who == "berth ps" && d > slow {
		t.Logf("%s took %v at %s", who, d.Round(time.Millisecond), time.Now().UTC().Format(time.TimeOnly))
	}
	h.memory = append(h.memory, residentKiB(t, h.a.PID()))
	h.took[who] = append(h.took[who], d)
	if d > answerLimit {
		t.Errorf("%s took %v", who, d)
	}
}

// residentKiB returns the memory of a process.
func residentKiB(t *testing.T, pid int) int {
	t.Helper()
	for _, line := range lines(fmt.Sprintf("/proc/%d/status", pid)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(value), " kB"))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("process %d has no memory", pid)
	return 0
}

// end lets the file system's server go, as an operator would, and removes all pods.
func (h *hostile) end(t *testing.T, e *env.Env) {
	t.Helper()
	h.nfs.Close()
	files, err := filepath.Glob(filepath.Join(h.a.Manifests, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if name := filepath.Base(file); name != "hostile-objects.yaml" {
			h.a.RemoveManifest(t, name)
		}
	}
	env.Eventually(t, "all pods to be gone", func() error {
		pods, err := h.a.Pods(t.Context())
		if err == nil && len(pods) > 0 {
			err = fmt.Errorf("%s", env.Describe(pods))
		}
		return err
	})
	nothingLeft(t, e.Leaks)
}
