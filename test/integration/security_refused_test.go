//go:build integration

package integration

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/test/env"
)

// refusedPods checks that a pod that this node cannot run as requested ends as Failed, with the
// kubelet's reason, an event, and a timeline that names the field.
func refusedPods(t *testing.T, e *env.Env, a *env.Agent) {
	type refusal struct{ name, more, context, reason, message string }
	list := []refusal{
		{
			"no-sysctl", `securityContext: {sysctls: [{name: net.ipv4.ip_forward, value: "1"}]}`, "", "SysctlForbidden",
			`forbidden sysctl: "net.ipv4.ip_forward" not allowlisted`,
		},
		{
			"windows", "os: {name: windows}", "", "PodOSNotSupported",
			"Failed to admit pod as the OS field doesn't match node OS",
		},
		{
			"elsewhere", "nodeSelector: {disk: tape}", "", "NodeAffinity",
			"Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
		},
		{
			"out-of-cpu", "resources: {requests: {cpu: 1M}}", "", "OutOfcpu",
			"Node didn't have enough resource: cpu, requested: 1000000000, used: ",
		},
		{
			"out-of-memory", "resources: {requests: {memory: 1Pi}}", "", "OutOfmemory",
			"Node didn't have enough resource: memory, requested: 1125899906842624, used: ",
		},
		{
			"no-pages", "resources: {requests: {cpu: 1m}, limits: {hugepages-2Mi: 1Ti}}", "", "OutOfhugepages-2Mi",
			"Node didn't have enough resource: hugepages-2Mi, requested: 1099511627776, used: ",
		},
		{
			"cinder", "volumes: [{name: v, cinder: {volumeID: x}}]", "", "PodFeatureUnsupported",
			"spec.volumes[0].cinder is not supported: ",
		},
	}
	if !appArmor() {
		list = append(
			list,
			refusal{
				"apparmor-pod", "securityContext: {appArmorProfile: {type: RuntimeDefault}}", "", "AppArmor",
				"Cannot enforce AppArmor: AppArmor is not enabled on the host",
			},
			refusal{
				"apparmor-own", "", "{appArmorProfile: {type: Localhost, localhostProfile: p}}", "AppArmor",
				"Cannot enforce AppArmor: AppArmor is not enabled on the host",
			},
		)
	}
	for _, r := range list {
		put(t, a, r.name, holding(r.more, []held{{"main", "", r.context, ""}}))
	}
	a.WriteManifest(t, "ignored.yaml",
		strings.Replace(manifest("ignored", "schedulerName: mine\n"+holding("", []held{{"main", "", "", ""}})),
			"metadata:\n", "metadata:\n  annotations: {seccomp.security.alpha.kubernetes.io/pod: runtime/default}\n",
			1))
	for _, r := range list {
		p := waitPod(t, a, r.name, "refused", phase(corev1.PodFailed))
		if p.Status.Reason != r.reason ||
			!strings.HasPrefix(strings.TrimPrefix(p.Status.Message, "Pod was rejected: "), r.message) {
			t.Errorf("%s was refused for %s: %s", r.name, p.Status.Reason, p.Status.Message)
		}
		waitEvent(t, a, r.reason, r.name)
		if out, _, _ := a.CLI("why", r.name); !strings.Contains(out, r.message) {
			t.Errorf("why says of %s:\n%s", r.name, out)
		}
		if len(sandboxesOf(t, e, p)) != 0 {
			t.Errorf("%s was refused and has a sandbox", r.name)
		}
		removed(t, e, a, r.name)
	}
	a.WaitReady(t, "ignored")
	for _, field := range []string{
		"spec.schedulerName has no effect: ",
		"metadata.annotations[seccomp.security.alpha.kubernetes.io/pod] has no effect: ",
	} {
		waitEvent(t, a, "FieldWithoutEffect", field)
	}
	checkProcess(t, a, "ignored", held{name: "main", want: "Seccomp=0"})
	removed(t, e, a, "ignored")
}

