//go:build integration

package integration

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/test/env"
)

// TestFields uses fields of pods that no other test here uses in the same way, and reads their
// effects in containers and at servers.
func TestFields(t *testing.T) {
	t.Parallel()
	e := env.Containerd(t, env.Options{})
	a := e.StartAgent(t, env.AgentOptions{Kubelet: "{clusterDomain: c.test}"})
	a.WaitUp(t)
	t.Run("pods", func(t *testing.T) {
		onOneAgent(t, e, a, podTests{
			"command": commandsRun, "termination message": messagesElsewhere, "host names": hostNames,
			"readiness gates": gatesHold,
			"probes":          probesOfAllKinds, "probe times": probesKeepTime, "restart policy": policiesRestart,
			"sidecars' probes": sidecarsProbes, "startup times": startupsKeepTime, "sidecars' times": sidecarsKeepTime,
			"hooks": hooksOfAllKinds, "sidecar": sidecarIsProbed, "metadata": metadataReaches,
			"sidecars' hooks": sidecarsHooks,
			"affinity":        affinityMatches,
			"pod resources":   podsAreLimited, "terminal": inputsAreOpen,
		})
	})
	nothingLeft(t, e.Leaks)
}

// commandsRun checks command and args with variables in them, in their working directory, also in
// init containers.
func commandsRun(t *testing.T, e *env.Env, a *env.Agent) {
	const container = `
    image: berth.local/busybox:v1
    imagePullPolicy: IfNotPresent
    command: [sh, -c, 'echo "$(pwd) $0 $1"; %s', $(WORD)]
    args: ['$(WORD)-$$(WORD)-$(NONE)']
    workingDir: /srv/work
    env: [{name: WORD, value: hello}]
`
	put(t, a, "command",
		"terminationGracePeriodSeconds: 1\ninitContainers:\n  - name: first"+fmt.Sprintf(container, "true")+
			"containers:\n  - name: main"+
			fmt.Sprintf(container, `trap "exit 0" TERM; while true; do sleep 1 & wait $!; done`))
	a.WaitReady(t, "command")
	for _, name := range []string{"first", "main"} {
		if out, _, _ := a.CLI("logs", "command", "-c", name); out != "/srv/work hello hello-$(WORD)-$(NONE)\n" {
			t.Errorf("%s says %q", name, out)
		}
	}
	removed(t, e, a, "command")
}

// messagesElsewhere checks that the termination message is the content of the file that the
// container names.
func messagesElsewhere(t *testing.T, e *env.Env, a *env.Agent) {
	const container = `
    image: berth.local/busybox:v1
    command: [sh, -c, 'echo -n %s > /var/end; echo -n wrong > /dev/termination-log']
    terminationMessagePath: /var/end
    terminationMessagePolicy: File
`
	put(t, a, "message",
		"restartPolicy: Never\ninitContainers:\n  - name: first"+fmt.Sprintf(container, "one")+
			"containers:\n  - name: main"+fmt.Sprintf(container, "two"))
	waitPod(t, a, "message", "ended with its messages", func(p *corev1.Pod) error {
		for name, want := range map[string]string{"first": "one", "main": "two"} {
			if end := statusOf(p, name).State.Terminated; end == nil || end.Message != want {
				return fmt.Errorf("%s ended as %+v", name, end)
			}
		}
		return phase(corev1.PodSucceeded)(p)
	})
	removed(t, e, a, "message")
}

// hostNames checks the names by which a pod knows itself.
func hostNames(t *testing.T, e *env.Env, a *env.Agent) {
	for name, c := range map[string]struct{ spec, want string }{
		"plain-name": {"", "plain-name-node"},
		"own-name":   {"hostname: own\n", "own"},
		"full-name":  {"hostname: own\nsubdomain: sub\nsetHostnameAsFQDN: true\n", "own.sub.default.svc.c.test"},
		"short-name": {"hostname: own\nsubdomain: sub\nsetHostnameAsFQDN: false\n", "own"},
		"over-name":  {"hostnameOverride: over.example\n", "over.example"},
	} {
		put(t, a, name, holding(c.spec, []held{{"main", "", "", ""}}))
		a.WaitReady(t, name)
		if got := strings.TrimSpace(inside(t, a, name, "main", "hostname")); got != c.want {
			t.Errorf("%s calls itself %q, want %q", name, got, c.want)
		}
		if hosts := inside(t, a, name, "main", "cat", "/etc/hosts"); !strings.Contains(hosts,
			strings.TrimSuffix(c.want, ".sub.default.svc.c.test")) {
			t.Errorf("%s is not in its hosts file:\n%s", name, hosts)
		}
		removed(t, e, a, name)
	}
}

