package env

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Bystanders is how many pods run well beside one that misbehaves.
const Bystanders = 10

// BystanderSpec is the YAML of such a pod's spec.
const BystanderSpec = `
containers:
  - name: main
    image: berth.local/web:v1
    args: [sleep]
    resources: {requests: {memory: 20Mi, ephemeral-storage: 2Mi}}
`

// Hog is a pod that takes more than its share of something. It takes a fixed amount, so that
// nothing depends on how quickly it does.
type Hog struct {
	// Name is the pod's, and Spec is the YAML of its spec.
	Name, Spec string
	// Message is how the message of the pod's status begins when it was evicted; empty if the pod
	// ends by itself.
	Message string
	// Signal is the label of the metric that counts the eviction.
	Signal string
}

// Hogs are pods that misbehave on a node with [Env.HogOptions] and [Env.SmallDisk].
var Hogs = []Hog{
	{
		Name: "memory-hog",
		Spec: `
restartPolicy: Never
containers:
  - {name: main, image: berth.local/web:v1, args: [alloc, "600"]}
`,
		Message: "The node was low on resource: memory. Threshold quantity: 400Mi, available: ",
		Signal:  "allocatableMemory.available",
	},
	{
		Name: "fork-bomb", // the shell ends when it cannot fork
		Spec: `
restartPolicy: Never
containers:
  - {name: main, image: berth.local/busybox:v1, command: [sh, -c, "while :; do sleep 1000000 & done"]}
`,
	},
	{
		Name: "disk-filler",
		Spec: `
restartPolicy: Never
containers:
  - name: main
    image: berth.local/busybox:v1
    command: [sh, -c, "dd if=/dev/zero of=/data/f bs=1M count=110; trap 'exit 0' TERM; sleep 1000000 & wait $!"]
    volumeMounts: [{name: data, mountPath: /data}]
volumes: [{name: data, emptyDir: {}}]
`,
		Message: "The node was low on resource: ephemeral-storage. Threshold quantity: 60Mi, available: ",
		Signal:  "nodefs.available",
	},
	{
		Name: "inode-eater",
		Spec: `
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
		Message: "The node was low on resource: inodes. Threshold quantity: 2k, available: ",
		Signal:  "nodefs.inodesFree",
	},
	{
		Name: "log-flooder", // the agent bounds the logs of the node, so that they fill no disk
		Spec: `
restartPolicy: Never
containers:
  - name: main
    image: berth.local/web:v1
    args: [flood, "100000000", "1000", "110000"]
    resources: {limits: {ephemeral-storage: 8Mi}}
`,
		Message: "Pod ephemeral local storage usage exceeds the total limit of containers 8Mi. ",
		Signal:  "ephemeralpodfs.limit",
	},
}

// HogOptions returns the YAML of a KubeletConfiguration whose thresholds each of [Hogs] crosses.
// The pods have 900 MiB of the machine's memory.
func HogOptions(t testing.TB) string {
	t.Helper()
	return fmt.Sprintf(`
systemReserved: {memory: %dMi}
enforceNodeAllocatable: [pods]
evictionHard: {memory.available: 400Mi, nodefs.available: 60Mi, nodefs.inodesFree: "2000"}
evictionPressureTransitionPeriod: 1s
podPidsLimit: 100
containerLogMaxSize: 1Gi
`, memoryMiB(t)-900)
}

// memoryMiB returns the machine's memory.
func memoryMiB(t testing.TB) int {
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

// SmallDisk puts the root directory and the logs of an agent that does not run yet on a file system
// of their own, with few megabytes and few inodes. The environment unmounts it.
func (e *Env) SmallDisk(t testing.TB, a *Agent) {
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
