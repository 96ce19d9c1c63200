//go:build cluster

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/test/env"
)

// web is a Deployment of three pods that answer with their names, behind a ClusterIP and a
// NodePort.
const web = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  strategy: {rollingUpdate: {maxUnavailable: 0, maxSurge: 1}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 30
      containers:
        - name: main
          # Until kube-proxy has heard of its end.
          lifecycle: {preStop: {sleep: {seconds: 10}}}
          image: berth.local/busybox:v1
          command: [sh, -c, 'trap exit TERM; mkdir /www; echo "$NAME $VERSION" >/www/index.html; httpd -f -p 8080 -h /www & wait']
          env:
            - {name: VERSION, value: one}
            - {name: NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
          ports: [{containerPort: 8080}]
          readinessProbe: {httpGet: {port: 8080}, periodSeconds: 1, timeoutSeconds: 30}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, clusterIP: 10.96.7.7, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: web-outside}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80, targetPort: 8080, nodePort: 30777}]}
`

// client is a pod that sends requests.
const client = `apiVersion: v1
kind: Pod
metadata: {name: client}
spec:
  terminationGracePeriodSeconds: 0
  containers: [{name: main, image: berth.local/web:v1, args: [sleep]}]
`

// TestWorkloads checks what controllers make on the node, and that kube-proxy's rules lead there.
func TestWorkloads(t *testing.T) {
	c := Start(t, Options{})
	a := c.StartNode(t, env.AgentOptions{})
	c.WaitNodeReady(t)
	c.StartProxy(t)
	c.Apply(t, byClock+web+"---\n"+client)
	c.Kubectl(t, "rollout", "status", "deployment/web", "--timeout=180s")
	c.Kubectl(t, "wait", "--for=condition=Ready", "pod/client", "--timeout=180s")

	for _, sub := range []struct {
		name string
		run  func(t *testing.T, c *Cluster)
	}{
		{"Service", services},
		{"RollingUpdate", rollingUpdate},
		{"Scale", scale},
		{"Job", job},
		{"CronJob", cronJob},
		{"DaemonSet", daemonSet},
		{"StatefulSet", statefulSet},
		{"CronJobByClock", cronJobByClock},
		{"CordonAndDrain", drain},
	} {
		t.Run(sub.name, func(t *testing.T) { sub.run(t, c) })
	}
	if !a.Running() {
		t.Error("the agent has ended")
	}
}

// services reaches all three pods in each way.
func services(t *testing.T, c *Cluster) {
	for way, ask := range map[string]func() (string, error){
		"ClusterIP from the node": func() (string, error) { return c.get(t.Context(), "http://10.96.7.7/") },
		"NodePort from the node":  func() (string, error) { return c.get(t.Context(), "http://"+env.HostIP+":30777/") },
		"ClusterIP from a pod":    func() (string, error) { return c.fromPod(t.Context(), "http://10.96.7.7/") },
		"NodePort from a pod": func() (string, error) {
			return c.fromPod(t.Context(), "http://"+env.HostIP+":30777/")
		},
	} {
		seen := map[string]bool{}
		env.Eventually(t, way+" to reach all three pods", func() error {
			for range 10 {
				answer, err := ask()
				if err != nil {
					return err
				}
				seen[answer] = true
			}
			if len(seen) < 3 {
				return fmt.Errorf("only %v answer", seen)
			}
			return nil
		})
	}
	if out := c.Kubectl(t, "exec", "client", "--", "/testapp", "env"); !strings.Contains(out,
		"KUBERNETES_SERVICE_HOST="+serviceIP) {
		t.Errorf("the API server's Service is not in a pod's environment:\n%s", out)
	}
}

// get sends a request from the node, on a connection of its own.
func (c *Cluster) get(ctx context.Context, url string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := (&http.Transport{DialContext: c.Dial, DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

// fromPod sends a request from the pod client.
func (c *Cluster) fromPod(ctx context.Context, url string) (string, error) {
	out, errOut, err := c.TryKubectl(ctx, "", "exec", "client", "--", "/testapp", "get", url)
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, errOut)
	}
	return out, nil
}

// rollingUpdate replaces every pod while the Service answers all the time.
func rollingUpdate(t *testing.T, c *Cluster) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	failed := make(chan error, 1)
	go func() {
		defer close(failed)
		for ctx.Err() == nil {
			if _, err := c.get(ctx, "http://"+env.HostIP+":30777/"); err != nil && ctx.Err() == nil &&
				!errors.Is(err, context.Canceled) {
				failed <- err
				return
			}
		}
	}()
	c.Kubectl(t, "set", "env", "deployment/web", "VERSION=two")
	c.Kubectl(t, "rollout", "status", "deployment/web", "--timeout=180s")
	cancel()
	if err := <-failed; err != nil {
		t.Errorf("a request failed during the update: %v", err)
	}
	env.Eventually(t, "only new pods to answer", func() error {
		for range 10 {
			answer, err := c.get(t.Context(), "http://10.96.7.7/")
			if err != nil {
				return err
			}
			if !strings.HasSuffix(answer, "two\n") {
				return fmt.Errorf("it is %q", answer)
			}
		}
		return nil
	})
}

func scale(t *testing.T, c *Cluster) {
	c.Kubectl(t, "scale", "deployment/web", "--replicas=0")
	c.Kubectl(t, "wait", "--for=delete", "pod", "-l", "app=web", "--timeout=180s")
	c.Kubectl(t, "scale", "deployment/web", "--replicas=3")
	c.Kubectl(t, "rollout", "status", "deployment/web", "--timeout=180s")
}

func job(t *testing.T, c *Cluster) {
	c.Apply(t, `apiVersion: batch/v1