// podSecurity checks that a node with a pod security standard refuses the pods that ask for more,
// from every source.
func podSecurity(t *testing.T, e *env.Env, a *env.Agent) {
	for name, c := range map[string]struct{ more, context, message string }{
		"on-host":   {"hostNetwork: true\nhostPID: true", "", "host namespaces (hostNetwork=true, hostPID=true)"},
		"host-root": {"volumes: [{name: v, hostPath: {path: /}}]", "", `hostPath volumes (volume "v")`},
		"privileged": {
			"", "{privileged: true}", `privileged (container "main" must not set securityContext.privileged=true)`,
		},
	} {
		put(t, a, name, holding(c.more, []held{{"main", "", c.context, ""}}))
		p := waitPod(t, a, name, "refused", phase(corev1.PodFailed))
		if p.Status.Reason != "PodSecurity" ||
			!strings.Contains(p.Status.Message, `violates PodSecurity "baseline:latest": `+c.message) {
			t.Errorf("%s was refused for %s: %s", name, p.Status.Reason, p.Status.Message)
		}
		removed(t, e, a, name)
	}
}

// TestSecurityOnDebian checks that users, privileges and seccomp are the same on the host's old
// containerd, and that a pod that needs strict groups is refused.
func TestSecurityOnDebian(t *testing.T) {
	t.Parallel()
	e := env.Containerd(t, env.Options{Version: env.ContainerdDebian})
	userImages(t, e)
	a := e.StartAgent(t, env.AgentOptions{Kubelet: `{allowedUnsafeSysctls: ["kernel.msg*", "net.core.somaxconn"]}`})
	a.WaitUp(t)
	strictGroups := strictGroupsRefused
	if e.Native { // which sets the groups itself
		strictGroups = groupsAreThose
	}
	t.Run("pods", func(t *testing.T) {
		onOneAgent(t, e, a, podTests{
			"users": usersAreThose, "image users": imageUsersCount, "privileges": privilegesAreThose,
			"sysctls": sysctlsAreSet, "shared processes": sharedProcesses, "strict groups": strictGroups,
		})
	})
	nothingLeft(t, e.Leaks)
}

// strictGroupsRefused checks a runtime that does not know the policy. Such a runtime would add the
// image's groups nevertheless.
func strictGroupsRefused(t *testing.T, e *env.Env, a *env.Agent) {
	put(t, a, "strict", holding("securityContext: {supplementalGroupsPolicy: Strict}", []held{{"main", "", "", ""}}))
	p := waitPod(t, a, "strict", "refused", phase(corev1.PodFailed))
	if p.Status.Reason != "SupplementalGroupsPolicyNotSupported" ||
		!strings.Contains(p.Status.Message, "SupplementalGroupsPolicy=Strict is not supported in this node") {
		t.Errorf("it was refused for %s: %s", p.Status.Reason, p.Status.Message)
	}
	removed(t, e, a, "strict")
}