// gatesHold checks that a pod with a readiness gate that nobody has opened runs, and is not ready.
func gatesHold(t *testing.T, e *env.Env, a *env.Agent) {
	put(t, a, "gated", "readinessGates: [{conditionType: example.com/open}]"+sleeper)
	waitPod(t, a, "gated", "held back by its gate", func(p *corev1.Pod) error {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.ContainersReady && c.Status != corev1.ConditionTrue ||
				c.Type == corev1.PodReady && c.Reason != "ReadinessGatesNotReady" {
				return fmt.Errorf("%s is %s: %s", c.Type, c.Status, c.Reason)
			}
		}
		return nil
	})
	removed(t, e, a, "gated")
}

// visits are the requests that a server of this test got, by path.
type visits struct {
	mu   sync.Mutex
	seen map[string]*http.Request
}

func (v *visits) ServeHTTP(_ http.ResponseWriter, r *http.Request) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.seen[r.URL.Path] = r
}

// check compares the host and header of a visit with what probes and hooks here must send.
func (v *visits) check(t *testing.T, path string, secure bool) {
	t.Helper()
	env.Eventually(t, "a request for "+path, func() error {
		v.mu.Lock()
		defer v.mu.Unlock()
		r := v.seen[path]
		if r == nil {
			return errors.New("there was none")
		}
		if r.Host != "virtual.test" || r.Header.Get("X-Who") != "berth" || (r.TLS != nil) != secure {
			t.Errorf("%s was asked of %s with %v, by TLS: %t", path, r.Host, r.Header, r.TLS != nil)
		}
		return nil
	})
}

// servers starts an HTTP and an HTTPS server on loopback, which probes and hooks with a host of
// their own can reach. It returns their ports.
func servers(t *testing.T) (v *visits, plain, secure string) {
	t.Helper()
	v = &visits{seen: map[string]*http.Request{}}
	h, s := httptest.NewServer(v), httptest.NewTLSServer(v)
	t.Cleanup(h.Close)
	t.Cleanup(s.Close)
	port := func(url string) string { return url[strings.LastIndexByte(url, ':')+1:] }
	return v, port(h.URL), port(s.URL)
}

// action is an httpGet to a server of this test.
func action(scheme, port, path string) string {
	return fmt.Sprintf("{scheme: %s, host: 127.0.0.1, port: %s, path: %s, httpHeaders: [{name: Host, value: "+
		"virtual.test}, {name: X-Who, value: berth}]}", scheme, port, path)
}

// patient are the settings of a probe that must not fail on a busy machine.
const patient = "timeoutSeconds: 30, failureThreshold: 100"

// probesOfAllKinds checks each action with all its settings, for each kind of probe.
func probesOfAllKinds(t *testing.T, e *env.Env, a *env.Agent) {
	probeAll(t, e, a, "probed", "containers:\n"+probed, "")
}

// sidecarsProbes is probesOfAllKinds with sidecars.
func sidecarsProbes(t *testing.T, e *env.Env, a *env.Agent) {
	probeAll(t, e, a, "aside-probed", "initContainers:\n"+probed, aside)
}

// aside has the only container of a pod whose other containers are sidecars.
const aside = "containers: [{name: main, image: berth.local/web:v1, args: [sleep]}]\n"

