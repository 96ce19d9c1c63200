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

	"github.com/berthd/berth/test/env"
)

// fakeNFS is a mount.nfs that mounts a folder of this host instead of an export. It refuses or
// never ends if the export's name says so.
const fakeNFS = `#!/bin/sh
case "$1" in
  *denied*) echo "mount.nfs: access denied by server while mounting $1" >&2; exit 32;;
  *hang*) exec sleep 1000;;
esac
mount --bind "${1#*:}" "$2" || exit 32
case "$4" in *ro*) mount -o remount,bind,ro "$2";; esac
`

// persistent is the manifest of a PersistentVolume of 1Gi.
func persistent(name, class, source string) string {
	return "apiVersion: v1\nkind: PersistentVolume\nmetadata:\n  name: " + name +
		"\n  annotations: {pv.beta.kubernetes.io/gid: '777'}\nspec:\n  capacity: {storage: 1Gi}\n" +
		"  accessModes: [ReadWriteOnce, ReadOnlyMany]\n  persistentVolumeReclaimPolicy: Retain\n  storageClassName: " +
		class + "\n  " + source + "\n---\n"
}

// onNode is the node affinity that a local volume needs.
func onNode(name string) string {
	return "\n  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, " +
		"operator: In, values: [" + name + "]}]}]}}"
}

// claim is the manifest of a claim for 500Mi.
func claim(name, class, more string) string {
	return "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: " + name + "}\nspec:\n  storageClassName: " +
		class +
		"\n  accessModes: [ReadWriteOnce]\n  resources: {requests: {storage: 500Mi}}\n  " + more + "\n---\n"
}

// claims runs the tests of claims one after the other, because each claim could get any volume of
// the node.
func claims(t *testing.T, e *env.Env, a *env.Agent) {
	for _, step := range []struct {
		name string
		test func(*testing.T, *env.Env, *env.Agent)
	}{{"bind", claimsBind}, {"wait", claimsWait}} {
		t.Run(step.name, func(t *testing.T) { step.test(t, e, a) })
	}
}

// claimsBind checks that claims get the volumes that they name, that name them, or that fit. Pods
// read and write the volumes, and the data stays after the pods' end.
func claimsBind(t *testing.T, e *env.Env, a *env.Agent) {
	dir := t.TempDir()
	for _, name := range []string{"small", "large", "host", "named"} {
		writeFile(t, filepath.Join(dir, name, "data"), name+"\n", 0o600)
	}
	a.WriteManifest(t, "claims-objects.yaml",
		persistent("large", "bind", "local: {path: "+dir+"/large}"+onNode(env.NodeName))+
			strings.Replace(persistent("small", "bind", "local: {path: "+dir+"/small}"+onNode(env.NodeName)), "1Gi",
				"600Mi", 1)+
			strings.Replace(persistent("elsewhere", "bind", "local: {path: "+dir+"/none}"+onNode("elsewhere")), "1Gi",
				"500Mi", 1)+
			persistent("host", "bind-host",
				"hostPath: {path: "+dir+"/host, type: Directory}\n  claimRef: {namespace: default, name: by-ref}")+
			persistent("named", "bind-other", "hostPath: {path: "+dir+"/named}")+
			claim("suits", "bind", "")+claim("by-ref", "bind-host", "")+
			claim("by-name", "bind-other", "volumeName: named"))
	put(t, a, "claims", "terminationGracePeriodSeconds: 1\nsecurityContext: {fsGroup: 4321}\ncontainers:\n"+
		shell("main", "securityContext: {runAsUser: 1000, runAsGroup: 1000}", "volumeMounts:",
			"  - {name: suits, mountPath: /suits}", "  - {name: again, mountPath: /again}",
			"  - {name: ref, mountPath: /ref}", "  - {name: named, mountPath: /named}")+
		`volumes:
  - {name: suits, persistentVolumeClaim: {claimName: suits}}
  - {name: again, persistentVolumeClaim: {claimName: suits, readOnly: true}}
  - {name: ref, persistentVolumeClaim: {claimName: by-ref}}
  - {name: named, persistentVolumeClaim: {claimName: by-name, readOnly: true}}
`)
	a.WaitReady(t, "claims")
	seen(t, a, "claims", "main",
		"cat /suits/data", "small", "stat -c '%a %g' /suits/data", "660 4321",
		"echo more >>/suits/data; cat /again/data", "small\nmore",
		"echo x >>/again/data; echo $?", "sh: can't create /again/data: Read-only file system\n1", "touch /named/new",
		"touch: /named/new: Read-only file system",
		"cat /ref/data 2>&1", "cat: can't open '/ref/data': Permission denied",
		"id -G | tr ' ' '\\n' | sort -n | tr '\\n' ' '", "777 1000 2000 4321",
	)
	removed(t, e, a, "claims")
	if text, err := os.ReadFile(filepath.Join(dir, "small", "data")); err != nil || string(text) != "small\nmore\n" {
		t.Errorf("the volume's data is %q, %v", text, err)
	}
	// The next pod with the claim gets the same volume, although there is a smaller one now.
	writeFile(t, filepath.Join(dir, "smaller", "data"), "smaller\n", 0o644)
	a.WriteManifest(t, "claims-more.yaml",
		strings.Replace(persistent("smaller", "bind", "hostPath: {path: "+dir+"/smaller}"), "1Gi", "550Mi", 1))
	put(t, a, "claims2",
		"terminationGracePeriodSeconds: 1\ncontainers:\n"+shell("main", "volumeMounts: [{name: v, mountPath: /v}]")+
			"volumes: [{name: v, persistentVolumeClaim: {claimName: suits}}]\n")
	a.WaitReady(t, "claims2")
	seen(t, a, "claims2", "main", "cat /v/data", "small\nmore")
	removed(t, e, a, "claims2")
	a.RemoveManifest(t, "claims-objects.yaml")
	a.RemoveManifest(t, "claims-more.yaml")
}

