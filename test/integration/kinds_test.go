//go:build integration

package integration

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/test/env"
)

// This file has what fields must do in each kind of container: app, init and ephemeral containers.

// inputsAre checks what the first process of the containers none (no stdin), pipe (stdin) and
// terminal (stdin and tty) reads from.
func inputsAre(t *testing.T, a *env.Agent, pod string) {
	t.Helper()
	for name, want := range map[string]string{"none": "/dev/null", "pipe": "pipe:", "terminal": "/dev/pts/"} {
		env.Eventually(t, "the input of "+name, func() error {
			if got := inside(t, a, pod, name, "readlink", "/proc/1/fd/0"); !strings.HasPrefix(got, want) {
				return fmt.Errorf("it is %q, want %s", got, want) // the program is runc's for a moment
			}
			return nil
		})
	}
}

// neverPulled waits until a container waits for an image that may not be pulled.
func neverPulled(t *testing.T, a *env.Agent, pod, container string) *corev1.Pod {
	t.Helper()
	return waitPod(t, a, pod, "waiting for an image", func(p *corev1.Pod) error {
		if w := statusOf(p, container).State.Waiting; w == nil || w.Reason != "ErrImageNeverPull" {
			return fmt.Errorf("the container waits because of %+v", w)
		}
		return nil
	})
}

// saysAtItsEnd waits until a container has ended with a termination message. A status may say that
// a container has ended before its message is read.
func saysAtItsEnd(t *testing.T, a *env.Agent, pod, container, message string) {
	t.Helper()
	waitPod(t, a, pod, "with the message of "+container, func(p *corev1.Pod) error {
		if end := statusOf(p, container).State.Terminated; end == nil || end.Message != message {
			return fmt.Errorf("the end is %+v", end)
		}
		return nil
	})
}

// hasVariables checks that a container of the image web has those variables, and none whose name
// begins with NO: the sources of these do not exist.
func hasVariables(t *testing.T, a *env.Agent, pod, container string, variables ...string) {
	t.Helper()
	environment := "\n" + inside(t, a, pod, container, "/testapp", "env")
	for _, want := range variables {
		if !strings.Contains(environment, "\n"+want+"\n") {
			t.Errorf("%s of %s has no %s:%s", container, pod, want, environment)
		}
	}
	if strings.Contains(environment, "\nNO") {
		t.Errorf("%s of %s has variables whose source is not there:%s", container, pod, environment)
	}
}

// mountFields are the mounts that mountsAre checks, of a volume v.
var mountFields = []string{
	"volumeMounts:",
	"  - {name: v, mountPath: /rw}",
	"  - {name: v, mountPath: /ro, readOnly: true, mountPropagation: HostToContainer}",
	"  - {name: v, mountPath: /recursive, readOnly: true, recursiveReadOnly: Enabled, mountPropagation: None}",
}

// mounting is the app container main, which mounts file systems below a volume v.
func mounting() string {
	return "containers:\n" + shell("main", "securityContext: {privileged: true}",
		"volumeMounts: [{name: v, mountPath: /v, mountPropagation: Bidirectional}]") +
		"volumes: [{name: v, emptyDir: {}}]\n"
}

// mountsAre checks the mounts of mountFields in a container of a pod that has mounting, too.
func mountsAre(t *testing.T, a *env.Agent, pod, container string) {
	t.Helper()
	seen(t, a, pod, "main",
		"mkdir /v/mnt && mount -t tmpfs inner /v/mnt && echo inside >/v/mnt/file && cat /v/mnt/file", "inside")
	seen(t, a, pod, container,
		"echo y >/rw/file; cat /ro/file", "y",
		"echo y >/ro/file; echo $?", "sh: can't create /ro/file: Read-only file system\n1",
		"cat /ro/mnt/file", "inside",
		"cat /rw/mnt/file", "cat: can't open '/rw/mnt/file': No such file or directory")
	modes := map[string]corev1.RecursiveReadOnlyMode{"/ro": "Disabled", "/recursive": "Enabled"}
	for _, m := range statusOf(podOf(t, a, pod), container).VolumeMounts {
		if m.RecursiveReadOnly != nil && *m.RecursiveReadOnly != modes[m.MountPath] {
			t.Errorf("the status of %s is %q", m.MountPath, *m.RecursiveReadOnly)
		}
		delete(modes, m.MountPath)
	}
	if len(modes) > 0 {
		t.Errorf("the status has nothing of %v", modes)
	}
}

// contexts are containers that contextsHold checks. The profile mkdir.json is addProfile's.
func contexts() []held {
	return []held{
		{
			name: "user", want: "Uid=5 Gid=6 Seccomp=2",
			context: "{runAsUser: 5, runAsGroup: 6, runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}}",
		},
		{
			name: "caps", want: "CapEff=400 NoNewPrivs=1",
			context: "{capabilities: {drop: [ALL], add: [NET_BIND_SERVICE]}, allowPrivilegeEscalation: false, " +
				"readOnlyRootFilesystem: true}",
		},
		{
			name: "filtered", want: "Seccomp=2",
			context: "{seccompProfile: {type: Localhost, localhostProfile: mkdir.json}}",
		},
		{name: "all", want: "Seccomp=0 NoNewPrivs=0", context: "{privileged: true}"},
	}
}

// contextsHold checks the processes of contexts.
func contextsHold(t *testing.T, a *env.Agent, pod string) {
	t.Helper()
	for _, c := range contexts() {
		checkProcess(t, a, pod, c)
	}
	seen(t, a, pod, "caps", "echo x >/file; echo $?", "sh: can't create /file: Read-only file system\n1")
	seen(t, a, pod, "filtered", "mkdir /made 2>/dev/null; echo $?", "1")
	seen(t, a, pod, "all", "grep -q ' /proc/sys .* ro,' /proc/mounts; echo $?", "1")
}

// addProfile writes a seccomp profile that allows everything except mkdir, for localhostProfile.
func addProfile(t *testing.T, a *env.Agent, name string) {
	t.Helper()
	writeFile(t, filepath.Join(a.RootDir, "seccomp", name), `{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": `+
		`[{"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO", "errnoRet": 13}]}`, 0o600)
}
