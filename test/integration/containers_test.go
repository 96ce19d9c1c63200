//go:build integration

package integration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/test/env"
)

// valuesReach checks that environment and files from ConfigMaps, Secrets and the pod itself reach
// containers, that init containers run in order, and that containers share an emptyDir.
func valuesReach(t *testing.T, e *env.Env, a *env.Agent) {
	a.WriteManifest(t, "objects.yaml", `
apiVersion: v1
kind: ConfigMap
metadata: {name: values}
data: {COLOR: blue, "app.conf": "a=1\n"}
---
apiVersion: v1
kind: Secret
metadata: {name: values}
stringData: {password: hush}
`)
	put(t, a, "values", `
terminationGracePeriodSeconds: 1
initContainers:
  - name: one
    image: berth.local/busybox:v1
    command: [sh, -c, 'sleep 1; echo one >> /shared/order']
    volumeMounts: [{name: shared, mountPath: /shared}]
  - name: two
    image: berth.local/busybox:v1
    command: [sh, -c, 'echo two >> /shared/order']
    volumeMounts: [{name: shared, mountPath: /shared}]
containers:
  - name: main
    image: berth.local/web:v1
    args: [sleep]
    envFrom:
      - prefix: CFG_
        configMapRef: {name: values}
      - configMapRef: {name: absent, optional: true}
    env:
      - {name: PLAIN, value: "x$(CFG_COLOR)"}
      - {name: PASSWORD, valueFrom: {secretKeyRef: {name: values, key: password}}}
      - {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
      - {name: LIMIT, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}}
    resources: {limits: {memory: 32Mi}}
    volumeMounts:
      - {name: shared, mountPath: /shared}
      - {name: conf, mountPath: /conf}
      - {name: conf, mountPath: /one.conf, subPath: app.conf}
      - {name: secret, mountPath: /secret}
      - {name: projected, mountPath: /projected}
  - name: side
    image: berth.local/busybox:v1
    command: [sh, -c, 'trap "exit 0" TERM; while true; do sleep 1 & wait $!; done']
    volumeMounts: [{name: shared, mountPath: /shared}]
volumes:
  - {name: shared, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
  - {name: conf, configMap: {name: values}}
  - {name: secret, secret: {secretName: values, defaultMode: 0400}}
  - name: projected
    projected:
      sources:
        - configMap: {name: values, items: [{key: COLOR, path: color}]}
        - downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}
`)
	a.WaitReady(t, "values")
	environment := inside(t, a, "values", "main", "/testapp", "env")
	for _, want := range []string{
		"CFG_COLOR=blue", "PLAIN=xblue", "PASSWORD=hush", "POD=values-node", "LIMIT=32", "HOSTNAME=values-node",
	} {
		if !strings.Contains("\n"+environment, "\n"+want+"\n") {
			t.Errorf("the environment has no %s:\n%s", want, environment)
		}
	}
	for path, want := range map[string]string{
		"/shared/order": "one\ntwo\n", "/conf/app.conf": "a=1\n", "/one.conf": "a=1\n", "/secret/password": "hush",
		"/projected/color": "blue", "/projected/name": "values-node",
	} {
		if got := inside(t, a, "values", "main", "/testapp", "cat", path); got != want {
			t.Errorf("%s has %q, want %q", path, got, want)
		}
	}
	inside(t, a, "values", "side", "sh", "-c", "echo three >> /shared/order")
	if got := inside(t, a, "values", "main", "/testapp", "cat", "/shared/order"); got != "one\ntwo\nthree\n" {
		t.Errorf("what the other container wrote is seen as %q", got)
	}
	if got := inside(t, a, "values", "side", "sh", "-c",
		"df -T /shared | grep -c tmpfs || true"); strings.TrimSpace(got) != "1" {
		t.Errorf("the emptyDir of medium Memory is no tmpfs: %q", got)
	}
	removed(t, e, a, "values")
	a.RemoveManifest(t, "objects.yaml")
}

// hooksRun checks that a postStart hook that fails ends its container and reports it, and that the
// agent waits for a hook that runs.
func hooksRun(t *testing.T, e *env.Env, a *env.Agent) {
	put(t, a, "badhook", `
restartPolicy: Never
terminationGracePeriodSeconds: 1
containers:
  - name: main
    image: berth.local/web:v1
    args: [serve, --stop-code=3]
    lifecycle: {postStart: {exec: {command: [/testapp, exit, "4"]}}}
`)
	put(t, a, "goodhook", `
terminationGracePeriodSeconds: 5
containers:
  - name: main
    image: berth.local/web:v1
    args: [serve]
    lifecycle:
      postStart: {exec: {command: [/testapp, write, /www/started, "yes"]}}
      preStop: {sleep: {seconds: 1}}
`)
	waitEvent(t, a, "FailedPostStartHook", "badhook")
	waitEvent(t, a, "FailedPostStartHook", "PostStartHook failed: the command exited with 4")
	waitPod(t, a, "badhook", "ended", phase(corev1.PodFailed))
	a.WaitReady(t, "goodhook")
	if body, err := ask(t, "GET", podOf(t, a, "goodhook"), "/started"); err != nil || body != "yes\n" {
		t.Errorf("what the hook wrote is %q, %v", body, err)
	}
	removed(t, e, a, "badhook")
	removed(t, e, a, "goodhook")
}

