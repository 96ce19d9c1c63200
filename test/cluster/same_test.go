//go:build cluster

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/test/env"
)

// likenesses are pods in every state in which a pod may stay for long.
const likenesses = `
apiVersion: v1
kind: Pod
metadata: {name: full, labels: {app: full}, annotations: {example.com/a: b}}
spec:
  automountServiceAccountToken: false
  terminationGracePeriodSeconds: 1
  securityContext: {runAsUser: 1000, runAsGroup: 1001, fsGroup: 2000, supplementalGroups: [3000]}
  initContainers:
    - {name: first, image: "berth.local/busybox:v1", command: ["true"]}
    - name: side
      image: berth.local/busybox:v1
      command: [sleep, "3600"]
      restartPolicy: Always
      startupProbe: {exec: {command: ["true"]}, periodSeconds: 1}
      resources: {requests: {cpu: 10m}}
    - {name: last, image: "berth.local/busybox:v1", command: [sh, -c, "echo last >/dev/termination-log"]}
  containers:
    - name: main
      image: berth.local/busybox:v1
      command: [sleep, "3600"]
      startupProbe: {exec: {command: ["true"]}, periodSeconds: 1}
      readinessProbe: {exec: {command: ["true"]}, periodSeconds: 1}
      livenessProbe: {exec: {command: ["true"]}, periodSeconds: 1}
      resources: {requests: {cpu: 20m, memory: 16Mi}, limits: {memory: 32Mi, cpu: 500m}}
      volumeMounts:
        - {name: disk, mountPath: /disk}
        - {name: usr, mountPath: /host, readOnly: true, recursiveReadOnly: IfPossible}
    - {name: other, image: "berth.local/busybox:v1", command: [sleep, "3600"]}
  volumes:
    - {name: disk, emptyDir: {}}
    - {name: usr, hostPath: {path: /usr}}
---
{apiVersion: v1, kind: Pod, metadata: {name: guaranteed}, spec: {automountServiceAccountToken: false,
  terminationGracePeriodSeconds: 1, hostNetwork: true, containers: [
  {name: main, image: "berth.local/busybox:v1", command: [sleep, "3600"],
    resources: {limits: {cpu: 10m, memory: 16Mi}}}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: whole}, spec: {automountServiceAccountToken: false,
  terminationGracePeriodSeconds: 1, resources: {requests: {cpu: 20m}, limits: {cpu: 200m, memory: 64Mi}},
  containers: [{name: main, image: "berth.local/busybox:v1", command: [sleep, "3600"]},
    {name: sized, image: "berth.local/busybox:v1", command: [sleep, "3600"], resources: {requests: {cpu: 5m}}}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: gated}, spec: {automountServiceAccountToken: false,
  terminationGracePeriodSeconds: 1, readinessGates: [{conditionType: example.com/gate}],
  containers: [{name: main, image: "berth.local/busybox:v1", command: [sleep, "3600"]}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: unready}, spec: {automountServiceAccountToken: false,
  terminationGracePeriodSeconds: 1,
  containers: [{name: main, image: "berth.local/busybox:v1", command: [sleep, "3600"],
    readinessProbe: {exec: {command: ["false"]}, periodSeconds: 1}}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: ended}, spec: {automountServiceAccountToken: false, restartPolicy: Never,
  containers: [{name: main, image: "berth.local/busybox:v1", command: [sh, -c, "echo done >/dev/termination-log"]}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: failed}, spec: {automountServiceAccountToken: false, restartPolicy: Never,
  initContainers: [{name: first, image: "berth.local/busybox:v1", command: ["true"]}],
  containers: [{name: main, image: "berth.local/busybox:v1", command: [sh, -c, "echo words; exit 3"],
    terminationMessagePolicy: FallbackToLogsOnError}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: unprepared}, spec: {automountServiceAccountToken: false,
  restartPolicy: Never,
  initContainers: [{name: first, image: "berth.local/busybox:v1", command: [sh, -c, "exit 4"]},
    {name: never, image: "berth.local/busybox:v1", command: ["true"]}],
  containers: [{name: main, image: "berth.local/busybox:v1", command: ["true"]}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: overfull}, spec: {automountServiceAccountToken: false,
  volumes: [{name: disk, emptyDir: {sizeLimit: 1Mi}}],
  containers: [{name: main, image: "berth.local/busybox:v1",
    command: [sh, -c, "dd if=/dev/zero of=/disk/f bs=1M count=3; exec sleep 3600"],
    volumeMounts: [{name: disk, mountPath: /disk}]}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: overlimit}, spec: {automountServiceAccountToken: false,
  containers: [{name: main, image: "berth.local/busybox:v1",
    command: [sh, -c, "dd if=/dev/zero of=/f bs=1M count=3; exec sleep 3600"],
    resources: {limits: {ephemeral-storage: 1Mi}}}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: imageless}, spec: {automountServiceAccountToken: false,
  terminationGracePeriodSeconds: 1,
  containers: [{name: main, image: "berth.local/nothing:v1", imagePullPolicy: Never}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: configless}, spec: {automountServiceAccountToken: false,
  terminationGracePeriodSeconds: 1,
  containers: [{name: main, image: "berth.local/busybox:v1", command: [sleep, "3600"],
    env: [{name: A, valueFrom: {configMapKeyRef: {name: nothing, key: a}}}]}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: mountless}, spec: {automountServiceAccountToken: false,
  terminationGracePeriodSeconds: 1, volumes: [{name: c, configMap: {name: nothing}}],
  initContainers: [{name: first, image: "berth.local/busybox:v1", command: ["true"]}],
  containers: [{name: main, image: "berth.local/busybox:v1", command: [sleep, "3600"],
    volumeMounts: [{name: c, mountPath: /c}]}]}}
`

