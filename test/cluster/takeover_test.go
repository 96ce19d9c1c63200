//go:build cluster

package cluster

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/test/csidriver"
	"github.com/berthd/berth/test/env"
)

const (
	staticPods, apiPods = 10, 26
	// quiet is how long nothing may happen after a takeover. It is longer than the loops of both
	// agents that look for pods, containers and volumes to correct.
	quiet = 20 * time.Second
)

// residents are pods of every kind, with everything that a takeover could miss. Each waits, except
// one that has ended and one that restarts once.
var residents = map[string]string{
	"probed": `
      startupProbe: {exec: {command: ["true"]}, periodSeconds: 1, timeoutSeconds: 30}
      readinessProbe: {exec: {command: ["true"]}, periodSeconds: 2, timeoutSeconds: 30}
      livenessProbe: {exec: {command: ["true"]}, periodSeconds: 2, timeoutSeconds: 30}`,
	"volumes": `
      volumeMounts:
        - {name: settings, mountPath: /settings}
        - {name: settings, mountPath: /sub/colour, subPath: colour}
        - {name: login, mountPath: /login}
        - {name: disk, mountPath: /disk}
        - {name: ram, mountPath: /ram}
        - {name: host, mountPath: /host}
        - {name: about, mountPath: /about}
      env: [{name: COLOUR, valueFrom: {configMapKeyRef: {name: settings, key: colour}}}]
  volumes:
    - {name: settings, configMap: {name: settings}}
    - {name: login, secret: {secretName: login}}
    - {name: disk, emptyDir: {}}
    - {name: ram, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
    - {name: host, hostPath: {path: /usr}}
    - {name: about, downwardAPI: {items: [{path: labels, fieldRef: {fieldPath: metadata.labels}}]}}`,
	"init": `
  initContainers:
    - {name: first, image: "berth.local/busybox:v1", command: ["true"]}
    - {name: side, image: "berth.local/busybox:v1", command: [sleep, "3600"], restartPolicy: Always}
    - {name: last, image: "berth.local/busybox:v1", command: ["true"]}`,
	"guaranteed": `
      resources: {requests: {cpu: 10m, memory: 16Mi}, limits: {cpu: 10m, memory: 16Mi}}`,
	"burstable": `
      resources: {requests: {cpu: 10m}, limits: {memory: 16Mi}}`,
	"hooked": `
      lifecycle: {postStart: {exec: {command: [sh, -c, "echo again >>/tmp/hooks"]}}, preStop: {exec: {command: ["true"]}}}`,
	"hostnet": `
  hostNetwork: true`,
	"secured": `
      securityContext: {runAsUser: 1000, readOnlyRootFilesystem: true, allowPrivilegeEscalation: false,
        capabilities: {drop: [ALL]}, seccompProfile: {type: RuntimeDefault}}
  securityContext: {fsGroup: 2000, supplementalGroups: [3000]}`,
	"shared": `
    - {name: second, image: "berth.local/busybox:v1", command: [sleep, "3600"]}
  shareProcessNamespace: true
  hostname: somebody
  dnsConfig: {options: [{name: ndots, value: "2"}]}`,
	"plain": "",
}

// guests are API pods that a takeover could disturb by more than its files: with volumes of claims
// and of a CSI driver, with a port of the node, with users of their own, and with other resources
// than they began with. There is one pod of each.
var guests = map[string]string{
	"claimed": `
      volumeMounts: [{name: v, mountPath: /v}]
  volumes: [{name: v, persistentVolumeClaim: {claimName: claimed}}]`,
	"staged": `
      volumeMounts: [{name: v, mountPath: /v}]
  volumes: [{name: v, persistentVolumeClaim: {claimName: staged}}]`,
	"inline": `
      volumeMounts: [{name: v, mountPath: /v}]
  volumes: [{name: v, csi: {driver: taken.berth.dev}}]`,
	"apart": `
  hostUsers: false
  runtimeClassName: users`,
	"resized": `
      resources: {requests: {cpu: 10m}, limits: {cpu: 10m}}`,
	"ported": `
      ports: [{containerPort: 80, hostPort: HOSTPORT}]
    - {name: web, image: "berth.local/busybox:v1", command: [httpd, -f, -p, "80", -h, /etc]}`,
}

