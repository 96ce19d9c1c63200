//go:build integration

package integration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/volumes"
	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/test/env"
)

// subPaths checks parts of volumes: directories and files, old and new, with names from the
// environment. A subPath that leaves its volume is refused, and the error reveals nothing about the
// host.
func subPaths(t *testing.T, e *env.Env, a *env.Agent) {
	put(t, a, "subpath",
		"terminationGracePeriodSeconds: 1\ninitContainers:\n  - name: prepare\n    image: berth.local/busybox:v1\n"+
			"    command: [sh, -c, 'mkdir -p /v/a/b && echo deep >/v/a/b/file && ln -s a/b /v/link && ln -s /etc "+
			"/v/out "+
			"&& ln -s ../../../../../../etc /v/climb']\n"+
			"    volumeMounts: [{name: v, mountPath: /v}]\ncontainers:\n"+
			shell("main",
				"env: [{name: WHO, valueFrom: {fieldRef: {fieldPath: metadata.name}}}, {name: PART, value: $(WHO)/x}]",
				"volumeMounts:", "  - {name: v, mountPath: /v}", "  - {name: v, mountPath: /dir, subPath: a/b}",
				"  - {name: v, mountPath: /file, subPath: link/file}",
				"  - {name: v, mountPath: /new, subPath: made/here}",
				"  - {name: v, mountPath: /who, subPathExpr: of/$(PART)}")+
			shell("out", "volumeMounts: [{name: v, mountPath: /x, subPath: out}]")+
			shell("climb", "volumeMounts: [{name: v, mountPath: /x, subPath: climb/passwd}]")+
			shell("empty", "env: [{name: NONE, value: ''}]",
				"volumeMounts: [{name: v, mountPath: /x, subPathExpr: $(NONE)/x}]")+
			"volumes: [{name: v, emptyDir: {}}]\n")
	waitPod(t, a, "subpath", "running in part", func(p *corev1.Pod) error {
		if statusOf(p, "main").State.Running == nil {
			return errors.New("main does not run")
		}
		for container, want := range map[string]string{
			"out":   `failed to prepare subPath for volumeMount "v" of container "out"`,
			"climb": `failed to prepare subPath for volumeMount "v" of container "climb"`,
			"empty": "missing value for NONE",
		} {
			w := statusOf(p, container).State.Waiting
			if w == nil || w.Reason != "CreateContainerConfigError" || w.Message != want {
				return fmt.Errorf("%s waits because of %+v", container, w)
			}
		}
		return nil
	})
	seen(t, a, "subpath", "main",
		"cat /dir/file /file", "deep\ndeep", "echo x >/new/y; cat /v/made/here/y", "x",
		"echo z >/who/w; cat /v/of/subpath-node/x/w", "z", "stat -c %a /v/made", "777",
	)
	removed(t, e, a, "subpath")
}

const (
	// raceMounts is how many subPaths are mounted while a container attacks them.
	raceMounts = 10_000
	// raceRefusals bounds how many subPaths are refused meanwhile. Usually ten times as many are
	// refused as are mounted, and more if others use the machine, too.
	raceRefusals = 100 * raceMounts
)