// staticLikeness is a pod from a manifest of the node. Each agent gets another version, so that it
// finds nothing of the other agent.
const staticLikeness = `
apiVersion: v1
kind: Pod
metadata: {name: static, labels: {app: static}, annotations: {example.com/a: b, example.com/round: ROUND}}
spec:
  terminationGracePeriodSeconds: 1
  initContainers:
    - {name: first, image: "berth.local/busybox:v1", command: ["true"]}
  containers:
    - {name: main, image: "berth.local/busybox:v1", command: [sleep, "3600"],
        resources: {requests: {cpu: 10m}, limits: {memory: 32Mi}}}
`

// steady is how long nothing may change before the objects are read.
const steady = 5 * time.Second

// waits has the state for which the test waits, for each pod: a container's reason to wait, or the
// phase, or "ready".
var waits = map[string]string{
	"full": "ready", "guaranteed": "ready", "whole": "ready", "static-" + env.NodeName: "ready", "gated": "Running",
	"unready": "Running", "ended": "Succeeded", "failed": "Failed",
	"unprepared": "Failed", "overfull": "Failed", "overlimit": "Failed", "imageless": "ErrImageNeverPull",
	"configless": "CreateContainerConfigError",
	"mountless":  "PodInitializing",
}

// TestObjectsAreThoseOfAKubelet compares the Node and the pods that a kubelet and berth write to
// the API server for the same manifests. They may only differ in what berth does in another way on
// purpose: see [excepted].
func TestObjectsAreThoseOfAKubelet(t *testing.T) {
	c := Start(t, Options{})
	berth, err := c.NewAgent(t.Context(),
		c.NodeOptions(t, env.NodeName, env.AgentOptions{Kubelet: KubeletOptions(c.Env)}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.checkRefusals(t) })
	kubelet := c.NewKubelet(t, berth)
	account(t, c)

	written := func(round string, start func() error) {
		t.Helper()
		if err := start(); err != nil {
			t.Fatal(err)
		}
		c.WaitNodeReady(t)
		berth.WriteManifest(t, "static.yaml", strings.Replace(staticLikeness, "ROUND", round, 1))
		c.Apply(t, likenesses)
	}
	written("first", kubelet.Start)
	want, wantEvents := c.settled(t), c.nodeEvents(t)
	c.Kubectl(t, "delete", "pod", "--all", "--timeout=90s")
	berth.RemoveManifest(t, "static.yaml")
	c.Kubectl(t, "wait", "--for=delete", "pod", "static-"+env.NodeName, "--timeout=90s")
	if err := kubelet.Stop(); err != nil {
		t.Fatal(err)
	}
	c.Kubectl(t, "delete", "node", env.NodeName)
	c.Kubectl(t, "delete", "events", "--field-selector", "involvedObject.kind=Node")

	written("second", berth.Start)
	var differ []string
	env.Eventually(t, "berth's objects to be a kubelet's", func() error {
		have := c.likeness(t)
		if differ = differences(want, have); len(differ) > 0 {
			return fmt.Errorf("they differ (- kubelet, + berth):\n%s", strings.Join(differ, "\n"))
		}
		return nil
	})
	env.Eventually(t, "berth's events about the node to be a kubelet's", func() error {
		if reported := c.nodeEvents(t); !slices.Equal(reported, wantEvents) {
			return fmt.Errorf("it has told\n%s\nwant\n%s", strings.Join(reported, "\n"), strings.Join(wantEvents, "\n"))
		}
		return nil
	})
}