// hostileInput checks images whose users could become another user, and settings that contain a
// second setting. They keep their container from running, and no other container.
func hostileInput(t *testing.T, e *env.Env, a *env.Agent) {
	const image = "berth.local/user-"
	list := []struct{ name, image, context, reason, message string }{
		{
			"overflow", "overflow", "", "CreateContainerConfigError",
			"image has an invalid user id (4294967296). (Must be 0-(2147483647))",
		},
		{"negative", "negative", "", "CreateContainerConfigError", "image has an invalid user id (-1)"},
		{"large", "large", "", "CreateContainerConfigError", "image has an invalid user id (2147483648)"},
		{"digits", "digits", "", "CreateContainerConfigError", "image has an invalid user id (99999999999999999999)"},
		{
			"overflow-nonroot", "overflow", "{runAsNonRoot: true}", "CreateContainerConfigError",
			"container has runAsNonRoot and image has an invalid user id (4294967296). (Must be 1-(2147483647))",
		},
		{
			"name-nonroot", "name", "{runAsNonRoot: true}", "CreateContainerConfigError",
			"container has runAsNonRoot and image has non-numeric user (app), cannot verify user is non-root",
		},
		{
			"none-nonroot", "none", "{runAsNonRoot: true}", "CreateContainerConfigError",
			"container has runAsNonRoot and image will run as root",
		},
		{
			"own-root", "number", "{runAsNonRoot: true, runAsUser: 0}", "CreateContainerConfigError",
			"container's runAsUser breaks non-root policy",
		},
		{
			"no-profile", "number", `{seccompProfile: {type: Localhost, localhostProfile: ""}}`,
			"CreateContainerConfigError", "localhostProfile must be set if seccompProfile type is Localhost.",
		},
		{"path", "path", "", "CreateContainerError", ""},
		{"escape", "escape", "", "CreateContainerError", ""},
	}
	containers := []held{{"fine", image + "name:v1", "", "Uid=1000"}}
	for _, c := range list {
		containers = append(containers, held{c.name, image + c.image + ":v1", c.context, ""})
	}
	put(t, a, "hostile-users", holding("", containers))
	p := waitPod(t, a, "hostile-users", "refused in part", func(p *corev1.Pod) error {
		for _, c := range list {
			w := statusOf(p, c.name).State.Waiting
			if w == nil || w.Reason != c.reason || !strings.Contains(w.Message, c.message) {
				return fmt.Errorf("%s waits for %+v, want %s: %s", c.name, w, c.reason, c.message)
			}
		}
		if statusOf(p, "fine").State.Running == nil {
			return errors.New("the container whose user is fine does not run")
		}
		return nil
	})
	checkProcess(t, a, "hostile-users", containers[0])
	if !strings.Contains(statusOf(p, "own-root").State.Waiting.Message,
		fmt.Sprintf(`(pod: "hostile-users-node_default(%s)", container: own-root)`, p.UID)) {
		t.Errorf("the message is %q", statusOf(p, "own-root").State.Waiting.Message)
	}
	if out, _, _ := a.CLI("describe", "hostile-users"); strings.Contains(out, "\x1b") {
		t.Error("the image's user reaches the terminal")
	}
	removed(t, e, a, "hostile-users")
	hostileSettings(t, e, a)
}

// hostileSettings checks a sysctl with a newline, and a profile whose path leaves its folder.
func hostileSettings(t *testing.T, e *env.Env, a *env.Agent) {
	put(t, a, "two-sysctls",
		holding(`securityContext: {sysctls: [{name: kernel.msgmax, value: "1\nkernel.core_pattern=|/x"}]}`, []held{
			{"main", "", "", ""},
		}))
	waitEvent(t, a, "FailedCreatePodSandBox", `value of sysctl "kernel.msgmax" is not valid`)
	if p := podOf(t, a, "two-sysctls"); len(sandboxesOf(t, e, p)) != 0 {
		t.Error("a sysctl with a newline has reached the runtime")
	}
	removed(t, e, a, "two-sysctls")
	for file, c := range map[string]struct{ context, field, message string }{
		"up.yaml": {
			"{seccompProfile: {type: Localhost, localhostProfile: ../../etc/passwd}}", "localhostProfile",
			"must not contain '..'",
		},
		"absolute.yaml": {
			"{seccompProfile: {type: Localhost, localhostProfile: /etc/passwd}}", "localhostProfile",
			"must be a relative path",
		},
		"unnamed.yaml": {
			"{seccompProfile: {type: Localhost}}", "localhostProfile", "must be set when seccomp type is localhost",
		},
		"unmasked.yaml": {"{procMount: Unmasked}", "procMount", "`hostusers` must be false to use `unmasked`"},
		"negative.yaml": {"{runAsUser: -1}", "runAsUser", "must be between 0 and 2147483647"},
		"overflow.yaml": {"{runAsUser: 4294967296}", "runAsUser", "must be between 0 and 2147483647"},
	} {
		a.WriteManifest(t, file, manifest("hostile", holding("", []held{{"main", "", c.context, ""}})))
		field := "spec.containers[0].securityContext." +
			map[bool]string{true: "seccompProfile.", false: ""}[c.field == "localhostProfile"] + c.field
		refused(t, a, a.Manifests+"/"+file, says(c.message, field, true))
		a.RemoveManifest(t, file)
	}
}
