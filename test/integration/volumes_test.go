//go:build integration

package integration

import (
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/test/env"
)

// TestVolumes mounts volumes of every kind into pods on one agent, and reads them in the
// containers. Afterwards nothing may be left.
func TestVolumes(t *testing.T) {
	t.Parallel()
	e := env.Containerd(t, env.Options{})
	helper := t.TempDir()
	writeFile(t, filepath.Join(helper, "mount.nfs"), fakeNFS, 0o755)
	a := e.StartAgent(t, env.AgentOptions{Env: []string{"PATH=" + helper + ":" + os.Getenv("PATH")}})
	a.WaitUp(t)
	t.Run("pods", func(t *testing.T) {
		onOneAgent(t, e, a, podTests{
			"emptyDir": emptyDirs, "hostPath": hostPaths, "files": fileVolumes, "subPath": subPaths,
			"race":        subPathRace,
			"propagation": propagation, "read-only": readOnlyMounts, "fsGroup": groupsOwnVolumes,
			"images":      imageVolumes,
			"environment": environmentReaches, "refused": refusedVolumes, "nfs": nfsMounts, "claims": claims,
		})
	})
	t.Run("restart", func(t *testing.T) { volumesOutliveAgent(t, e, a) })
	nothingLeft(t, e.Leaks)
}

// TestVolumesOnDebian checks that a pod reports what the host's old containerd cannot do, and that
// the rest works there, too.
func TestVolumesOnDebian(t *testing.T) {
	t.Parallel()
	e := env.Containerd(t, env.Options{Version: env.ContainerdDebian})
	a := e.StartAgent(t, env.AgentOptions{})
	a.WaitUp(t)
	t.Run("pods", func(t *testing.T) {
		tests := podTests{
			"emptyDir": emptyDirs, "files": fileVolumes, "subPath": subPaths, "propagation": propagation,
		}
		if e.Native { // which does all of it without containerd
			tests["images"], tests["read-only"] = imageVolumes, readOnlyMounts
		} else {
			tests["lacking"] = oldRuntimeLacks
		}
		onOneAgent(t, e, a, tests)
	})
	nothingLeft(t, e.Leaks)
}

