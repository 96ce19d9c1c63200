package plan

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// now is the time of decisions in tests; containers end an hour before unless they say otherwise.
var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// parsePod makes a pod of a text like "OnFailure i:setup s:proxy a:web a:log e:debug": a restart
// policy, then init containers, sidecars, app containers and ephemeral ones. A container may have a
// policy of its own ("a:web=Never") or a startup probe ("s:proxy+startup"). The pod may have the
// host's network ("host").
func parsePod(t *testing.T, text string) *v1.Pod {
	t.Helper()
	fields := strings.Fields(text)
	pod := &v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "u", Namespace: "ns", Name: "p"}}
	pod.Spec.RestartPolicy = v1.RestartPolicy(fields[0])
	for _, f := range fields[1:] {
		kind, name, _ := strings.Cut(f, ":")
		name, startup := strings.CutSuffix(name, "+startup")
		name, policy, own := strings.Cut(name, "=")
		c := v1.Container{Name: name, Image: "busybox"}
		if own {
			p := v1.ContainerRestartPolicy(policy)
			c.RestartPolicy = &p
		}
		grace := int64(7)
		c.LivenessProbe = &v1.Probe{TerminationGracePeriodSeconds: &grace}
		if startup {
			c.StartupProbe = &v1.Probe{}
		}
		switch kind {
		case "host":
			pod.Spec.HostNetwork = true
		case "i":
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		case "s":
			always := v1.ContainerRestartPolicyAlways
			c.RestartPolicy = &always
			pod.Spec.InitContainers = append(pod.Spec.InitContainers, c)
		case "a":
			pod.Spec.Containers = append(pod.Spec.Containers, c)
		case "e":
			pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers, v1.EphemeralContainer{
				EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: name, Image: "busybox"},
			})
		default:
			t.Fatalf("pod %q: %q is not understood", text, f)
		}
	}
	return pod
}

// parseObserved makes what was observed of lines like "S0 lost", "S1 ready", "web#1 running @S1",
// "web#0 exited 1 @S0 10s" (it ended 10 s ago). Sandboxes are "ready", "lost", "host" (ready, on
// the host's network) or "bare" (ready, without an address). A container without @ is in the
// sandbox last named. A "!" after a container's state says that it was made from another spec.
func parseObserved(t *testing.T, lines ...string) Observed {
	t.Helper()
	var o Observed
	sandbox := ""
	for _, line := range lines {
		f := strings.Fields(line)
		if len(f) < 2 {
			t.Fatalf("observed %q is not understood", line)
		}
		name, attempt, isContainer := strings.Cut(f[0], "#")
		if !isContainer {
			sandbox = f[0]
			o.Sandboxes = append(o.Sandboxes, parseSandbox(t, f[0], f[1]))
			continue
		}
		n, err := strconv.ParseUint(attempt, 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		o.Containers = append(o.Containers, parseContainer(t, name, uint32(n), sandbox, f))
	}
	o.Sort()
	return o
}

func parseSandbox(t *testing.T, id, state string) *runtimeapi.PodSandboxStatus {
	t.Helper()
	n, err := strconv.ParseUint(id[1:], 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	s := &runtimeapi.PodSandboxStatus{
		Id: id, Metadata: &runtimeapi.PodSandboxMetadata{Attempt: uint32(n)},
		Network: &runtimeapi.PodSandboxNetworkStatus{Ip: "10.0.0.1"},
		Linux: &runtimeapi.LinuxPodSandboxStatus{
			Namespaces: &runtimeapi.Namespace{Options: &runtimeapi.NamespaceOption{}},
		},
	}
	switch state {
	case "ready":
	case "lost":
		s.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
	case "host":
		s.Linux.Namespaces.Options.Network = runtimeapi.NamespaceMode_NODE
		s.Network.Ip = ""
	case "bare":
		s.Network.Ip = ""
	default:
		t.Fatalf("sandbox state %q is not understood", state)
	}
	return s
}

func parseContainer(t *testing.T, name string, attempt uint32, sandbox string, f []string) *Container {
	t.Helper()
	c := &Container{SandboxID: sandbox, Hash: "hash", ContainerStatus: &runtimeapi.ContainerStatus{
		Id: f[0], Metadata: &runtimeapi.ContainerMetadata{Name: name, Attempt: attempt},
	}}
	state, changed := strings.CutSuffix(f[1], "!")
	if changed {
		c.Hash = "other"
	}
	state = "CONTAINER_" + strings.ToUpper(state)
	if _, ok := runtimeapi.ContainerState_value[state]; !ok {
		t.Fatalf("container state %q is not understood", f[1])
	}
	c.State = runtimeapi.ContainerState(runtimeapi.ContainerState_value[state])
	if c.Exited() {
		c.FinishedAt = now.Add(-time.Hour).UnixNano()
	}
	for _, x := range f[2:] {
		if s, ok := strings.CutPrefix(x, "@"); ok {
			c.SandboxID = s
		} else if d, err := time.ParseDuration(x); err == nil && x != "0" {
			c.FinishedAt = now.Add(-d).UnixNano()
		} else if code, err := strconv.Atoi(x); err == nil {
			c.ExitCode = int32(code)
		} else {
			t.Fatalf("container %q is not understood", f)
		}
	}
	return c
}

// summary writes actions on one line, in a fixed order, without what is empty.
func summary(a Actions) string {
	var out []string
	add := func(name string, list []string) {
		if len(list) > 0 {
			out = append(out, name+"["+strings.Join(list, " ")+"]")
		}
	}
	add("stop", a.StopSandboxes)
	if a.CreateSandbox {
		out = append(out, fmt.Sprintf("create#%d", a.SandboxAttempt))
	}
	add("remove", ids(a.RemoveContainers))
	add("removeSandbox", a.RemoveSandboxes)
	var kills, held, starts, waits []string
	for _, k := range a.Kill {
		if k.Held {
			held = append(held, k.Container.Id)
			continue
		}
		kills = append(kills, k.Container.Id+":"+string(k.Reason))
	}
	for _, s := range a.Start {
		starts = append(starts, fmt.Sprintf("%s#%d", s.Container.Name, s.Attempt))
	}
	for _, w := range a.Wait {
		waits = append(waits, fmt.Sprintf("%s#%d+%s", w.Name, w.Attempt, w.Until.Sub(now)))
	}
	add("kill", kills)
	add("held", held)
	add("start", starts)
	add("wait", waits)
	for name, set := range map[string]bool{"finished": a.Finished, "stopped": a.Stopped} {
		if set {
			out = append(out, name)
		}
	}
	if a.Initialized && !a.Finished {
		out = append(out, "initialized")
	}
	return strings.Join(out, " ")
}

func ids(list []*Container) []string {
	var out []string
	for _, c := range list {
		out = append(out, c.Id)
	}
	return out
}

func hashOf(*v1.Container) string { return "hash" }
