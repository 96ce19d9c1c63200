//go:build integration

package integration

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/test/env"
)

// bystanders is how many pods run well beside one that misbehaves.
const bystanders = 10

// misbehaving are pods that take more than their share of something, and what is done about each.
// Each takes a fixed amount, so that nothing depends on how quickly it does.
var misbehaving = []struct {
	name, spec string
	// message is how the message of the pod's status begins; empty if the pod ends by itself.
	message string
	// signal is the label of the metric that counts the eviction.
	signal string
}{
	{
		name: "memory-hog",
		spec: `
restartPolicy: Never
containers:
  - {name: main, image: berth.local/web:v1, args: [alloc, "600"]}
`,
		message: "The node was low on resource: memory. Threshold quantity: 400Mi, available: ",
		signal:  "allocatableMemory.available",
	},
	{
		name: "fork-bomb", // the shell ends when it cannot fork
		spec: `
restartPolicy: Never
containers:
  - {name: main, image: berth.local/busybox:v1, command: [sh, -c, "while :; do sleep 1000000 & done"]}
`,
	},
	{
		name: "disk-filler",
		spec: `
restartPolicy: Never
containers:
  - name: main
    image: berth.local/busybox:v1
    command: [sh, -c, "dd if=/dev/zero of=/data/f bs=1M count=110; trap 'exit 0' TERM; sleep 1000000 & wait $!"]
    volumeMounts: [{name: data, mountPath: /data}]
volumes: [{name: data, emptyDir: {}}]
`,
		message: "The node was low on resource: ephemeral-storage. Threshold quantity: 60Mi, available: ",
		signal:  "nodefs.available",
	},
	{
		name: "inode-eater",
		spec: `
restartPolicy: Never
containers:
  - name: main
    image: berth.local/busybox:v1
    command:
      - sh
      - -c
      - "for d in $(seq 65); do mkdir /data/$d; cd /data/$d; touch $(seq 100); done;
        trap 'exit 0' TERM; sleep 1000000 & wait $!"
    volumeMounts: [{name: data, mountPath: /data}]
volumes: [{name: data, emptyDir: {}}]
`,
		message: "The node was low on resource: inodes. Threshold quantity: 2k, available: ",
		signal:  "nodefs.inodesFree",
	},
	{
		name: "log-flooder", // the agent bounds the logs of the node, so that they fill no disk
		spec: `
restartPolicy: Never
containers:
  - name: main
    image: berth.local/web:v1
    args: [flood, "100000000", "1000", "110000"]
    resources: {limits: {ephemeral-storage: 8Mi}}
`,
		message: "Pod ephemeral local storage usage exceeds the total limit of containers 8Mi. ",
		signal:  "ephemeralpodfs.limit",
	},
}

// TestMisbehavingPods has one pod after another misbehave beside pods that do not. That pod, and no
// other, is stopped with the kubelet's reason. No other pod restarts, and afterwards the node lacks
// nothing. It runs alone: a pod that is evicted has half a minute to end until another one is.
func TestMisbehavingPods(t *testing.T) {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		t.Skip("the working set of all pods includes what they write to files, in other amounts than under cgroup v1")
	}
	e := env.Containerd(t, env.Options{})
	a, err := e.NewAgent(t.Context(), env.AgentOptions{Kubelet: fmt.Sprintf(`
systemReserved: {memory: %dMi}
enforceNodeAllocatable: [pods]
evictionHard: {memory.available: 400Mi, nodefs.available: 60Mi, nodefs.inodesFree: "2000"}
evictionPressureTransitionPeriod: 1s
podPidsLimit: 100
containerLogMaxSize: 1Gi
`, memoryMiB(t)-900)})
	if err != nil {
		t.Fatal(err)
	}
	smallDisk(t, e, a)
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
	a.WaitUp(t)
	var names []string
	for i := range bystanders {
		names = append(names, "bystander-"+strconv.Itoa(i))
		put(t, a, names[i], `
containers:
  - name: main
    image: berth.local/web:v1
    args: [sleep]
    resources: {requests: {memory: 20Mi, ephemeral-storage: 2Mi}}
`)
	}
	a.WaitReady(t, names...)
	began := instances(t, a)
	evictions := map[string]int{}
	for _, c := range misbehaving {
		put(t, a, c.name, c.spec)
		if c.message == "" {
			waitPod(t, a, c.name, "ended", phase(corev1.PodFailed))
		} else {
			waitPod(t, a, c.name, "evicted", evicted(c.message))
			evictions[c.signal]++
		}
		env.Eventually(t, "the node to lack nothing after "+c.name, func() error {
			var status api.NodeStatus
			if err := json.Unmarshal([]byte(page(t, a, api.PathStatus)), &status); err != nil {
				return err
			}
			if len(status.Pressure) > 0 {
				return fmt.Errorf("it has %v", status.Pressure)
			}
			return nil
		})
		a.RemoveManifest(t, c.name+".yaml")
		a.WaitGone(t, c.name)
	}
	if now := instances(t, a); !maps.Equal(now, began) {
		t.Errorf("the other pods' containers are %v, and were %v", now, began)
	}
	a.WaitReady(t, names...)
	for signal, want := range evictions {
		if got := metric(t, a, fmt.Sprintf("kubelet_evictions{eviction_signal=%q}", signal)); got != strconv.Itoa(want) {
			t.Errorf("%s evictions because of %s, want %d", got, signal, want)
		}
	}
}

// instances returns the containers of all pods with their restart counts, by the pods' names.
func instances(t *testing.T, a *env.Agent) map[string]string {
	t.Helper()
	pods, err := a.Pods(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for i := range pods {
		for _, s := range pods[i].Status.ContainerStatuses {
			out[pods[i].Name] = fmt.Sprintf("%s, %d restarts", s.ContainerID, s.RestartCount)
		}
	}
	return out
}

// memoryMiB returns the machine's memory.
func memoryMiB(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^MemTotal: +(\d+) kB$`).FindSubmatch(text)
	if found == nil {
		t.Fatalf("no memory in %s", text)
	}
	kib, err := strconv.Atoi(string(found[1]))
	if err != nil {
		t.Fatal(err)
	}
	return kib / 1024
}

// smallDisk puts the agent's root directory and logs on a file system of their own, with few
// megabytes and few inodes. The environment unmounts it.
func smallDisk(t *testing.T, e *env.Env, a *env.Agent) {
	t.Helper()
	image := filepath.Join(e.Dir, "disk.img")
	for _, command := range []string{
		"truncate -s 160M " + image,
		"mkfs.ext4 -q -m 0 -O ^has_journal -N 8000 " + image,
		"mount -o loop " + image + " " + a.RootDir,
	} {
		fields := strings.Fields(command)
		if out, err := exec.CommandContext(t.Context(), fields[0], fields[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
	}
	logs := filepath.Join(a.RootDir, "logs-of-pods")
	if err := os.Mkdir(logs, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(logs, a.LogsDir, "", unix.MS_BIND, ""); err != nil {
		t.Fatalf("mount the small disk on %s: %v", a.LogsDir, err)
	}
}