// probed are containers with probes: a format of the visited actions, their port, and the settings
// of probes that must not fail.
const probed = `  - name: web
    image: berth.local/web:v1
    ports: [{name: web, containerPort: 8080, protocol: TCP}]
    startupProbe: {exec: {command: [/testapp, get, "http://127.0.0.1:8080/healthz"]}, periodSeconds: 1, %[4]s}
    readinessProbe: {httpGet: {path: /readyz, port: web}, periodSeconds: 1, successThreshold: 2, timeoutSeconds: 30}
    livenessProbe: {tcpSocket: {port: web}, periodSeconds: 1, initialDelaySeconds: 1, %[4]s}
  - name: visitor
    image: berth.local/web:v1
    args: [sleep]
    startupProbe: {httpGet: %[1]s, periodSeconds: 1, %[4]s}
    readinessProbe: {httpGet: %[2]s, periodSeconds: 1, timeoutSeconds: 30}
    livenessProbe: {tcpSocket: {host: 127.0.0.1, port: %[3]s}, periodSeconds: 1, %[4]s}
  - name: grpc
    image: berth.local/web:v1
    args: [grpc]
    startupProbe: {grpc: {port: 9090, service: known}, periodSeconds: 1, %[4]s}
    readinessProbe: {grpc: {port: 9090, service: known}, periodSeconds: 1, timeoutSeconds: 30}
    livenessProbe: {grpc: {port: 9090}, periodSeconds: 1, %[4]s}
  - name: unknown
    image: berth.local/web:v1
    args: [grpc, "--listen=:9091"]
    readinessProbe: {grpc: {port: 9091, service: unknown}, periodSeconds: 1, timeoutSeconds: 30}
`

// probeAll runs a pod of those containers. With more in the pod's spec they are sidecars.
func probeAll(t *testing.T, e *env.Env, a *env.Agent, pod, containers, more string) {
	v, plain, secure := servers(t)
	put(t, a, pod, "terminationGracePeriodSeconds: 1\n"+fmt.Sprintf(ofKind(more, containers),
		action("HTTP", plain, "/start"), action("HTTPS", secure, "/ready"), plain, patient)+more)
	waitPod(t, a, pod, "ready but for one container", func(p *corev1.Pod) error {
		for name, want := range map[string]bool{"web": true, "visitor": true, "grpc": true, "unknown": false} {
			if s := statusOf(p, name); s.Ready != want || s.State.Running == nil {
				return fmt.Errorf("%s is %+v", name, s)
			}
		}
		return nil
	})
	waitEvent(t, a, "Unhealthy", "Readiness probe failed: error: health rpc probe failed")
	v.check(t, "/start", false)
	v.check(t, "/ready", true)
	status := podOf(t, a, pod).Status
	for _, c := range slices.Concat(status.InitContainerStatuses, status.ContainerStatuses) {
		if c.RestartCount != 0 {
			t.Errorf("%s was restarted", c.Name)
		}
	}
	removed(t, e, a, pod)
}

// hooksOfAllKinds checks each action before a container's end and after its start.
func hooksOfAllKinds(t *testing.T, e *env.Env, a *env.Agent) {
	hookAll(t, e, a, "hooked", "containers:\n"+hooked, "")
}

// sidecarsHooks is hooksOfAllKinds with sidecars.
func sidecarsHooks(t *testing.T, e *env.Env, a *env.Agent) {
	hookAll(t, e, a, "aside-hooked", "initContainers:\n"+hooked, aside)
}

// hooked are containers with hooks: a format of the visited actions.
const hooked = `  - name: http
    image: berth.local/web:v1
    args: [sleep]
    lifecycle: {postStart: {httpGet: %s}, preStop: {httpGet: %s}}
  - name: exec
    image: berth.local/web:v1
    lifecycle: {postStart: {exec: {command: [/testapp, write, /www/started, "yes"]}},
      preStop: {exec: {command: [/testapp, get, "http://127.0.0.1:8080/healthz"]}}}
  - name: sleeps
    image: berth.local/web:v1
    args: [sleep]
    lifecycle: {postStart: {sleep: {seconds: 1}}, preStop: {sleep: {seconds: 1}}}
`

// hookAll runs a pod of those containers. With more in the pod's spec they are sidecars.
func hookAll(t *testing.T, e *env.Env, a *env.Agent, pod, containers, more string) {
	v, plain, secure := servers(t)
	put(t, a, pod, "terminationGracePeriodSeconds: 60\n"+fmt.Sprintf(ofKind(more, containers),
		action("HTTPS", secure, "/after-start"), action("HTTP", plain, "/before-end"))+more)
	a.WaitReady(t, pod)
	v.check(t, "/after-start", true)
	if got := inside(t, a, pod, "exec", "/testapp", "cat", "/www/started"); strings.TrimSpace(got) != "yes" {
		t.Errorf("the postStart hook wrote %q", got)
	}
	removed(t, e, a, pod)
	v.check(t, "/before-end", false)
}

