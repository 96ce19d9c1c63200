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

// TestInitContainers sets the fields of init containers and reads their effects in the containers.
// Most are sidecars, because these stay.
func TestInitContainers(t *testing.T) {
	t.Parallel()
	e := env.Containerd(t, env.Options{})
	a := e.StartAgent(t, env.AgentOptions{})
	a.WaitUp(t)
	t.Run("pods", func(t *testing.T) {
		onOneAgent(t, e, a, podTests{
			"input": initInput, "image": initImage, "messages": initMessages, "environment": initEnvironment,
			"mounts": initMounts, "security": initSecurity, "resources": initResources,
		})
	})
	nothingLeft(t, e.Leaks)
}

func initInput(t *testing.T, e *env.Env, a *env.Agent) {
	const side = "restartPolicy: Always, image: berth.local/busybox:v1, command: "
	put(t, a, "i-input", `
initContainers:
  - {name: none, `+side+stay+`}
  - {name: pipe, `+side+stay+`, stdin: true}
  - {name: terminal, `+side+stay+`, stdin: true, tty: true}
  - {name: once, `+side+`[cat], stdin: true, stdinOnce: true}
`+strings.TrimSpace(sleeper))
	a.WaitReady(t, "i-input")
	for name, want := range map[string]string{"none": "/dev/null", "pipe": "pipe:", "terminal": "/dev/pts/"} {
		env.Eventually(t, "the input of "+name, func() error {
			if got := inside(t, a, "i-input", name, "readlink", "/proc/1/fd/0"); !strings.HasPrefix(got, want) {
				return fmt.Errorf("it is %q, want %s", got, want) // the program is runc's for a moment
			}
			return nil
		})
	}
	attach := begin(t, a, strings.NewReader("last words\n"), "attach", "-i", "i-input", "-c", "once")
	if code := attach.wait(t); code != 0 {
		t.Errorf("attach ended with %d", code)
	}
	waitPod(t, a, "i-input", "with a sidecar whose input has ended", restarted("once", 1))
	if out, _, _ := a.CLI("logs", "i-input", "-c", "once", "--previous"); out != "last words\n" {
		t.Errorf("it says %q", out)
	}
	removed(t, e, a, "i-input")
}

func initImage(t *testing.T, e *env.Env, a *env.Agent) {
	put(t, a, "i-image", `
initContainers:
  - {name: present, image: berth.local/busybox:v1, imagePullPolicy: Never, command: ["true"]}
  - {name: never, image: berth.local/none:v1, imagePullPolicy: Never}
`+strings.TrimSpace(sleeper))
	waitPod(t, a, "i-image", "waiting for an image", func(p *corev1.Pod) error {
		if w := statusOf(p, "never").State.Waiting; w == nil || w.Reason != "ErrImageNeverPull" {
			return fmt.Errorf("the container waits because of %+v", w)
		}
		if statusOf(p, "present").State.Terminated == nil {
			return errors.New("the container whose image is there did not run")
		}
		return nil
	})
	removed(t, e, a, "i-image")
}

func initMessages(t *testing.T, e *env.Env, a *env.Agent) {
	put(t, a, "i-messages", `
restartPolicy: Never
initContainers:
  - name: log
    image: berth.local/busybox:v1
    command: [sh, -c, 'echo from the log; exit 3']
    terminationMessagePolicy: FallbackToLogsOnError
`+strings.TrimSpace(sleeper))
	waitPod(t, a, "i-messages", "failed with its message", func(p *corev1.Pod) error {
		if end := statusOf(p, "log").State.Terminated; end == nil || end.Message != "from the log\n" {
			return fmt.Errorf("the end is %+v", end)
		}
		return nil
	})
	removed(t, e, a, "i-messages")
}

func initEnvironment(t *testing.T, e *env.Env, a *env.Agent) {
	a.WriteManifest(t, "i-objects.yaml",
		"apiVersion: v1\nkind: Secret\nmetadata: {name: i-env}\nstringData: {S: hush}\n")
	put(t, a, "i-environment", `
terminationGracePeriodSeconds: 1
initContainers:
  - name: side
    image: berth.local/web:v1
    args: [sleep]
    restartPolicy: Always
    env: &env
      - {name: SECRET, valueFrom: {secretKeyRef: {name: i-env, key: S}}}
      - {name: NOKEY, valueFrom: {secretKeyRef: {name: i-env, key: none, optional: true}}}
      - {name: NOSECRET, valueFrom: {secretKeyRef: {name: none, key: S, optional: true}}}
      - {name: POD, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: metadata.name}}}
containers:
  - name: main
    image: berth.local/web:v1
    args: [sleep]
    env: *env
`)
	a.WaitReady(t, "i-environment")
	for _, container := range []string{"side", "main"} {
		environment := "\n" + inside(t, a, "i-environment", container, "/testapp", "env")
		for _, want := range []string{"SECRET=hush", "POD=i-environment-" + env.NodeName} {
			if !strings.Contains(environment, "\n"+want+"\n") {
				t.Errorf("%s has no %s:%s", container, want, environment)
			}
		}
		if strings.Contains(environment, "\nNO") {
			t.Errorf("%s has variables whose source is not there:%s", container, environment)
		}
	}
	removed(t, e, a, "i-environment")
	a.RemoveManifest(t, "i-objects.yaml")
}

