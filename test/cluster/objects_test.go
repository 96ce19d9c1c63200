//go:build cluster

package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/test/env"
)

// reader is a pod that reads objects of every kind, and these objects.
const reader = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {colour: red}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: fixed}
immutable: true
data: {shape: round}
---
apiVersion: v1
kind: Secret
metadata: {name: login}
stringData: {pass: hunter2-in-the-api}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {clusterIP: 10.96.0.77, ports: [{port: 80}], selector: {app: none}}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: disk}
spec:
  capacity: {storage: 1Mi}
  accessModes: [ReadWriteOnce]
  storageClassName: ""
  persistentVolumeReclaimPolicy: Retain
  hostPath: {path: %s}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: disk}
spec: {accessModes: [ReadWriteOnce], storageClassName: "", resources: {requests: {storage: 1Mi}}}
---
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata: {name: plain}
handler: runc
---
apiVersion: v1
kind: Pod
metadata: {name: reader}
spec:
  runtimeClassName: plain
  terminationGracePeriodSeconds: 1
  containers:
    - name: main
      image: berth.local/busybox:v1
      command: [sh, -c, "echo env=$PASS/$SHAPE/$WEB_SERVICE_HOST/$KUBERNETES_SERVICE_HOST; echo claim=$(cat /disk/file);
        while :; do cat /settings/colour; echo; cat /sub/colour; echo; sleep 0.2; done"]
      env:
        - {name: PASS, valueFrom: {secretKeyRef: {name: login, key: pass}}}
        - {name: SHAPE, valueFrom: {configMapKeyRef: {name: fixed, key: shape}}}
      volumeMounts:
        - {name: settings, mountPath: /settings}
        - {name: settings, mountPath: /sub/colour, subPath: colour}
        - {name: disk, mountPath: /disk}
  volumes:
    - {name: settings, configMap: {name: settings}}
    - {name: disk, persistentVolumeClaim: {claimName: disk}}
`

// waiting is a pod whose Secret comes later.
const waiting = `{apiVersion: v1, kind: Pod, metadata: {name: waiting}, spec: {terminationGracePeriodSeconds: 1, volumes: [{name: late, secret: {secretName: late}}],
  containers: [{name: main, image: "berth.local/busybox:v1", command: [sleep, "3600"],
    volumeMounts: [{name: late, mountPath: /late}]}]}}`

// TestObjects checks that pods of the API server have its objects and tokens, and that their events
// report them. A node's rights are enough for all of it, and secrets do not appear in the agent's
// most detailed log.
func TestObjects(t *testing.T) {
	c := Start(t, Options{})
	node := c.StartNode(t, env.AgentOptions{Flags: []string{"--v", "10"}})
	c.WaitNodeReady(t)
	disk := filepath.Join(node.Home, "disk")
	if err := errors.Join(os.MkdirAll(disk, 0o755),
		os.WriteFile(filepath.Join(disk, "file"), []byte("kept"), 0o644)); err != nil {
		t.Fatal(err)
	}
	c.Eventually(t, Contains("default"), "get", "serviceaccounts", "-o", "name")
	c.Apply(t, fmt.Sprintf(reader, disk))
	c.Kubectl(t, "wait", "--for=condition=Ready", "pod/reader", "--timeout=180s")
	c.Eventually(t, Contains("env=hunter2-in-the-api/round/10.96.0.77/10.96.0.1\n", "claim=kept\n", "red\nred\n"),
		"logs", "reader")

	t.Run("token", func(t *testing.T) {
		token := c.Kubectl(t, "exec", "reader", "--", "cat", "/var/run/secrets/kubernetes.io/serviceaccount/token")
		anonymous := filepath.Join(t.TempDir(), "none")
		if err := os.WriteFile(anonymous, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		who := c.Kubectl(t, "--kubeconfig", anonymous, "--server", "https://"+env.HostIP+":6443",
			"--certificate-authority", c.PKI.CA.File, "--token", token, "auth", "whoami", "-o", "yaml")
		for _, want := range []string{"system:serviceaccount:default:default", "- reader", "- " + env.NodeName} {
			if !strings.Contains(who, want) {
				t.Errorf("%q is not in\n%s", want, who)
			}
		}
		secretsStayOut(t, node, token)
	})
	t.Run("change", func(t *testing.T) {
		began := time.Now()
		c.Kubectl(t, "patch", "configmap", "settings", "-p", `{"data":{"colour":"blue"}}`)
		// a subPath keeps the old content
		c.Eventually(t, Contains("blue\nred\n"), "logs", "reader", "--tail", "4")
		t.Logf("a changed ConfigMap was read after %s", time.Since(began).Round(time.Millisecond))
	})
	t.Run("later", func(t *testing.T) {
		c.Apply(t, waiting)
		c.Eventually(t, Contains(`MountVolume.SetUp failed for volume "late" : secret "late" not found`), "get",
			"events", "--field-selector", "involvedObject.name=waiting,reason=FailedMount")
		c.Kubectl(t, "create", "secret", "generic", "late", "--from-literal=k=v")
		c.Kubectl(t, "wait", "--for=condition=Ready", "pod/waiting", "--timeout=180s")
	})
	t.Run("events", func(t *testing.T) {
		for _, reason := range []string{"Starting", "NodeAllocatableEnforced", "NodeHasSufficientMemory", "NodeReady"} {
			c.Eventually(t, Contains("kubelet "+env.NodeName), "get", "events", "--field-selector",
				"involvedObject.kind=Node,reason="+reason,
				"-o", "jsonpath={range .items[*]}{.source.component} {.source.host}{end}")
		}
		c.Eventually(t, Contains("kubelet "+env.NodeName+" spec.containers{main} Normal"), "get", "events",
			"--field-selector", "involvedObject.name=reader,reason=Started",
			"-o",
			"jsonpath={.items[0].source.component} {.items[0].source.host} {.items[0].involvedObject.fieldPath} "+
				"{.items[0].type}")
		c.Eventually(t, Contains("Started", "Created", "kubelet"), "describe", "pod", "reader")
	})
	t.Run("server away", func(t *testing.T) {
		if err := c.APIServer.Stop(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second) // long enough for every watch to have failed
		c.StartAPIServer(t)
		c.Kubectl(t, "patch", "configmap", "settings", "-p", `{"data":{"colour":"green"}}`)
		c.Eventually(t, Contains("green\nred\n"), "logs", "reader", "--tail", "4")
		if out := c.Kubectl(t, "get", "pods", "-o",
			"jsonpath={.items[*].status.containerStatuses[*].restartCount}"); out != "0 0" {
			t.Errorf("restarts: %s", out)
		}
	})
	c.Kubectl(t, "delete", "pod", "reader", "waiting", "--timeout=180s")
	before := len(c.nodeRequests(t))
	time.Sleep(3 * time.Second) // long enough for requests that the end of watches might cause
	requests := c.nodeRequests(t)
	if !slices.ContainsFunc(requests, func(r asked) bool { return strings.Contains(r.RequestURI, "/secrets?") }) {
		t.Error("the log of requests has none for Secrets: it shows nothing")
	}
	t.Logf("%d requests, %d of them after the pods were gone", len(requests), len(requests)-before)
	secretsStayOut(t, node, "hunter2-in-the-api")
}

// secretsStayOut checks that nothing that the agent writes or answers contains a secret.
func secretsStayOut(t *testing.T, node *env.Agent, secret string) {
	t.Helper()
	log, err := os.ReadFile(node.Log)
	if err != nil {
		t.Fatal(err)
	}
	texts := map[string]string{"the log": string(log)}
	for _, args := range [][]string{{"why", "default/reader"}, {"events", "-o", "yaml"}} {
		out, errOut, _ := node.CLI(args...)
		texts[strings.Join(args, " ")] = out + errOut
	}
	for where, text := range texts {
		if strings.Contains(text, secret) {
			t.Errorf("%s quotes a secret", where)
		}
	}
}