// everybody returns the residents and the guests, these on a port of the node.
func everybody(port int) map[string]string {
	out := maps.Clone(residents)
	for name, more := range guests {
		out[name] = strings.ReplaceAll(more, "HOSTPORT", strconv.Itoa(port))
	}
	return out
}

// takeoverVolumes are the volumes of the guests, one in a directory of the node, which is to be
// filled in.
const takeoverVolumes = `
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: taken.berth.dev}
spec: {attachRequired: false, podInfoOnMount: true, volumeLifecycleModes: [Persistent, Ephemeral]}
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: users}
handler: ` + env.NewerHandler + `
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: staged}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: ""
  claimRef: {namespace: default, name: staged}
  persistentVolumeReclaimPolicy: Retain
  csi: {driver: taken.berth.dev, volumeHandle: disk}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: staged}
spec: {accessModes: [ReadWriteOnce], storageClassName: "", volumeName: staged, resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: claimed}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: ""
  claimRef: {namespace: default, name: claimed}
  persistentVolumeReclaimPolicy: Retain
  local: {path: %s}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In,
    values: [` + env.NodeName + `]}]}]}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: claimed}
spec: {accessModes: [ReadWriteOnce], storageClassName: "", volumeName: claimed, resources: {requests: {storage: 1Gi}}}
---
`

const takeoverObjects = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {colour: red}
---
apiVersion: v1
kind: Secret
metadata: {name: login}
stringData: {pass: word}
---
{apiVersion: v1, kind: Pod, metadata: {name: ended}, spec: {restartPolicy: Never,
  containers: [{name: main, image: "berth.local/busybox:v1", command: [sh, -c, "echo done >/dev/termination-log"]}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: restarted}, spec: {terminationGracePeriodSeconds: 1,
  volumes: [{name: d, emptyDir: {}}], containers: [
  {name: main, image: "berth.local/busybox:v1", command: [sh, -c,
    "[ -e /d/once ] && exec sleep 3600; touch /d/once; exit 3"], volumeMounts: [{name: d, mountPath: /d}]}]}}
---
`

// atRest returns an error until the pods of [takeoverObjects] that do not wait have done what they
// are there for. Until then, they can be Ready and yet change.
func atRest(pods map[string]*v1.Pod) error {
	if p := pods["ended"]; p == nil || p.Status.Phase != v1.PodSucceeded {
		return errors.New("the one that ends has not")
	}
	if p := pods["restarted"]; p == nil || len(p.Status.ContainerStatuses) == 0 ||
		p.Status.ContainerStatuses[0].RestartCount != 1 {
		return errors.New("the one that restarts has not")
	}
	return nil
}

// resident is a pod with more fields in its container and its spec.
func resident(name, more string, token bool) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {app: resident}}
spec:
  automountServiceAccountToken: %t
  terminationGracePeriodSeconds: 1
  containers:
    - name: main
      image: berth.local/busybox:v1
      command: [sleep, "3600"]%s
---
`, name, token, more)
}

// static is a resident as a static pod, which may use no objects.
func static(name, more string) string {
	var kept []string
	for line := range strings.SplitSeq(more, "\n") {
		if !strings.Contains(line, "settings") && !strings.Contains(line, "login") {
			kept = append(kept, line)
		}
	}
	return strings.TrimSuffix(resident(name, strings.Join(kept, "\n"), false), "---\n")
}

// takeover is a node whose agent changes.
type takeover struct {
	c       *Cluster
	berth   *env.Agent
	kubelet *env.Program
	w       *Witness
	// pods are the kinds of pods, and port is the port of the node that one of them has.
	pods map[string]string
	port int
	// driver is the directory of the CSI driver.
	driver string
}

// replacedKinds are the kinds of pods that each new agent ends and makes anew.
var replacedKinds = []string{"volumes", "init", "claimed", "staged", "inline", "apart", "ported"}