func initMounts(t *testing.T, e *env.Env, a *env.Agent) {
	put(t, a, "i-mounts", "terminationGracePeriodSeconds: 1\ninitContainers:\n"+
		shell("side", "restartPolicy: Always", "volumeMounts:",
			"  - {name: v, mountPath: /rw}",
			"  - {name: v, mountPath: /ro, readOnly: true, mountPropagation: HostToContainer}",
			"  - {name: v, mountPath: /recursive, readOnly: true, recursiveReadOnly: Enabled, mountPropagation: None}")+
		"containers:\n"+
		shell("main", "securityContext: {privileged: true}",
			"volumeMounts: [{name: v, mountPath: /v, mountPropagation: Bidirectional}]")+
		"volumes: [{name: v, emptyDir: {}}]\n")
	a.WaitReady(t, "i-mounts")
	seen(t, a, "i-mounts", "main",
		"mkdir /v/mnt && mount -t tmpfs inner /v/mnt && echo inside >/v/mnt/file && cat /v/mnt/file", "inside")
	seen(t, a, "i-mounts", "side",
		"echo y >/rw/file; cat /ro/file", "y",
		"echo y >/ro/file; echo $?", "sh: can't create /ro/file: Read-only file system\n1",
		"cat /ro/mnt/file", "inside",
		"cat /rw/mnt/file", "cat: can't open '/rw/mnt/file': No such file or directory")
	modes := map[string]corev1.RecursiveReadOnlyMode{"/ro": "Disabled", "/recursive": "Enabled"}
	for _, m := range statusOf(podOf(t, a, "i-mounts"), "side").VolumeMounts {
		if m.RecursiveReadOnly != nil && *m.RecursiveReadOnly != modes[m.MountPath] {
			t.Errorf("the status of %s is %q", m.MountPath, *m.RecursiveReadOnly)
		}
		delete(modes, m.MountPath)
	}
	if len(modes) > 0 {
		t.Errorf("the status has nothing of %v", modes)
	}
	removed(t, e, a, "i-mounts")
}

func initSecurity(t *testing.T, e *env.Env, a *env.Agent) {
	dir := filepath.Join(a.RootDir, "seccomp")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "i-mkdir.json"), []byte(profile), 0o600); err != nil {
		t.Fatal(err)
	}
	side := func(name, context string) string {
		return shell(name, "restartPolicy: Always", "securityContext: {"+context+"}")
	}
	put(t, a, "i-security", "terminationGracePeriodSeconds: 1\ninitContainers:\n"+
		side("user", "runAsUser: 5, runAsGroup: 6, runAsNonRoot: true, seccompProfile: {type: RuntimeDefault}")+
		side("caps", "capabilities: {drop: [ALL], add: [NET_BIND_SERVICE]}, allowPrivilegeEscalation: false, "+
			"readOnlyRootFilesystem: true")+
		side("filtered", "seccompProfile: {type: Localhost, localhostProfile: i-mkdir.json}")+
		side("all", "privileged: true")+
		strings.TrimSpace(strings.TrimPrefix(sleeper, "\nterminationGracePeriodSeconds: 5")))
	a.WaitReady(t, "i-security")
	for _, c := range []held{
		{name: "user", want: "Uid=5 Gid=6 Seccomp=2"},
		{name: "caps", want: "CapEff=400 NoNewPrivs=1"},
		{name: "filtered", want: "Seccomp=2"},
		{name: "all", want: "Seccomp=0 NoNewPrivs=0"},
	} {
		checkProcess(t, a, "i-security", c)
	}
	seen(t, a, "i-security", "caps", "echo x >/file; echo $?", "sh: can't create /file: Read-only file system\n1")
	seen(t, a, "i-security", "filtered", "mkdir /made 2>/dev/null; echo $?", "1")
	seen(t, a, "i-security", "all", "grep -q ' /proc/sys .* ro,' /proc/mounts; echo $?", "1")
	removed(t, e, a, "i-security")
}

func initResources(t *testing.T, e *env.Env, a *env.Agent) {
	put(t, a, "i-resources", "terminationGracePeriodSeconds: 1\ninitContainers:\n"+
		shell("side", "restartPolicy: Always",
			"resources: {limits: {cpu: 300m, memory: 96Mi}, requests: {cpu: 200m, memory: 48Mi}}")+
		strings.TrimSpace(strings.TrimPrefix(sleeper, "\nterminationGracePeriodSeconds: 5")))
	a.WaitReady(t, "i-resources")
	cgroupHas(t, e, podOf(t, a, "i-resources"), "side", map[string]string{
		"cpu/cpu.shares": "204", "cpu/cpu.cfs_quota_us": "30000", "memory/memory.limit_in_bytes": "100663296",
	})
	removed(t, e, a, "i-resources")
}