// claimsWait checks that a pod whose claim does not exist, or has no volume, waits and reports why,
// and starts when both are there.
func claimsWait(t *testing.T, e *env.Env, a *env.Agent) {
	dir := t.TempDir()
	writeFile(t, dir+"/data", "late\n", 0o644)
	put(t, a, "waits",
		"terminationGracePeriodSeconds: 1\ncontainers:\n"+shell("main", "volumeMounts: [{name: v, mountPath: /v}]")+
			"volumes: [{name: v, persistentVolumeClaim: {claimName: late}}]\n")
	reports := func(message string) {
		t.Helper()
		waitEvent(t, a, "FailedMount", message)
		waitPod(t, a, "waits", "waiting", waitingFor("ContainerCreating"))
		env.Eventually(t, "why to say "+message, func() error {
			if timeline := why(t, a, "waits"); !strings.Contains(fmt.Sprintf("%+v", timeline), message) {
				return fmt.Errorf("it says %+v", timeline)
			}
			return nil
		})
	}
	reports(`persistentvolumeclaim "late" not found`)
	waitEvent(t, a, "FailedMount",
		"Unable to attach or mount volumes: unmounted volumes=[v], unattached volumes=[], "+
			"failed to process volumes=[v]: error processing PVC default/late: ")
	a.WriteManifest(t, "late.yaml", claim("late", "late", ""))
	reports("PVC is not bound: didn't find available persistent volumes to bind")
	a.WriteManifest(t, "late-pv.yaml", persistent("late", "late", "local: {path: "+dir+"/none}"+onNode("elsewhere")))
	reports("1 of another node")
	a.WriteManifest(t, "late-pv.yaml",
		persistent("late", "late", "volumeMode: Block\n  local: {path: /dev/null}"+onNode(env.NodeName)))
	reports("1 incompatible volumeMode")
	a.WriteManifest(t, "late-pv.yaml", persistent("late", "late", "local: {path: "+dir+"/none}"+onNode(env.NodeName)))
	waitEvent(t, a, "FailedMount",
		`MountVolume.NewMounter initialization failed for volume "late" : path "`+dir+`/none" does not exist`)
	a.WriteManifest(t, "late-pv.yaml", persistent("late", "late", "local: {path: "+dir+"}"+onNode(env.NodeName)))
	a.WaitReady(t, "waits")
	seen(t, a, "waits", "main", "cat /v/data", "late")
	removed(t, e, a, "waits")
	a.RemoveManifest(t, "late.yaml")
	a.RemoveManifest(t, "late-pv.yaml")
}

