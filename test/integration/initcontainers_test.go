//go:build integration

package integration

import (
	"strings"
	"testing"

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
	inputsAre(t, a, "i-input")
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
	if p := neverPulled(t, a, "i-image", "never"); statusOf(p, "present").State.Terminated == nil {
		t.Error("the container whose image is there did not run")
	}
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
	saysAtItsEnd(t, a, "i-messages", "log", "from the log\n")
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
		hasVariables(t, a, "i-environment", container, "SECRET=hush", "POD=i-environment-"+env.NodeName)
	}
	removed(t, e, a, "i-environment")
	a.RemoveManifest(t, "i-objects.yaml")
}

func initMounts(t *testing.T, e *env.Env, a *env.Agent) {
	put(t, a, "i-mounts", "terminationGracePeriodSeconds: 1\ninitContainers:\n"+
		shell("side", append([]string{"restartPolicy: Always"}, mountFields...)...)+mounting())
	a.WaitReady(t, "i-mounts")
	mountsAre(t, a, "i-mounts", "side")
	removed(t, e, a, "i-mounts")
}

func initSecurity(t *testing.T, e *env.Env, a *env.Agent) {
	addProfile(t, a, "mkdir.json")
	sides := ""
	for _, c := range contexts() {
		sides += shell(c.name, "restartPolicy: Always", "securityContext: "+c.context)
	}
	put(t, a, "i-security", "terminationGracePeriodSeconds: 1\ninitContainers:\n"+sides+
		strings.TrimSpace(strings.TrimPrefix(sleeper, "\nterminationGracePeriodSeconds: 5")))
	a.WaitReady(t, "i-security")
	contextsHold(t, a, "i-security")
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
