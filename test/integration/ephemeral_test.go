//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/berthd/berth/client"
	"github.com/berthd/berth/test/env"
)

// TestEphemeral sets the fields of ephemeral containers and reads their effects in the containers.
func TestEphemeral(t *testing.T) {
	t.Parallel()
	e := env.Containerd(t, env.Options{})
	a := e.StartAgent(t, env.AgentOptions{})
	a.WaitUp(t)
	t.Run("pods", func(t *testing.T) {
		onOneAgent(t, e, a, podTests{
			"command": ephemeralCommand, "input": ephemeralInput, "image": ephemeralImage, "messages": ephemeralMessages,
			"target": ephemeralTarget, "environment": ephemeralEnvironment, "mounts": ephemeralMounts,
			"security": ephemeralSecurity,
		})
	})
	nothingLeft(t, e.Leaks)
}

// join adds ephemeral containers, given as a list in YAML, to a pod of the default namespace.
func join(t *testing.T, a *env.Agent, pod, containers string) {
	t.Helper()
	var list struct {
		EphemeralContainers []corev1.EphemeralContainer `json:"ephemeralContainers"`
	}
	if err := yaml.UnmarshalStrict([]byte(containers), &list); err != nil {
		t.Fatal(err)
	}
	for i := range list.EphemeralContainers {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		err := client.New(a.Socket).AddEphemeral(ctx, "default", pod+"-"+env.NodeName, &list.EphemeralContainers[i])
		if err != nil {
			t.Fatalf("adding %s: %v", list.EphemeralContainers[i].Name, err)
		}
	}
}

// joined waits until the container of a pod runs.
func joined(t *testing.T, a *env.Agent, pod string, containers ...string) *corev1.Pod {
	t.Helper()
	return waitPod(t, a, pod, "running with its ephemeral containers", func(p *corev1.Pod) error {
		for _, name := range containers {
			if s := statusOf(p, name); s.State.Running == nil {
				return fmt.Errorf("%s is %+v", name, s.State)
			}
		}
		return nil
	})
}

// ended waits until the container of a pod has ended, and returns its end.
func ended(t *testing.T, a *env.Agent, pod, container string) *corev1.ContainerStateTerminated {
	t.Helper()
	p := waitPod(t, a, pod, "with an end of "+container, func(p *corev1.Pod) error {
		if s := statusOf(p, container); s.State.Terminated == nil {
			return fmt.Errorf("%s is %+v", container, s.State)
		}
		return nil
	})
	return statusOf(p, container).State.Terminated
}

func ephemeralCommand(t *testing.T, e *env.Env, a *env.Agent) {
	put(t, a, "e-command", sleeper)
	a.WaitReady(t, "e-command")
	join(t, a, "e-command", `ephemeralContainers:
  - name: look
    image: berth.local/busybox:v1
    command: [sh, -c, 'echo "$(pwd) $0 $1"', $(WORD)]
    args: ['$(WORD)-$$(WORD)-$(NONE)']
    workingDir: /srv/work
    env: [{name: WORD, value: hello}]
`)
	if end := ended(t, a, "e-command", "look"); end.ExitCode != 0 {
		t.Errorf("it ended with %d", end.ExitCode)
	}
	if out, _, _ := a.CLI("logs", "e-command", "-c", "look"); out != "/srv/work hello hello-$(WORD)-$(NONE)\n" {
		t.Errorf("it says %q", out)
	}
	removed(t, e, a, "e-command")
}

func ephemeralTarget(t *testing.T, e *env.Env, a *env.Agent) {
	put(t, a, "e-target", "terminationGracePeriodSeconds: 1\ncontainers:\n"+shell("main")+shell("other"))
	a.WaitReady(t, "e-target")
	join(t, a, "e-target", `ephemeralContainers:
  - {name: look, image: berth.local/busybox:v1, command: [sleep, "3600"], targetContainerName: main}
  - {name: alone, image: berth.local/busybox:v1, command: [sleep, "3600"]}
`)
	joined(t, a, "e-target", "look", "alone")
	if of, mine := inside(t, a, "e-target", "main", "readlink", "/proc/self/ns/pid"),
		inside(t, a, "e-target", "look", "readlink", "/proc/self/ns/pid"); of != mine {
		t.Errorf("it is in the process namespace %q, and its target in %q", mine, of)
	}
	for _, other := range []string{"other", "alone"} {
		if of, mine := inside(t, a, "e-target", "main", "readlink", "/proc/self/ns/pid"),
			inside(t, a, "e-target", other, "readlink", "/proc/self/ns/pid"); of == mine {
			t.Errorf("%s is in the process namespace of main", other)
		}
	}
	removed(t, e, a, "e-target")
}

func ephemeralInput(t *testing.T, e *env.Env, a *env.Agent) {
	put(t, a, "e-input", sleeper)
	a.WaitReady(t, "e-input")
	join(t, a, "e-input", `ephemeralContainers:
  - {name: none, image: berth.local/busybox:v1, command: [sleep, "3600"]}
  - {name: pipe, image: berth.local/busybox:v1, command: [sleep, "3600"], stdin: true}
  - {name: terminal, image: berth.local/busybox:v1, command: [sleep, "3600"], stdin: true, tty: true}
  - {name: once, image: berth.local/busybox:v1, command: [cat], stdin: true, stdinOnce: true}
`)
	joined(t, a, "e-input", "none", "pipe", "terminal", "once")
	inputsAre(t, a, "e-input")
	attach := exec.CommandContext(t.Context(), binary(t, a), "attach", "--socket", a.Socket, "-i", "e-input", "-c", "once")
	attach.Stdin = strings.NewReader("last words\n")
	if out, err := attach.CombinedOutput(); err != nil {
		t.Errorf("attach: %v, %s", err, out)
	}
	if end := ended(t, a, "e-input", "once"); end.ExitCode != 0 {
		t.Errorf("the container whose input has ended ended with %d", end.ExitCode)
	}
	if out, _, _ := a.CLI("logs", "e-input", "-c", "once"); out != "last words\n" {
		t.Errorf("it says %q", out)
	}
	removed(t, e, a, "e-input")
}