// sidecarIsProbed checks that a sidecar has probes and hooks like a container, and that the pod's
// containers wait for the sidecar's start.
func sidecarIsProbed(t *testing.T, e *env.Env, a *env.Agent) {
	v, plain, secure := servers(t)
	put(t, a, "aside", fmt.Sprintf(`
terminationGracePeriodSeconds: 60
initContainers:
  - name: side
    image: berth.local/web:v1
    restartPolicy: Always
    ports: [{name: web, containerPort: 8080}]
    lifecycle: {postStart: {httpGet: %[1]s}, preStop: {httpGet: %[2]s}}
    startupProbe: {httpGet: {path: /healthz, port: web}, periodSeconds: 1, %[3]s}
    readinessProbe: {exec: {command: [/testapp, get, "http://127.0.0.1:8080/readyz"]}, periodSeconds: 1,
      timeoutSeconds: 30}
    livenessProbe: {tcpSocket: {port: web}, periodSeconds: 1, %[3]s}
containers:
  - name: main
    image: berth.local/web:v1
    args: [sleep]
`, action("HTTP", plain, "/side-start"), action("HTTPS", secure, "/side-end"), patient))
	a.WaitReady(t, "aside")
	v.check(t, "/side-start", false)
	p := podOf(t, a, "aside")
	side, main := statusOf(p, "side"), statusOf(p, "main")
	if side.Started == nil || !*side.Started || side.State.Running.StartedAt.After(main.State.Running.StartedAt.Time) {
		t.Errorf("the sidecar is %+v, the container %+v", side, main)
	}
	if _, err := ask(t, "POST", p, "/readyz?ok=false"); err != nil {
		t.Fatal(err)
	}
	waitPod(t, a, "aside", "not ready by its sidecar", func(p *corev1.Pod) error {
		if env.Ready(p) || statusOf(p, "side").Ready {
			return errors.New("it still is")
		}
		return nil
	})
	removed(t, e, a, "aside")
	v.check(t, "/side-end", true)
}

// metadataReaches checks that the runtime and the pod itself get what a manifest says about the
// pod.
func metadataReaches(t *testing.T, e *env.Env, a *env.Agent) {
	a.WriteManifest(t, "known.yaml", `apiVersion: v1
kind: Pod
metadata:
  name: known
  namespace: shop
  uid: 0b0f1cd8-7d49-4a3f-9f3e-0a1d6c2b7e55
  generation: 3
  labels: {app: web, example.com/tier: front}
  annotations: {note: "two words", example.com/owner: me, dev.gvisor.flag: "on", pools.nri.io/pool: "big one"}
spec:
  `+strings.ReplaceAll(strings.TrimSpace(sleeper), "\n", "\n  ")+`
      env:
        - {name: LABEL, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: "metadata.labels['example.com/tier']"}}}
        - {name: NOTE, valueFrom: {fieldRef: {fieldPath: "metadata.annotations['note']"}}}
        - {name: WHO, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
        - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
`)
	a.WaitReady(t, "known")
	p := podOf(t, a, "known")
	if p.Name != "known-node" || p.Namespace != "shop" || p.UID != "0b0f1cd8-7d49-4a3f-9f3e-0a1d6c2b7e55" ||
		p.Status.ObservedGeneration != 3 {
		t.Errorf("it is %s/%s %s, generation %d", p.Namespace, p.Name, p.UID, p.Status.ObservedGeneration)
	}
	for _, s := range sandboxesOf(t, e, p) {
		for key, want := range map[string]string{
			"app": "web", "example.com/tier": "front", "io.kubernetes.pod.name": "known-node",
			"io.kubernetes.pod.namespace": "shop",
		} {
			if s.Labels[key] != want {
				t.Errorf("its sandbox has the label %s=%q, want %q", key, s.Labels[key], want)
			}
		}
		for key, want := range map[string]string{ // what runtimeAnnotations chooses
			"note": "", "example.com/owner": "", "dev.gvisor.flag": "on", "pools.nri.io/pool": "big one",
		} {
			if s.Annotations[key] != want {
				t.Errorf("its sandbox has the annotation %s=%q, want %q", key, s.Annotations[key], want)
			}
		}
	}
	environment := "\n" + inside(t, a, "shop/known", "main", "/testapp", "env")
	for _, want := range []string{"LABEL=front", "NOTE=two words", "WHO=" + string(p.UID), "NODE=" + env.NodeName} {
		if !strings.Contains(environment, "\n"+want+"\n") {
			t.Errorf("its environment has no %s:%s", want, environment)
		}
	}
	removed(t, e, a, "known")
}