// nodeEvents returns the agent's events about the node, each once, sorted. It returns only events
// that every agent must write, not those that depend on what else happens on the machine.
func (c *Cluster) nodeEvents(t *testing.T) []string {
	t.Helper()
	lasting := regexp.MustCompile(
		`^(Starting|NodeAllocatableEnforced|CgroupV1|NodeReady|NodeNotReady|NodeHas.*|Node(Not)?Schedulable|MissingClusterDNS)$`,
	)
	var list v1.EventList
	if err := json.Unmarshal([]byte(c.Kubectl(t, "get", "events", "--field-selector", "involvedObject.kind=Node", "-o",
		"json")), &list); err != nil {
		t.Fatal(err)
	}
	reported := map[string]bool{}
	for _, e := range list.Items {
		if e.Source.Component == "kubelet" && lasting.MatchString(e.Reason) {
			reported[fmt.Sprintf("%s %s %s: %s", e.InvolvedObject.Name, e.Type, e.Reason, e.Message)] = true
		}
	}
	return slices.Sorted(maps.Keys(reported))
}

// settled returns the likeness of all objects when every pod is in the state that the test waits
// for and nothing changes any more.
func (c *Cluster) settled(t *testing.T) map[string]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var last map[string]string
	for {
		missing := c.unsettled(t)
		now := c.likeness(t)
		if len(missing) == 0 && maps.Equal(now, last) {
			return now
		}
		select {
		case <-ctx.Done():
			if len(missing) > 0 {
				t.Fatalf("the pods do not come into their states: %v\n%s", missing, c.Kubectl(t, "get", "pods"))
			}
			t.Fatalf("the objects go on changing:\n%s", strings.Join(differences(last, now), "\n"))
		case <-time.After(steady):
		}
		last = now
	}
}

// unsettled returns the names of the pods that are not in the state that the test waits for.
func (c *Cluster) unsettled(t *testing.T) []string {
	t.Helper()
	var list v1.PodList
	if err := json.Unmarshal([]byte(c.Kubectl(t, "get", "pods", "-o", "json")), &list); err != nil {
		t.Fatal(err)
	}
	there := map[string]bool{}
	for i := range list.Items {
		p := &list.Items[i]
		states := []string{string(p.Status.Phase)}
		if env.Ready(p) {
			states = append(states, "ready")
		}
		for _, s := range p.Status.ContainerStatuses {
			if s.State.Waiting != nil {
				states = append(states, s.State.Waiting.Reason)
			}
		}
		there[p.Name] = slices.Contains(states, waits[p.Name])
	}
	var missing []string
	for name := range waits {
		if !there[name] {
			missing = append(missing, name)
		}
	}
	slices.Sort(missing)
	return missing
}