func writeFile(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// shell is the spec of a busybox container that waits, with more fields.
func shell(name string, fields ...string) string {
	return "  - name: " + name +
		"\n    image: berth.local/busybox:v1\n    command: [sh, -c, 'trap \"exit 0\" TERM; while true; " +
		"do sleep 1 & wait $!; done']\n    " +
		strings.Join(fields, "\n    ") + "\n"
}

// seen runs commands in a container, one after the other, with sh. It compares what each command
// prints with the text that follows the command.
func seen(t *testing.T, a *env.Agent, pod, container string, commandsAndOutputs ...string) {
	t.Helper()
	for pair := range slices.Chunk(commandsAndOutputs, 2) {
		command, text := pair[0], pair[1]
		if got := strings.TrimSpace(inside(t, a, pod, container, "sh", "-c",
			"("+command+") 2>&1 || true")); got != text {
			t.Errorf("%s of %s: %s gives %q, want %q", container, pod, command, got, text)
		}
	}
}

// restarts ends the container main of a pod that has not restarted yet, and waits until it runs
// again.
func restarts(t *testing.T, a *env.Agent, pod string) {
	t.Helper()
	// The command may end with its container, so its exit code says nothing.
	_, _, _ = a.CLI("exec", "-q", pod, "-c", "main", "--", "sh", "-c", "kill -TERM 1")
	waitPod(t, a, pod, "restarted", func(p *corev1.Pod) error {
		if c := statusOf(p, "main"); c.RestartCount != 1 || !env.Ready(p) {
			return fmt.Errorf("restarted %d times", c.RestartCount)
		}
		return nil
	})
}

// emptyDirs checks volumes on disk and in memory. The size of a volume in memory is the smaller of
// its own limit and the pod's. Containers share the volumes, and restarts keep them.
func emptyDirs(t *testing.T, e *env.Env, a *env.Agent) {
	put(t, a, "empty", "terminationGracePeriodSeconds: 1\ncontainers:\n"+
		shell("main", "resources: {limits: {memory: 8Mi}}",
			"volumeMounts: [{name: disk, mountPath: /disk}, {name: small, mountPath: /small}, {name: large, "+
				"mountPath: /large}]")+
		shell("other", "resources: {limits: {memory: 8Mi}}", "securityContext: {runAsUser: 1000}",
			"volumeMounts: [{name: disk, mountPath: /disk}, {name: small, mountPath: /small}]")+
		`volumes:
  - {name: disk, emptyDir: {}}
  - {name: small, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
  - {name: large, emptyDir: {medium: Memory, sizeLimit: 1Gi}}
`)
	a.WaitReady(t, "empty")
	seen(t, a, "empty", "main",
		"stat -c %a /disk", "777", "stat -c %a /small", "1777", "stat -f -c %T /small", "tmpfs",
		"df -k /small | tail -1 | awk '{print $2}'", "1024", "df -k /large | tail -1 | awk '{print $2}'", "16384",
		"dd if=/dev/zero of=/small/big bs=64k count=32 2>&1 | grep -o 'No space left on device'",
		"No space left on device", "rm /small/big; echo $?", "0",
	)
	seen(t, a, "empty", "other", "echo mine >/disk/file && cat /disk/file", "mine",
		"echo more >/small/file; cat /small/file", "more")
	restarts(t, a, "empty")
	seen(t, a, "empty", "main", "cat /disk/file /small/file", "mine\nmore")
	removed(t, e, a, "empty")
}

// hostPaths checks that each type of hostPath that fits is mounted. If the type does not fit, the
// pod waits and reports it in the kubelet's words.
func hostPaths(t *testing.T, e *env.Env, a *env.Agent) {
	dir := t.TempDir()
	writeFile(t, dir+"/file", "of the host\n", 0o644)
	if err := os.Mkdir(dir+"/dir", 0o755); err != nil {
		t.Fatal(err)
	}
	socket, err := net.Listen("unix", dir+"/socket")
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	volume := func(name, path, kind string) string {
		return fmt.Sprintf("  - {name: %s, hostPath: {path: %s, type: %s}}\n", name, path, kind)
	}
	put(t, a, "hostpath", "terminationGracePeriodSeconds: 1\ncontainers:\n"+
		shell("main",
			"volumeMounts: [{name: any, mountPath: /any}, {name: dir, mountPath: /dir}, {name: made, mountPath: "+
				"/made}, {name: file, mountPath: /file}, "+
				"{name: touched, mountPath: /touched}, {name: socket, mountPath: /socket}, {name: char, mountPath: "+
				"/char}]")+"volumes:\n"+
		volume("any", dir, `""`)+volume("dir", dir+"/dir", "Directory")+
		volume("made", dir+"/made/deep", "DirectoryOrCreate")+volume("file", dir+"/file", "File")+
		volume("touched", dir+"/touched", "FileOrCreate")+volume("socket", dir+"/socket", "Socket")+
		volume("char", "/dev/null", "CharDevice"))
	a.WaitReady(t, "hostpath")
	seen(t, a, "hostpath", "main",
		"ls /any | tr '\\n' ' '", "dir file made socket touched", "cat /file", "of the host", "stat -c '%a %F' /made",
		"755 directory", "stat -c '%a %F' /touched", "644 regular empty file",
		"test -S /socket && echo yes", "yes", "test -c /char && echo yes", "yes",
		"echo x >/any/written; cat /any/written", "x",
	)
	wrong := map[string]string{
		"Directory": dir + "/file is not a directory", "File": dir + "/dir is not a file",
		"Socket":     dir + "/file is not a socket file",
		"CharDevice": dir + "/file is not a character device", "BlockDevice": "/dev/null is not a block device",
		"DirectoryOrCreate": dir + "/file is not a directory",
		"FileOrCreate":      dir + "/dir is not a file",
	}
	mounts, list := "", ""
	for _, kind := range slices.Sorted(maps.Keys(wrong)) {
		path, _, _ := strings.Cut(wrong[kind], " is ")
		name := strings.ToLower(kind)
		mounts, list = mounts+fmt.Sprintf("{name: %s, mountPath: /%s}, ", name, name), list+volume(name, path, kind)
	}
	put(t, a, "wrongpath", "containers:\n"+shell("main", "volumeMounts: ["+mounts+"]")+"volumes:\n"+list)
	for kind, message := range wrong {
		waitEvent(t, a, "FailedMount",
			fmt.Sprintf("MountVolume.SetUp failed for volume %q : hostPath type check failed: %s",
				strings.ToLower(kind), message))
	}
	waitPod(t, a, "wrongpath", "waiting", waitingFor("ContainerCreating"))
	if timeline := why(t, a, "wrongpath"); !strings.Contains(fmt.Sprintf("%+v", timeline), "is not a block device") {
		t.Errorf("why says %+v", timeline)
	}
	removed(t, e, a, "wrongpath")
	removed(t, e, a, "hostpath")
	if _, err := os.Stat(dir + "/written"); err != nil {
		t.Errorf("what the pod wrote to the host is gone: %v", err)
	}
}

// fileVolumes checks ConfigMaps, Secrets, the downward API and projections, with their modes.
// Changes reach running containers.
func fileVolumes(t *testing.T, e *env.Env, a *env.Agent) {
	object := func(value string) {
		a.WriteManifest(t, "file-objects.yaml",
			"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: files}\ndata: {color: "+value+", other: o}\n---\n"+
				"apiVersion: v1\nkind: Secret\nmetadata: {name: files}\nstringData: {password: hush}\n")
	}
	pod := func(label string) {
		text := manifest("files", "terminationGracePeriodSeconds: 1\nsecurityContext: {fsGroup: 4321}\ncontainers:\n"+
			shell("main", "securityContext: {runAsUser: 1000, runAsGroup: 1000}",
				"resources: {limits: {memory: 32Mi}, requests: {cpu: 10m}}",
				"volumeMounts: [{name: config, mountPath: /config}, {name: secret, mountPath: /secret}, {name: all, "+
					"mountPath: /all}, {name: down, mountPath: /down}]")+
			`volumes:
  - {name: config, configMap: {name: files, defaultMode: 0400,
      items: [{key: color, path: deep/color}, {key: other, path: o, mode: 0604}]}}
  - {name: secret, secret: {secretName: files, defaultMode: 0400}}
  - name: down
    downwardAPI:
      items:
        - {path: labels, fieldRef: {apiVersion: v1, fieldPath: metadata.labels}}
        - {path: label, fieldRef: {fieldPath: "metadata.labels['tier']"}}
        - {path: limit, resourceFieldRef: {containerName: main, resource: limits.memory, divisor: 1Mi}, mode: 0440}
  - name: all
    projected:
      defaultMode: 0444
      sources:
        - configMap: {name: files, items: [{key: color, path: color}]}
        - secret: {name: files}
        - configMap: {name: absent, optional: true}
        - downwardAPI: {items: [{path: name, fieldRef: {fieldPath: metadata.name}}]}
`)
		// With a UID of its own, a pod stays the same pod when only its labels change.
		a.WriteManifest(t, "files.yaml",
			strings.Replace(text, "  name: files\n", "  name: files\n  uid: files-1\n  labels: {tier: "+label+"}\n", 1))
	}
	object("blue")
	pod("one")
	a.WaitReady(t, "files")
	before := running(podOf(t, a, "files"))
	seen(t, a, "files", "main",
		"cat /config/deep/color", "blue", "stat -L -c '%a %g' /config/deep/color", "440 4321",
		"stat -L -c '%a %g' /config/o", "644 4321", "ls /config | tr '\\n' ' '", "deep o",
		"cat /secret/password", "hush", "stat -L -c '%a %g' /secret/password", "440 4321",
		"stat -c '%a %g' /secret /down /all", "3777 4321\n3777 4321\n3777 4321", "stat -c '%a %g' /config", "2777 4321",
		"stat -f -c %T /secret", "tmpfs",
		"cat /all/color /all/password /all/name", "bluehushfiles-node", "echo x >/all/color; echo $?",
		"sh: can't create /all/color: Read-only file system\n1",
		"cat /down/labels", `tier="one"`, "cat /down/label", "one", "cat /down/limit", "32", "readlink /config/o",
		"..data/o",
	)
	object("green")
	pod("two")
	for command, want := range map[string]string{
		"cat /config/deep/color": "green", "cat /all/color": "green", "cat /down/label": "two",
		"cat /down/labels": `tier="two"`,
	} {
		env.Eventually(t, command+" to give "+want, func() error {
			if got := strings.TrimSpace(inside(t, a, "files", "main", "sh", "-c", command)); got != want {
				return fmt.Errorf("it gives %q", got)
			}
			return nil
		})
	}
	if after := running(podOf(t, a, "files")); after != before {
		t.Errorf("the changes made %s of %s", after, before)
	}
	removed(t, e, a, "files")
	a.RemoveManifest(t, "file-objects.yaml")
}