// endsAreReported checks exit codes, reasons, and termination messages from the file and from the
// log.
func endsAreReported(t *testing.T, e *env.Env, a *env.Agent) {
	put(t, a, "ends", `
restartPolicy: Never
containers:
  - name: well
    image: berth.local/web:v1
    args: [exit, "0", 0s, all is well]
  - name: ill
    image: berth.local/web:v1
    args: [exit, "42", 0s, it broke]
  - name: fallback
    image: berth.local/busybox:v1
    command: [sh, -c, 'echo from the log; exit 3']
    terminationMessagePolicy: FallbackToLogsOnError
  - name: killed
    image: berth.local/busybox:v1
    command: [sh, -c, 'kill -KILL $$; sleep 1; exit 9']
`)
	p := waitPod(t, a, "ends", "ended", phase(corev1.PodFailed))
	for _, want := range []struct {
		name    string
		code    int32
		reason  string
		message string
	}{
		{"well", 0, "Completed", "all is well"},
		{"ill", 42, "Error", "it broke"},
		{"fallback", 3, "Error", "from the log\n"},
	} {
		end := statusOf(p, want.name).State.Terminated
		if end == nil || end.ExitCode != want.code || end.Reason != want.reason || end.Message != want.message {
			t.Errorf("%s ended as %+v, want %+v", want.name, end, want)
		}
		if end != nil && (end.StartedAt.IsZero() || end.FinishedAt.IsZero()) {
			t.Errorf("%s has no times: %+v", want.name, end)
		}
	}
	removed(t, e, a, "ends")
}

// crashLoops checks that a container that fails again and again is restarted with longer and longer
// delays, and that its last end is shown.
func crashLoops(t *testing.T, e *env.Env, a *env.Agent) {
	put(t, a, "crasher", `
containers:
  - name: main
    image: berth.local/busybox:v1
    command: [sh, -c, 'echo attempt; exit 5']
  - name: fine
    image: berth.local/web:v1
    args: [sleep]
`)
	p := waitPod(t, a, "crasher", "backing off", waitingFor("CrashLoopBackOff"))
	c := statusOf(p, "main")
	delay := 10 * time.Second << max(0, c.RestartCount-1) // the first restart is at once
	if want := fmt.Sprintf("back-off %s restarting failed container=main pod=crasher-node_default(",
		delay); !strings.Contains(c.State.Waiting.Message, want) {
		t.Errorf("after %d restarts the message is %q, want %q", c.RestartCount, c.State.Waiting.Message, want)
	}
	if end := c.LastTerminationState.Terminated; end == nil || end.ExitCode != 5 || c.RestartCount < 1 {
		t.Errorf("the crashing container is %+v", c)
	}
	if fine := statusOf(p, "fine"); fine.State.Running == nil || fine.RestartCount != 0 {
		t.Errorf("the other container is %+v", fine)
	}
	waitEvent(t, a, "BackOff", "crasher")
	env.Eventually(t, "why to tell of the next attempt", func() error {
		if timeline := why(t, a, "crasher"); timeline.NextRetry == nil || timeline.WaitsFor == "" {
			return fmt.Errorf("it says %+v", timeline)
		}
		return nil
	})
	waitPod(t, a, "crasher", "restarted after its backoff", func(p *corev1.Pod) error {
		if n := statusOf(p, "main").RestartCount; n <= c.RestartCount {
			return fmt.Errorf("%d restarts", n)
		}
		return nil
	})
	removed(t, e, a, "crasher")
}

// memoryEnds checks that a container that exceeds its memory limit is shown as OOMKilled.
func memoryEnds(t *testing.T, e *env.Env, a *env.Agent) {
	put(t, a, "greedy", `
restartPolicy: Never
containers:
  - name: main
    image: berth.local/web:v1
    args: [alloc, "128"]
    resources: {limits: {memory: 32Mi}}
`)
	p := waitPod(t, a, "greedy", "ended", phase(corev1.PodFailed))
	if end := statusOf(p, "main").State.Terminated; end == nil || end.Reason != "OOMKilled" || end.ExitCode != 137 {
		t.Errorf("it ended as %+v", end)
	}
	removed(t, e, a, "greedy")
}