func ephemeralImage(t *testing.T, e *env.Env, a *env.Agent) {
	put(t, a, "e-image", sleeper)
	a.WaitReady(t, "e-image")
	join(t, a, "e-image", `ephemeralContainers:
  - {name: never, image: berth.local/none:v1, imagePullPolicy: Never}
  - {name: present, image: berth.local/busybox:v1, imagePullPolicy: Never, command: [sleep, "3600"]}
`)
	joined(t, a, "e-image", "present")
	neverPulled(t, a, "e-image", "never")
	removed(t, e, a, "e-image")
}

func ephemeralMessages(t *testing.T, e *env.Env, a *env.Agent) {
	put(t, a, "e-messages", sleeper)
	a.WaitReady(t, "e-messages")
	join(t, a, "e-messages", `ephemeralContainers:
  - name: file
    image: berth.local/busybox:v1
    command: [sh, -c, 'echo -n from the file > /var/end; echo -n wrong > /dev/termination-log']
    terminationMessagePath: /var/end
  - name: log
    image: berth.local/busybox:v1
    command: [sh, -c, 'echo from the log; exit 3']
    terminationMessagePolicy: FallbackToLogsOnError
`)
	saysAtItsEnd(t, a, "e-messages", "file", "from the file")
	saysAtItsEnd(t, a, "e-messages", "log", "from the log\n")
	removed(t, e, a, "e-messages")
}

func ephemeralEnvironment(t *testing.T, e *env.Env, a *env.Agent) {
	a.WriteManifest(t, "e-objects.yaml",
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: e-env}\ndata: {A: from-a}\n---\n"+
			"apiVersion: v1\nkind: Secret\nmetadata: {name: e-env}\nstringData: {S: hush}\n")
	put(t, a, "e-environment", `
terminationGracePeriodSeconds: 1
initContainers:
  - name: write
    image: berth.local/busybox:v1
    command: [sh, -c, "echo \"ONE='first'\" > /v/good.env"]
    volumeMounts: [{name: v, mountPath: /v}]
containers:
  - name: main
    image: berth.local/web:v1
    args: [sleep]
    resources: {limits: {memory: 32Mi}}
volumes: [{name: v, emptyDir: {}}]
`)
	a.WaitReady(t, "e-environment")
	join(t, a, "e-environment", `ephemeralContainers:
  - name: look
    image: berth.local/web:v1
    args: [sleep]
    envFrom:
      - {prefix: C_, configMapRef: {name: e-env}}
      - {configMapRef: {name: none, optional: true}}
      - {prefix: S_, secretRef: {name: e-env}}
      - {secretRef: {name: none, optional: true}}
    env:
      - {name: PLAIN, value: "x$(C_A)"}
      - {name: KEY, valueFrom: {configMapKeyRef: {name: e-env, key: A}}}
      - {name: NOKEY, valueFrom: {configMapKeyRef: {name: e-env, key: none, optional: true}}}
      - {name: SECRET, valueFrom: {secretKeyRef: {name: e-env, key: S}}}
      - {name: NOSECRET, valueFrom: {secretKeyRef: {name: none, key: S, optional: true}}}
      - {name: POD, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: metadata.name}}}
      - {name: LIMIT, valueFrom: {resourceFieldRef: {containerName: main, resource: limits.memory, divisor: 1Mi}}}
      - {name: FILE, valueFrom: {fileKeyRef: {volumeName: v, path: good.env, key: ONE}}}
      - {name: NOFILE, valueFrom: {fileKeyRef: {volumeName: v, path: none.env, key: ONE, optional: true}}}
`)
	joined(t, a, "e-environment", "look")
	hasVariables(t, a, "e-environment", "look", "C_A=from-a", "S_S=hush", "PLAIN=xfrom-a", "KEY=from-a",
		"SECRET=hush", "POD=e-environment-"+env.NodeName, "LIMIT=32", "FILE=first")
	removed(t, e, a, "e-environment")
	a.RemoveManifest(t, "e-objects.yaml")
}

func ephemeralMounts(t *testing.T, e *env.Env, a *env.Agent) {
	put(t, a, "e-mounts", "terminationGracePeriodSeconds: 1\n"+mounting())
	a.WaitReady(t, "e-mounts")
	join(t, a, "e-mounts", "ephemeralContainers:\n"+shell("look", mountFields...))
	joined(t, a, "e-mounts", "look")
	mountsAre(t, a, "e-mounts", "look")
	removed(t, e, a, "e-mounts")
}

func ephemeralSecurity(t *testing.T, e *env.Env, a *env.Agent) {
	addProfile(t, a, "mkdir.json")
	put(t, a, "e-security", sleeper)
	a.WaitReady(t, "e-security")
	list := "ephemeralContainers:\n" + shell("root", "securityContext: {runAsNonRoot: true}")
	for _, c := range contexts() {
		list += shell(c.name, "securityContext: "+c.context)
	}
	join(t, a, "e-security", list)
	joined(t, a, "e-security", "user", "caps", "filtered", "all")
	contextsHold(t, a, "e-security")
	waitPod(t, a, "e-security", "refused in part", func(p *corev1.Pod) error {
		w := statusOf(p, "root").State.Waiting
		if w == nil || !strings.Contains(w.Message, "runAsNonRoot") {
			return errors.New("the container that may not be root does not wait for it")
		}
		return nil
	})
	removed(t, e, a, "e-security")
}