// subPathRace has a container that replaces directories and files by links to the host, without a
// pause, while 10,000 subPaths of its volume are mounted. No file of the host is ever reached.
func subPathRace(t *testing.T, e *env.Env, a *env.Agent) {
	put(t, a, "racer",
		"terminationGracePeriodSeconds: 1\ninitContainers:\n  - name: prepare\n    image: berth.local/busybox:v1\n"+
			"    command: [sh, -c, 'cd /v; mkdir -p good/sub mid/good/sub; echo mine >file; ln -s /etc evil; "+
			"ln -s /etc mid/evil; ln -s /etc/passwd fileevil']\n"+
			"    volumeMounts: [{name: v, mountPath: /v}]\ncontainers:\n  - name: main\n"+
			"    image: berth.local/web:v1\n"+
			"    args: [swap, /v/good, /v/evil, /v/mid/good, /v/mid/evil, /v/file, /v/fileevil]\n"+
			"    volumeMounts: [{name: v, mountPath: /v}]\n"+
			"volumes: [{name: v, emptyDir: {}}]\n")
	a.WaitReady(t, "racer")
	volume := filepath.Join(a.RootDir, "pods", string(podOf(t, a, "racer").UID), "volumes", "kubernetes.io~empty-dir",
		"v")
	hosts := []os.FileInfo{}
	for _, path := range []string{"/", "/etc", "/etc/passwd", "/proc"} {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		hosts = append(hosts, info)
	}
	manager := volumes.New(volumes.Config{RootDir: filepath.Join(a.Home, "race")}, volumes.Deps{})
	pod := &corev1.Pod{}
	pod.UID = types.UID("race")
	if err := manager.EnsureDirs(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	mounted, refused := 0, 0
	for paths := []string{"good/sub", "mid/good/sub", "file", "good", "mid/good/made"}; mounted < raceMounts &&
		refused < raceRefusals; {
		at := (mounted + refused) % len(paths)
		target, err := manager.SubPath(t.Context(), pod.UID, volumes.SubPathMount{
			Container: "c", Index: at, Volume: "v", VolumePath: volume, Path: paths[at],
		})
		if err != nil {
			refused++
			continue
		}
		mounted++
		info, err := os.Lstat(target)
		if err != nil {
			t.Fatal(err)
		}
		for _, host := range hosts {
			if os.SameFile(host, info) {
				t.Fatalf("subPath %s gave the host's %s", paths[at], host.Name())
			}
		}
		if mounted%16 == 0 { // so that a new mount is not the same as an earlier one
			if err := manager.Remove(t.Context(), pod.UID); err != nil {
				t.Fatal(err)
			}
			if err := manager.EnsureDirs(t.Context(), pod); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Logf("%d mounts, %d refused", mounted, refused)
	if mounted < raceMounts || refused == 0 {
		t.Errorf("that was no race: %d mounts, %d refused", mounted, refused)
	}
	if err := manager.Remove(t.Context(), pod.UID); err != nil {
		t.Error(err)
	}
	for _, made := range []string{"/etc/made", "/etc/sub"} {
		if _, err := os.Lstat(made); err == nil {
			t.Errorf("%s was made on the host", made)
		}
	}
	removed(t, e, a, "racer")
}

// propagation checks that what a privileged container mounts is seen on the host and by the
// container that asks for it, and by no other container. All of it is removed with the pod.
func propagation(t *testing.T, e *env.Env, a *env.Agent) {
	put(t, a, "propagation", "terminationGracePeriodSeconds: 1\ncontainers:\n"+
		shell("both", "securityContext: {privileged: true}",
			"volumeMounts: [{name: v, mountPath: /v, mountPropagation: Bidirectional}]")+
		shell("follower", "volumeMounts: [{name: v, mountPath: /v, mountPropagation: HostToContainer}]")+
		shell("none", "volumeMounts: [{name: v, mountPath: /v, mountPropagation: None}]")+
		shell("plain", "volumeMounts: [{name: v, mountPath: /v}]")+"volumes: [{name: v, emptyDir: {}}]\n")
	a.WaitReady(t, "propagation")
	seen(t, a, "propagation", "both",
		"mkdir /v/mnt && mount -t tmpfs inner /v/mnt && echo inside >/v/mnt/file && cat /v/mnt/file", "inside")
	for container, want := range map[string]string{
		"follower": "inside", "none": "cat: can't open '/v/mnt/file': No such file or directory",
		"plain": "cat: can't open '/v/mnt/file': No such file or directory",
	} {
		seen(t, a, "propagation", container, "cat /v/mnt/file", want)
	}
	host := filepath.Join(a.RootDir, "pods", string(podOf(t, a, "propagation").UID), "volumes",
		"kubernetes.io~empty-dir", "v", "mnt", "file")
	if text, err := os.ReadFile(host); err != nil || string(text) != "inside\n" {
		t.Errorf("on the host it is %q, %v", text, err)
	}
	removed(t, e, a, "propagation")
	a.WriteManifest(t, "unprivileged.yaml", manifest("unprivileged", "containers:\n"+
		shell("both", "volumeMounts: [{name: v, mountPath: /v, mountPropagation: Bidirectional}]")+
		"volumes: [{name: v, emptyDir: {}}]\n"))
	refused(t, a, filepath.Join(a.Manifests, "unprivileged.yaml"),
		says("bidirectional mount propagation is available only to privileged containers",
			"spec.containers[0].volumeMounts[0].mountPropagation", true))
	a.RemoveManifest(t, "unprivileged.yaml")
}

// readOnlyMounts checks read-only mounts and recursive read-only mounts, which the status
// distinguishes.
func readOnlyMounts(t *testing.T, e *env.Env, a *env.Agent) {
	dir := t.TempDir()
	writeFile(t, dir+"/file", "x", 0o666)
	put(t, a, "readonly", "terminationGracePeriodSeconds: 1\ncontainers:\n"+
		shell("main", "securityContext: {privileged: true}", "volumeMounts:", "  - {name: h, mountPath: /rw}",
			"  - {name: h, mountPath: /ro, readOnly: true}",
			"  - {name: h, mountPath: /enabled, readOnly: true, recursiveReadOnly: Enabled, mountPropagation: None}",
			"  - {name: h, mountPath: /possible, readOnly: true, recursiveReadOnly: IfPossible}",
			"  - {name: h, mountPath: /disabled, readOnly: true, recursiveReadOnly: Disabled}")+
		"volumes: [{name: h, hostPath: {path: "+dir+", type: Directory}}]\n")
	a.WaitReady(t, "readonly")
	checks := []string{"echo y >/rw/file; echo $?", "0"}
	for _, at := range []string{"/ro", "/enabled", "/possible", "/disabled"} {
		checks = append(checks, "echo y >"+at+"/file; echo $?",
			"sh: can't create "+at+"/file: Read-only file system\n1")
	}
	seen(t, a, "readonly", "main", checks...)
	modes := map[string]string{
		"/rw": "", "/ro": "Disabled", "/enabled": "Enabled", "/possible": "Enabled", "/disabled": "Disabled",
	}
	mounts := statusOf(podOf(t, a, "readonly"), "main").VolumeMounts
	for _, m := range mounts {
		mode := ""
		if m.RecursiveReadOnly != nil {
			mode = string(*m.RecursiveReadOnly)
		}
		if m.Name != "h" || m.ReadOnly != (m.MountPath != "/rw") || mode != modes[m.MountPath] {
			t.Errorf("the status of %s is read-only %v and recursively %q, want %q", m.MountPath, m.ReadOnly, mode,
				modes[m.MountPath])
		}
	}
	if len(mounts) != len(modes) {
		t.Errorf("the status has the mounts %+v", mounts)
	}
	removed(t, e, a, "readonly")
}

// groupsOwnVolumes checks that fsGroup lets users without other rights use volumes, and that it
// owns what they create.
func groupsOwnVolumes(t *testing.T, e *env.Env, a *env.Agent) {
	put(t, a, "fsgroup",
		"terminationGracePeriodSeconds: 1\nsecurityContext: {fsGroup: 4321, runAsUser: 1000, runAsGroup: 1000, "+
			"supplementalGroups: [55], fsGroupChangePolicy: OnRootMismatch}\ncontainers:\n"+
			shell("main",
				"volumeMounts: [{name: disk, mountPath: /disk}, {name: memory, mountPath: /memory}, {name: disk, "+
					"mountPath: /part, subPath: part}]")+
			"volumes: [{name: disk, emptyDir: {}}, {name: memory, emptyDir: {medium: Memory}}]\n")
	a.WaitReady(t, "fsgroup")
	seen(t, a, "fsgroup", "main",
		"id -G | tr ' ' '\\n' | sort -n | tr '\\n' ' '", "55 1000 2000 4321", "stat -c '%a %g' /disk /memory",
		"2777 4321\n3777 4321", "stat -c '%a %g' /part", "2777 4321",
		"touch /disk/f /memory/f /part/f && stat -c '%u %g' /disk/f /memory/f /part/f",
		"1000 4321\n1000 4321\n1000 4321",
	)
	removed(t, e, a, "fsgroup")
}

// refusedVolumes checks kinds of volumes that a node without a cluster does not have. They end the
// pod with a reason, or the manifest is refused.
func refusedVolumes(t *testing.T, e *env.Env, a *env.Agent) {
	for kind, source := range map[string]string{
		"gitRepo": "{repository: 'https://192.0.2.1/x'}", "flexVolume": "{driver: a/b}",
		"iscsi":             "{targetPortal: 192.0.2.1, iqn: iqn.2001-04.com.example:x, lun: 0}",
		"gcePersistentDisk": "{pdName: d}", "cephfs": "{monitors: [192.0.2.1]}", "portworxVolume": "{volumeID: v}",
	} {
		name := strings.ToLower(kind)
		put(t, a, name,
			"containers:\n"+shell("main", "volumeMounts: [{name: v, mountPath: /v}]")+"volumes: [{name: v, "+kind+": "+
				source+"}]\n")
		p := waitPod(t, a, name, "refused", phase(corev1.PodFailed))
		want := "spec.volumes[0]." + kind + " is not supported: "
		if !strings.Contains(p.Status.Message, want) {
			t.Errorf("%s: the status says %q, want %q", kind, p.Status.Message, want)
		}
		if timeline := why(t, a, name); !strings.Contains(fmt.Sprintf("%+v", timeline), "spec.volumes[0]."+kind) {
			t.Errorf("%s: why says %+v", kind, timeline)
		}
		removed(t, e, a, name)
	}
	for kind, source := range map[string]string{
		"ephemeral": "{volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: " +
			"1Gi}}}}}",
	} {
		file := "manifest-" + kind + ".yaml"
		a.WriteManifest(t, file,
			manifest("m-"+kind,
				"containers:\n"+shell("main", "stdin: false")+"volumes: [{name: v, "+kind+": "+source+"}]\n"))
		refused(t, a, filepath.Join(a.Manifests, file), func(m api.Manifest) error {
			return says("static pods may not reference", m.Field, true)(m)
		})
		a.RemoveManifest(t, file)
	}
}