// cgroupsLimit checks that cgroups have the kubelet's names and the pods' limits.
func cgroupsLimit(t *testing.T, e *env.Env, a *env.Agent) {
	for name, resources := range map[string]string{
		"guaranteed": "{limits: {cpu: 200m, memory: 64Mi}}",
		"burstable":  "{requests: {cpu: 100m}, limits: {memory: 48Mi}}", "besteffort": "{}",
	} {
		put(t, a, name, strings.TrimSpace(sleeper)+"\n    resources: "+resources)
	}
	a.WaitReady(t, "guaranteed", "burstable", "besteffort")
	if unified() {
		t.Log("limits are looked at on cgroup v1 only")
	}
	for name, want := range map[string]map[string]string{
		"guaranteed": {
			"cpu/cpu.shares": "204", "cpu/cpu.cfs_quota_us": "20000", "memory/memory.limit_in_bytes": "67108864",
		},
		"burstable": {
			"cpu/cpu.shares": "102", "cpu/cpu.cfs_quota_us": "-1", "memory/memory.limit_in_bytes": "50331648",
		},
		"besteffort": {"cpu/cpu.shares": "2", "cpu/cpu.cfs_quota_us": "-1"},
	} {
		p := podOf(t, a, name)
		_, id, _ := strings.Cut(statusOf(p, "main").ContainerID, "://")
		for _, dir := range []string{podCgroup(e, "memory", p), filepath.Join(podCgroup(e, "memory", p), id)} {
			if _, err := os.Stat(dir); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if unified() {
			continue
		}
		for file, value := range want {
			controller, file := filepath.Split(file)
			for _, below := range []string{"", id} {
				got := lines(filepath.Join(podCgroup(e, controller, p), below, file))
				if len(got) != 1 || got[0] != value {
					t.Errorf("%s: %s of %q is %q, want %s", name, file, below, got, value)
				}
			}
		}
	}
	for _, name := range []string{"guaranteed", "burstable", "besteffort"} {
		removed(t, e, a, name)
	}
}

// hostNetwork checks that a pod on the host's network has the host's address, interfaces and names.
func hostNetwork(t *testing.T, e *env.Env, a *env.Agent) {
	put(t, a, "onhost", `
hostNetwork: true
terminationGracePeriodSeconds: 1
containers:
  - name: main
    image: berth.local/busybox:v1
    command: [sh, -c, 'trap "exit 0" TERM; while true; do sleep 1 & wait $!; done']
`)
	a.WaitReady(t, "onhost")
	p := podOf(t, a, "onhost")
	if p.Status.PodIP == "" || p.Status.PodIP != p.Status.HostIP {
		t.Errorf("its address is %q, the host's %q", p.Status.PodIP, p.Status.HostIP)
	}
	host, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(inside(t, a, "onhost", "main", "readlink", "/proc/self/ns/net")); got != host {
		t.Errorf("its network namespace is %s, the host's %s", got, host)
	}
	hosts, err := os.ReadFile("/etc/hosts")
	if err != nil {
		t.Fatal(err)
	}
	if got := inside(t, a, "onhost", "main", "cat", "/etc/hosts"); !strings.Contains(got,
		strings.TrimSpace(string(hosts))) {
		t.Errorf("its /etc/hosts is %q, the host's %q", got, hosts)
	}
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.TrimSpace(inside(t, a, "onhost", "main", "hostname")); got != name {
		t.Errorf("its name is %q, the host's %q", got, name)
	}
	removed(t, e, a, "onhost")
}

// namesResolve checks that a pod's /etc/hosts and resolv.conf are as its spec says, also after a
// container has restarted.
func namesResolve(t *testing.T, e *env.Env, a *env.Agent) {
	put(t, a, "named", `
hostname: alpha
subdomain: greek
terminationGracePeriodSeconds: 1
hostAliases:
  - {ip: 192.0.2.7, hostnames: [seven, seven.example]}
dnsPolicy: None
dnsConfig:
  nameservers: [192.0.2.53]
  searches: [example.test]
  options: [{name: ndots, value: "3"}]
containers:
  - name: main
    image: berth.local/web:v1
    args: [serve]
`)
	a.WaitReady(t, "named")
	p := podOf(t, a, "named")
	check := func() {
		t.Helper()
		hosts := inside(t, a, "named", "main", "/testapp", "cat", "/etc/hosts")
		for _, want := range []string{
			p.Status.PodIP + "\t", "alpha", "192.0.2.7\tseven\tseven.example", "127.0.0.1\tlocalhost",
		} {
			if !strings.Contains(hosts, want) {
				t.Errorf("/etc/hosts has no %q:\n%s", want, hosts)
			}
		}
		resolv := inside(t, a, "named", "main", "/testapp", "cat", "/etc/resolv.conf")
		for _, want := range []string{"nameserver 192.0.2.53", "search example.test", "options ndots:3"} {
			if !strings.Contains(resolv, want) {
				t.Errorf("resolv.conf has no %q:\n%s", want, resolv)
			}
		}
	}
	check()
	_, _ = ask(t, "GET", p, "/exit?code=1") // the server ends while it answers
	waitPod(t, a, "named", "restarted", func(p *corev1.Pod) error {
		if statusOf(p, "main").RestartCount != 1 || !env.Ready(p) {
			return errors.New("not restarted")
		}
		return nil
	})
	check()
	removed(t, e, a, "named")
}