kind: Job
metadata: {name: count}
spec:
  completions: 4
  parallelism: 2
  template:
    spec:
      restartPolicy: Never
      containers: [{name: main, image: berth.local/busybox:v1, command: [echo, counted]}]
`)
	c.Kubectl(t, "wait", "--for=condition=Complete", "job/count", "--timeout=180s")
	if out := c.Kubectl(t, "logs", "-l", "job-name=count", "--prefix"); strings.Count(out, "counted") != 4 {
		t.Errorf("the four pods' logs are\n%s", out)
	}
}

func cronJob(t *testing.T, c *Cluster) {
	c.Apply(t, `apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly}
spec:
  schedule: "0 3 * * *"
  jobTemplate: {spec: {template: {spec: {restartPolicy: OnFailure,
    containers: [{name: main, image: berth.local/busybox:v1, command: [echo, night]}]}}}}
`)
	c.Kubectl(t, "create", "job", "--from=cronjob/nightly", "by-day")
	c.Kubectl(t, "wait", "--for=condition=Complete", "job/by-day", "--timeout=180s")
}

// byClock is a CronJob that runs every minute, while the others are checked.
const byClock = `apiVersion: batch/v1
kind: CronJob
metadata: {name: minutely}
spec:
  schedule: "* * * * *"
  jobTemplate: {spec: {template: {spec: {restartPolicy: OnFailure,
    containers: [{name: main, image: berth.local/busybox:v1, command: [echo, tick]}]}}}}
---
`

func cronJobByClock(t *testing.T, c *Cluster) {
	c.Kubectl(t, "wait", "--for=jsonpath={.status.lastSuccessfulTime}", "cronjob/minutely", "--timeout=180s")
	c.Kubectl(t, "delete", "cronjob", "minutely")
}

func daemonSet(t *testing.T, c *Cluster) {
	c.Apply(t, `apiVersion: apps/v1
kind: DaemonSet
metadata: {name: everywhere}
spec:
  selector: {matchLabels: {app: everywhere}}
  template:
    metadata: {labels: {app: everywhere}}
    spec:
      terminationGracePeriodSeconds: 0
      hostNetwork: true
      containers: [{name: main, image: berth.local/busybox:v1, command: [sleep, "3600"]}]