// TestTakeover runs 36 pods under a kubelet. berth adopts them from the kubelet's files, and the
// kubelet adopts them again. No container restarts. Under berth no pod stops being Ready, and a CSI
// driver is asked for nothing.
func TestTakeover(t *testing.T) {
	c := Start(t, Options{})
	berth, err := c.NewAgent(t.Context(),
		c.NodeOptions(t, env.NodeName, env.AgentOptions{Kubelet: KubeletOptions(c.Env)}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.checkRefusals(t) })
	port, err := env.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	o := &takeover{c: c, berth: berth, kubelet: c.NewKubelet(t, berth), pods: everybody(port), port: port}
	names := slices.Sorted(maps.Keys(residents))
	for i := range staticPods {
		name := names[i%len(names)]
		berth.WriteManifest(t, fmt.Sprintf("s-%s.yaml", name), static("s-"+name, residents[name]))
	}
	if err := o.kubelet.Start(); err != nil {
		t.Fatal(err)
	}
	c.WaitNodeReady(t)
	account(t, c)
	driver, _ := startCSIDriver(t, c, berth, "taken.berth.dev", "-can", "STAGE_UNSTAGE_VOLUME")
	all := fmt.Sprintf(takeoverVolumes, t.TempDir()) + takeoverObjects
	for name := range guests {
		all += resident("a-"+name+"-0", o.pods[name], true)
	}
	for i := range apiPods - 2 - len(guests) {
		name := names[i%len(names)]
		all += resident(fmt.Sprintf("a-%s-%d", name, i/len(names)), residents[name], i < len(names))
	}
	c.Apply(t, all)
	o.w = c.Witness(t)
	o.w.shows(t, "everybody", func(pods map[string]*v1.Pod) error {
		return errors.Join(atRest(pods), allReady(pods, staticPods+apiPods))
	})
	o.c.Kubectl(t, "patch", "pod", "a-resized-0", "--subresource", "resize", "--patch",
		`{"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "20m"}, "limits": {"cpu": "20m"}}}]}}`)
	o.isResized(t)

	o.driver = driver
	o.change(t, "from the kubelet to berth", o.kubelet.Stop, o.berth.Start, "+berth")
	o.use(t, "a", "berth")
	o.change(t, "from berth to the kubelet", o.berth.Stop, o.kubelet.Start, "v1.36.")
	o.use(t, "berth", "kubelet")
	o.change(t, "to berth again", o.kubelet.Stop, o.berth.Start, "+berth")
}

// awaitReady waits until there are n pods, and all are Ready in the API.
func (o *takeover) awaitReady(t *testing.T, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), eventually)
	defer cancel()
	var late []v1.Pod
	err := o.w.Wait(ctx, func(pods map[string]*v1.Pod) bool {
		late = nil
		for _, p := range pods {
			if !env.Ready(p) {
				late = append(late, *p)
			}
		}
		return len(late) == 0 && len(pods) == n
	})
	if err != nil {
		t.Fatalf("wait for %d pods to be ready: %v\n%s", n, err, env.Describe(late))
	}
}