// likeness returns what the API server has of the node and its pods, each value by its path,
// without what differs each time.
func (c *Cluster) likeness(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	for _, kind := range []string{"nodes", "pods"} {
		var list struct {
			Items []map[string]any `json:"items"`
		}
		if err := json.Unmarshal([]byte(c.Kubectl(t, "get", kind, "-o", "json")), &list); err != nil {
			t.Fatal(err)
		}
		for _, o := range list.Items {
			meta, _ := o["metadata"].(map[string]any)
			flatten(out, fmt.Sprint(kind, "/", meta["name"]), o, func(s string) string {
				return strings.ReplaceAll(volatile(s), fmt.Sprint(meta["uid"]), "UID")
			})
		}
	}
	maps.DeleteFunc(out, func(path, _ string) bool {
		return slices.ContainsFunc(excepted, func(e *regexp.Regexp) bool { return e.MatchString(path) })
	})
	return out
}

// flatten adds the values of a part of an object by their paths. The path of a value in a list has
// the value's name or type, if there is one.
func flatten(out map[string]string, path string, value any, rewrite func(string) string) {
	switch v := value.(type) {
	case map[string]any:
		for name, field := range v {
			flatten(out, path+"."+name, field, rewrite)
		}
	case []any:
		for i, item := range v {
			key := fmt.Sprint(i)
			if fields, ok := item.(map[string]any); ok {
				for _, name := range []string{"name", "type", "mountPath"} {
					if text, ok := fields[name].(string); ok {
						key = text
						break
					}
				}
			}
			flatten(out, fmt.Sprintf("%s[%s]", path, key), item, rewrite)
		}
	default:
		out[path] = rewrite(fmt.Sprint(v))
	}
}

var (
	// excepted are the paths of three kinds of values: those that the agent does not write, those
	// that differ each time, and those that differ in berth on purpose.
	excepted = []*regexp.Regexp{
		regexp.MustCompile(`\.metadata\.(uid|resourceVersion|creationTimestamp|managedFields)`),
		regexp.MustCompile(`\.metadata\.annotations\.kubernetes\.io/config\.(hash|mirror|seen)$`),
		regexp.MustCompile(`\.metadata\.annotations\.kubectl\.kubernetes\.io/`),
		// a controller writes it
		regexp.MustCompile(`\.metadata\.annotations\.node\.alpha\.kubernetes\.io/ttl$`),
		// controllers write them
		regexp.MustCompile(`^nodes/.*\.spec\.(podCIDR|podCIDRs|taints)`),
		regexp.MustCompile(`\.metadata\.ownerReferences\[.*\]\.uid$`),
		regexp.MustCompile(`\.metadata\.annotations\.example\.com/round$`),
		// berth does not forward ports by WebSocket
		regexp.MustCompile(`^nodes/.*\.status\.declaredFeatures`),
		// a kubelet of 1.36 does not report it
		regexp.MustCompile(`\.stopSignal$`),
		// what the pod waits for: a kubelet reports it only in events
		regexp.MustCompile(`^pods/mountless\..*\[PodReadyToStartContainers\]\.(reason|message)$`),
		// a kubelet often loses the containers of a pod that it evicts
		regexp.MustCompile(`^pods/over(full|limit)\.status\.(containerStatuses|resources)`),
		// a kubelet shows cgroup v1's value for "no limit" as a limit
		regexp.MustCompile(`^pods/[a-z]+\.status\.resources\.limits\.memory$`),
	}
	moments   = regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)
	instances = regexp.MustCompile(`containerd://[0-9a-f]{64}`)
	addresses = regexp.MustCompile(`\b10\.222\.\d+\.\d+\b`)
)

// volatile removes from a text what differs each time.
func volatile(s string) string {
	s = moments.ReplaceAllString(s, "TIME")
	s = instances.ReplaceAllString(s, "containerd://ID")
	s = addresses.ReplaceAllString(s, "ADDRESS")
	return strings.ReplaceAll(s, "+berth", "")
}

// differences lists what two likenesses do not have in common, sorted.
func differences(want, have map[string]string) []string {
	var out []string
	for path, value := range want {
		if other, ok := have[path]; !ok || other != value {
			out = append(out, path+"\n  - "+value+"\n  + "+have[path])
		}
	}
	for path, value := range have {
		if _, ok := want[path]; !ok {
			out = append(out, path+"\n  +! "+value)
		}
	}
	slices.Sort(out)
	return out
}