// affinityMatches checks that a pod runs if its node selector and one of its required terms match
// the node, and does not run otherwise.
func affinityMatches(t *testing.T, e *env.Env, a *env.Agent) {
	const required = "affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: " +
		"[%s]}}}"
	const other = "{matchExpressions: [{key: kubernetes.io/arch, operator: In, values: [none]}]}"
	const here = "{matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [node]}], " +
		"matchFields: [{key: metadata.name, operator: In, values: [node]}]}"
	put(t, a, "here", "nodeSelector: {kubernetes.io/os: linux}\n"+fmt.Sprintf(required, other+", "+here)+sleeper)
	put(t, a, "there", fmt.Sprintf(required, other)+sleeper)
	a.WaitReady(t, "here")
	if p := waitPod(t, a, "there", "refused", phase(corev1.PodFailed)); p.Status.Reason != "NodeAffinity" {
		t.Errorf("it was refused for %s: %s", p.Status.Reason, p.Status.Message)
	}
	removed(t, e, a, "here")
	removed(t, e, a, "there")
}

// podsAreLimited checks that resources of the whole pod limit the pod's cgroup.
func podsAreLimited(t *testing.T, e *env.Env, a *env.Agent) {
	put(t, a, "whole", "resources: {limits: {cpu: 300m, memory: 96Mi}, requests: {cpu: 200m, memory: 48Mi}}"+sleeper)
	a.WaitReady(t, "whole")
	cgroupHas(t, e, podOf(t, a, "whole"), "", map[string]string{
		"cpu/cpu.shares": "204", "cpu/cpu.cfs_quota_us": "30000", "memory/memory.limit_in_bytes": "100663296",
	})
	removed(t, e, a, "whole")
}

// inputsAreOpen checks that a container's input is nothing, a pipe, or a terminal. With stdinOnce
// it ends with the first client that wrote to it.
func inputsAreOpen(t *testing.T, e *env.Env, a *env.Agent) {
	const container = "  - {name: %s, image: berth.local/busybox:v1, command: %s%s}\n"
	put(t, a, "inputs", "restartPolicy: Never\nterminationGracePeriodSeconds: 1\ncontainers:\n"+
		fmt.Sprintf(container, "none", stay, "")+fmt.Sprintf(container, "pipe", stay, ", stdin: true")+
		fmt.Sprintf(container, "terminal", stay, ", stdin: true, tty: true")+
		fmt.Sprintf(container, "once", "[cat]", ", stdin: true, stdinOnce: true"))
	a.WaitReady(t, "inputs")
	for name, want := range map[string]string{"none": "/dev/null", "pipe": "pipe:", "terminal": "/dev/pts/"} {
		if got := inside(t, a, "inputs", name, "readlink", "/proc/1/fd/0"); !strings.HasPrefix(got, want) {
			t.Errorf("the input of %s is %q, want %s", name, got, want)
		}
	}
	binary, err := env.Binary(t.Context(), e.Checkout)
	if err != nil {
		t.Fatal(err)
	}
	attach := exec.CommandContext(t.Context(), binary, "attach", "--socket", a.Socket, "-i", "inputs", "-c", "once")
	attach.Stdin = strings.NewReader("last words\n")
	if out, err := attach.CombinedOutput(); err != nil {
		t.Errorf("attach: %v, %s", err, out)
	}
	waitPod(t, a, "inputs", "ended in part", func(p *corev1.Pod) error {
		if end := statusOf(p, "once").State.Terminated; end == nil || end.ExitCode != 0 {
			return fmt.Errorf("the container whose input has ended is %+v", statusOf(p, "once").State)
		}
		return nil
	})
	if out, _, _ := a.CLI("logs", "inputs", "-c", "once"); out != "last words\n" {
		t.Errorf("it read %q", out)
	}
	removed(t, e, a, "inputs")
}