`)
	c.Kubectl(t, "rollout", "status", "daemonset/everywhere", "--timeout=180s")
	if out := c.Kubectl(t, "get", "pods", "-l", "app=everywhere", "-o",
		"jsonpath={.items[*].status.podIP}"); out != env.HostIP {
		t.Errorf("its pod's address is %q", out)
	}
}

// disks is a class of local disks. A disk is bound to a claim when the claim's pod gets its node.
const disks = `apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: local}
provisioner: kubernetes.io/no-provisioner
volumeBindingMode: WaitForFirstConsumer
`

// disk is a local volume on the node, in that folder.
func disk(t *testing.T, name, folder string) string {
	t.Helper()
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`---
apiVersion: v1
kind: PersistentVolume
metadata: {name: %s}
spec:
  capacity: {storage: 1Mi}
  accessModes: [ReadWriteOnce]
  storageClassName: local
  local: {path: %s}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/hostname, operator: In,
    values: [%s]}]}]}}
`, name, folder, env.NodeName)
}

// replaced deletes a pod and waits until its successor of the same name is ready. The set's own
// status may be the old one for a moment.
func (c *Cluster) replaced(t *testing.T, name string) {
	t.Helper()
	const uidAndReady = `jsonpath={.metadata.uid} {.status.conditions[?(@.type=="Ready")].status}`
	old, _, _ := strings.Cut(c.Kubectl(t, "get", "pod", name, "-o", uidAndReady), " ")
	c.Kubectl(t, "delete", "pod", name, "--timeout=180s")
	c.Eventually(t, func(out string) error {
		if uid, ready, _ := strings.Cut(out, " "); uid == old || ready != "True" {
			return fmt.Errorf("it was %s and is %s", old, out)
		}
		return nil
	}, "get", "pod", name, "-o", uidAndReady)
}

// statefulSet checks pods that come one after the other, each with a volume of its own that stays
// after the pod's end.
func statefulSet(t *testing.T, c *Cluster) {
	c.Apply(t,
		disks+disk(t, "disk-0", filepath.Join(c.Folder, "disk-0"))+disk(t, "disk-1", filepath.Join(c.Folder, "disk-1")))
	c.Apply(t, `apiVersion: apps/v1
kind: StatefulSet
metadata: {name: store}
spec:
  serviceName: store
  replicas: 2
  selector: {matchLabels: {app: store}}
  template:
    metadata: {labels: {app: store}}
    spec:
      terminationGracePeriodSeconds: 0
      containers:
        - name: main
          image: berth.local/busybox:v1
          command: [sh, -c, "echo $HOSTNAME >>/data/starts; exec sleep 3600"]
          volumeMounts: [{name: data, mountPath: /data}]
  volumeClaimTemplates:
    - metadata: {name: data}
      spec: {accessModes: [ReadWriteOnce], storageClassName: local, resources: {requests: {storage: 1Mi}}}
`)
	c.Kubectl(t, "rollout", "status", "statefulset/store", "--timeout=180s")
	c.replaced(t, "store-0")
	c.Kubectl(t, "rollout", "status", "statefulset/store", "--timeout=180s")
	for pod, want := range map[string]string{"store-0": "store-0\nstore-0\n", "store-1": "store-1\n"} {
		if out := c.Kubectl(t, "exec", pod, "--", "cat", "/data/starts"); out != want {
			t.Errorf("the volume of %s has %q, want %q", pod, out, want)
		}
	}
	if out := c.Kubectl(t, "get", "pvc", "-o", "jsonpath={.items[*].status.phase}"); out != "Bound Bound" {
		t.Errorf("the claims are %q", out)
	}
}

func drain(t *testing.T, c *Cluster) {
	c.Kubectl(t, "cordon", env.NodeName)
	if out := c.Kubectl(t, "get", "nodes"); !strings.Contains(out, "Ready,SchedulingDisabled") {
		t.Errorf("a cordoned node is\n%s", out)
	}
	c.Kubectl(t, "drain", env.NodeName, "--ignore-daemonsets", "--force", "--delete-emptydir-data", "--timeout=180s")
	if out := c.Kubectl(t, "get", "pods", "-A", "--field-selector",
		"spec.nodeName="+env.NodeName+",status.phase=Running", "-o", "name"); strings.Count(out, "pod/") != 1 ||
		!strings.Contains(out, "everywhere") {
		t.Errorf("left on the drained node:\n%s", out)
	}
	c.Kubectl(t, "uncordon", env.NodeName)
	c.Kubectl(t, "rollout", "status", "deployment/web", "--timeout=180s")
}