// nfsMounts checks that the host's mount.nfs mounts exports, inline and as PersistentVolumes. The
// pod reports a server that refuses. A server that never answers delays neither its pod's end nor
// another pod.
func nfsMounts(t *testing.T, e *env.Env, a *env.Agent) {
	dir := t.TempDir()
	writeFile(t, dir+"/data", "exported\n", 0o644)
	a.WriteManifest(t, "nfs-objects.yaml",
		persistent("nfs", "nfs", "mountOptions: [hard]\n  nfs: {server: 192.0.2.1, path: "+dir+"}")+
			claim("nfs", "nfs", ""))
	put(t, a, "nfs", "terminationGracePeriodSeconds: 1\ncontainers:\n"+
		shell("main",
			"volumeMounts: [{name: inline, mountPath: /inline}, {name: only, mountPath: /only}, {name: claimed, "+
				"mountPath: /claimed}]")+
		"volumes:\n  - {name: inline, nfs: {server: 192.0.2.1, path: "+dir+
		"}}\n  - {name: only, nfs: {server: 192.0.2.1, path: "+dir+", readOnly: true}}\n"+
		"  - {name: claimed, persistentVolumeClaim: {claimName: nfs}}\n")
	put(t, a, "nfs-denied",
		"containers:\n"+shell("main", "volumeMounts: [{name: v, mountPath: /v}]")+
			"volumes: [{name: v, nfs: {server: 192.0.2.1, path: /denied}}]\n")
	put(t, a, "nfs-hangs",
		"containers:\n"+shell("main", "volumeMounts: [{name: v, mountPath: /v}]")+
			"volumes: [{name: v, nfs: {server: 192.0.2.1, path: /hang}}]\n")
	a.WaitReady(t, "nfs")
	seen(t, a, "nfs", "main",
		"cat /inline/data", "exported", "echo more >>/claimed/data; cat /inline/data", "exported\nmore",
		"echo x >>/only/data; echo $?", "sh: can't create /only/data: Read-only file system\n1",
	)
	waitEvent(t, a, "FailedMount",
		`MountVolume.SetUp failed for volume "v" : mount failed: exit status 32, mounting 192.0.2.1:/denied, output: `+
			`mount.nfs: access denied by server`)
	env.Eventually(t, "why to tell of the server", func() error {
		if timeline := why(t, a, "nfs-hangs"); !strings.Contains(fmt.Sprintf("%+v", timeline),
			"mounting 192.0.2.1:/hang") {
			return fmt.Errorf("it says %+v", timeline)
		}
		return nil
	})
	for _, name := range []string{"nfs-hangs", "nfs-denied", "nfs"} {
		removed(t, e, a, name)
	}
	a.RemoveManifest(t, "nfs-objects.yaml")
}

// volumesOutliveAgent checks that a restart of the agent changes neither mounts, nor their content,
// nor the bindings of claims. This includes a claim whose volume's manifest was removed meanwhile.
func volumesOutliveAgent(t *testing.T, e *env.Env, a *env.Agent) {
	dir := t.TempDir()
	writeFile(t, dir+"/one/data", "one\n", 0o644)
	writeFile(t, dir+"/two/data", "two\n", 0o644)
	a.WriteManifest(t, "kept-pv.yaml", persistent("kept-1", "kept", "local: {path: "+dir+"/one}"+onNode(env.NodeName)))
	a.WriteManifest(t, "kept-objects.yaml", claim("kept", "kept", ""))
	spec := "terminationGracePeriodSeconds: 1\ncontainers:\n" +
		shell("main", "volumeMounts: [{name: c, mountPath: /c}, {name: m, mountPath: /m}]") +
		"volumes: [{name: c, persistentVolumeClaim: {claimName: kept}}, {name: m, emptyDir: {medium: Memory}}]\n"
	put(t, a, "kept", spec)
	a.WaitReady(t, "kept")
	seen(t, a, "kept", "main", "echo x >/m/f; cat /c/data", "one")
	before := running(podOf(t, a, "kept"))
	if err := a.Stop(); err != nil {
		t.Fatal(err)
	}
	// The manifest of the claim's volume is missing while the agent starts, and another volume
	// would fit.
	a.RemoveManifest(t, "kept-pv.yaml")
	a.WriteManifest(t, "kept-other.yaml",
		persistent("kept-0", "kept", "local: {path: "+dir+"/two}"+onNode(env.NodeName)))
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
	a.WaitUp(t)
	waitEvent(t, a, "FailedMount", `bound claim has lost its PersistentVolume: persistentvolume "kept-1" not found`)
	// The pod's containers are restarted meanwhile, with the volume that they had.
	restarts(t, a, "kept")
	seen(t, a, "kept", "main", "cat /m/f /c/data", "x\none")
	before = running(podOf(t, a, "kept"))
	a.WriteManifest(t, "kept-pv.yaml", persistent("kept-1", "kept", "local: {path: "+dir+"/one}"+onNode(env.NodeName)))
	waitPod(t, a, "kept", "as it was", func(p *corev1.Pod) error {
		if after := running(p); after != before || !env.Ready(p) {
			return errors.New("it is " + after)
		}
		return nil
	})
	seen(t, a, "kept", "main", "cat /m/f /c/data", "x\none")
	removed(t, e, a, "kept")
	for _, file := range []string{"kept-pv.yaml", "kept-other.yaml", "kept-objects.yaml"} {
		a.RemoveManifest(t, file)
	}
}