// running returns the ids of all running containers and sandboxes.
func (o *takeover) running(t *testing.T) map[string]string {
	t.Helper()
	out := map[string]string{}
	sandboxes, err := o.c.Runtime().ListPodSandbox(t.Context(), &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range sandboxes.Items {
		if s.State == runtimeapi.PodSandboxState_SANDBOX_READY {
			out[s.Id] = "sandbox of " + s.Metadata.Name
		}
	}
	containers, err := o.c.Runtime().ListContainers(t.Context(), &runtimeapi.ListContainersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range containers.Containers {
		if x.State == runtimeapi.ContainerState_CONTAINER_RUNNING {
			out[x.Id] = "container " + x.Metadata.Name + " of " + x.Labels["io.kubernetes.pod.name"]
		}
	}
	return out
}

// change replaces one agent by another and checks that no pod is affected. version is the version
// of the agent that the node then reports.
func (o *takeover) change(t *testing.T, what string, stop, start func() error, version string) {
	t.Helper()
	before, identities, calls := o.running(t), o.w.Identities(), o.driverCalls(t)
	o.w.Strict(true)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if err := start(); err != nil {
		t.Fatal(err)
	}
	o.c.Eventually(t, func(out string) error {
		if !strings.Contains(out, version) || strings.Contains(out, "+berth") != strings.Contains(version, "+berth") {
			return fmt.Errorf("the node's agent is %q", out)
		}
		return nil
	}, "get", "node", env.NodeName, "-o", "jsonpath={.status.nodeInfo.kubeletVersion}")
	o.c.WaitNodeReady(t)
	t.Logf("%s: the node is back after %s", what, time.Since(begun).Round(10*time.Millisecond))
	time.Sleep(quiet)
	o.awaitReady(t, len(identities))
	o.w.Strict(false)
	var but []string
	if !o.berth.Running() {
		// a kubelet forgets the probe results of static pods
		but = []string{"default/s-probed-node is not ready any more"}
	}
	o.w.Check(t, what, but...)
	after := o.running(t)
	for id, of := range before {
		if after[id] == "" {
			t.Errorf("%s: %s is gone", what, of)
		}
	}
	for id, of := range after {
		if before[id] == "" {
			t.Errorf("%s: %s is new", what, of)
		}
	}
	for name, now := range o.w.Identities() {
		if identities[name] != now {
			t.Errorf("%s: pod %s was %s and is %s", what, name, identities[name], now)
		}
	}
	if out := o.c.Kubectl(t, "exec", "a-hooked-0", "-c", "main", "--", "cat", "/tmp/hooks"); strings.Count(out,
		"again") != 1 {
		t.Errorf("%s: the hook has run %d times", what, strings.Count(out, "again"))
	}
	// a kubelet stages and publishes again what it takes over
	if now := o.driverCalls(t); o.berth.Running() && !slices.Equal(now, calls) {
		t.Errorf("%s: the CSI driver was asked for %q", what, now[len(calls):])
	}
	o.isResized(t)
	o.c.Eventually(t, Contains("root:"), "exec", "s-hostnet-"+env.NodeName, "-c", "main", "--", "wget", "-qO-",
		fmt.Sprintf("http://%s:%d/passwd", env.HostIP, o.port))
}

// driverCalls returns the calls to the CSI driver that change volumes.
func (o *takeover) driverCalls(t *testing.T) []string {
	t.Helper()
	calls, err := csidriver.Calls(o.driver)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, call := range calls {
		if strings.Contains(call.Method, "Stage") || strings.Contains(call.Method, "Publish") ||
			strings.Contains(call.Method, "Unstage") || strings.Contains(call.Method, "Unpublish") {
			out = append(out, call.Method)
		}
	}
	return out
}

// isResized waits until the resized pod has its CPU, by its status and by its cgroup.
func (o *takeover) isResized(t *testing.T) {
	t.Helper()
	o.c.Eventually(t, Contains("20m"), "get", "pod", "a-resized-0", "-o",
		"jsonpath={.status.containerStatuses[0].resources.limits.cpu}")
	o.c.Eventually(t, Contains("2000"), "exec", "a-resized-0", "-c", "main", "--", "cat",
		"/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
}

// use makes the new agent end pods that the old agent made, completely, and make as many others.
// Their names begin with from and to.
func (o *takeover) use(t *testing.T, from, to string) {
	t.Helper()
	const manifest, mirror = "s-volumes", "s-volumes-" + env.NodeName
	var ended, ids []string
	for _, kind := range replacedKinds {
		ended = append(ended, from+"-"+kind+"-0")
	}
	for _, name := range append(ended, mirror) {
		ids = append(ids, string(o.w.Pod(name).UID), "_"+name+"_")
	}
	ids = append(ids, o.w.Pod(mirror).Annotations[v1.MirrorPodAnnotationKey])
	o.c.Kubectl(t, append([]string{"delete", "pod", "--timeout=180s"}, ended...)...)
	o.berth.RemoveManifest(t, manifest+".yaml")
	o.c.Kubectl(t, "wait", "--for=delete", "pod", mirror, "--timeout=180s")
	if o.berth.Running() { // a kubelet needs minutes for this
		env.Eventually(t, "nothing to be left of the pods that were ended", func() error {
			if leaks := o.c.LeaksOf(ids...); len(leaks) > 0 {
				return errors.New(strings.Join(leaks, "\n"))
			}
			return nil
		})
	}
	for _, kind := range replacedKinds {
		o.c.Apply(t, resident(to+"-"+kind+"-0", o.pods[kind], true))
	}
	o.berth.WriteManifest(t, manifest+".yaml", static(manifest, residents["volumes"]))
	o.awaitReady(t, staticPods+apiPods)
}
