//go:build cluster

package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/client-go/rest"

	"github.com/berthd/berth/test/csidriver"
	"github.com/berthd/berth/test/env"
)

// csiObjects are two drivers with a volume each, and their secrets. One of the drivers needs its
// volumes to be attached.
const csiObjects = `
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: plain.berth.dev}
spec: {attachRequired: false, podInfoOnMount: true, volumeLifecycleModes: [Persistent, Ephemeral],
  fsGroupPolicy: File, tokenRequests: [{audience: vault}]}
---
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: attach.berth.dev}
spec: {attachRequired: true}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: attached}
provisioner: attach.berth.dev
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: v1
kind: Secret
metadata: {name: login, namespace: kube-system}
stringData: {pass: hunter2-of-the-driver}
---
apiVersion: v1
kind: Secret
metadata: {name: inline}
stringData: {pass: hunter2-of-the-pod}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: attached-0}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: attached
  persistentVolumeReclaimPolicy: Retain
  csi: {driver: attach.berth.dev, volumeHandle: disk-0, nodeStageSecretRef: {name: login, namespace: kube-system}}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: topology.berth.dev/zone, operator: In,
    values: [here]}]}]}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: kept}
spec:
  serviceName: kept
  selector: {matchLabels: {app: kept}}
  template:
    metadata: {labels: {app: kept}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: main, image: "berth.local/busybox:v1",
        command: [sh, -c, "date +%s%N >>/v/starts; trap exit TERM; sleep 3600 & wait"], volumeMounts: [{name: data,
          mountPath: /v}]}]
  volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], storageClassName: attached,
    resources: {requests: {storage: 1Gi}}}}]
---
apiVersion: v1
kind: Pod
metadata: {name: inline}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: "berth.local/busybox:v1", command: [sh, -c, "trap exit TERM; sleep 3600 & wait"],
    volumeMounts: [{name: v, mountPath: /v}]}]
  volumes: [{name: v, csi: {driver: plain.berth.dev, volumeAttributes: {greeting: hello},
    nodePublishSecretRef: {name: inline}}}]
`

// startCSIDriver starts the tests' CSI driver beside a node, and returns the driver's directory.
func startCSIDriver(
	t *testing.T, c *Cluster, node *env.Agent, name string, flags ...string,
) (dir string, driver *env.Program) {
	t.Helper()
	binary := filepath.Join(c.Folder, "csi-driver")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "./test/csidriver/main")
	build.Dir, build.Env = c.Checkout, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the CSI driver: %v: %s", err, out)
	}
	dir = filepath.Join(t.TempDir(), "d")
	driver = c.NewProgram("csi-"+name,
		append([]string{
			binary, "-dir", dir, "-registry", filepath.Join(node.RootDir, "plugins_registry"), "-name", name,
		}, flags...)...)
	if err := driver.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = driver.Stop() })
	return dir, driver
}

// attachPause is the pause between two rounds of [attacher].
const attachPause = 100 * time.Millisecond

// attacher reports every volume as attached, as the attacher of a driver does, until ctx ends.
func attacher(ctx context.Context, c *Cluster) error {
	client, err := rest.HTTPClientFor(c.Config())
	if err != nil {
		return err
	}
	at := c.Config().Host + "/apis/storage.k8s.io/v1/volumeattachments"
	for ctx.Err() == nil {
		var list storagev1.VolumeAttachmentList
		if err := ask(ctx, client, http.MethodGet, at, "", "", &list); err != nil && ctx.Err() == nil {
			return err
		}
		for _, a := range list.Items {
			if a.Status.Attached {
				continue
			}
			patch := `{"status":{"attached":true,"attachmentMetadata":{"device":"of-` +
				*a.Spec.Source.PersistentVolumeName + `"}}}`
			if err := ask(ctx, client, http.MethodPatch, at+"/"+a.Name+"/status", "application/merge-patch+json", patch,
				nil); err != nil && ctx.Err() == nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(attachPause):
		}
	}
	return nil
}

// ask sends a request to the API server and decodes its answer.
func ask(ctx context.Context, client *http.Client, method, url, contentType, body string, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", contentType)
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("%s %s: %s", method, url, resp.Status)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

// TestCSI checks that drivers register with the cluster, and that a StatefulSet's volume is
// attached, staged and published and keeps its data. Inline volumes have the tokens and secrets
// that their driver asks for, nothing is refused to the node, and everything is removed at the end.
func TestCSI(t *testing.T) {
	c := Start(t, Options{})
	node := c.StartNode(t, env.AgentOptions{Flags: []string{"--v", "10"}})
	c.WaitNodeReady(t)
	plain, _ := startCSIDriver(t, c, node, "plain.berth.dev", "-max-volumes", "5")
	attached, driver := startCSIDriver(t, c, node, "attach.berth.dev", "-can", "STAGE_UNSTAGE_VOLUME", "-node-id",
		"machine-1", "-topology", "topology.berth.dev/zone=here")
	const drivers = `jsonpath={range .spec.drivers[*]}{.name} {.nodeID} {.topologyKeys} {.allocatable.count}{"\n"}{end}`
	c.Eventually(t,
		Contains("plain.berth.dev id-of-node null 5\n", `attach.berth.dev machine-1 ["topology.berth.dev/zone"] `),
		"get", "csinode", env.NodeName, "-o", drivers)
	c.Eventually(t, Contains("here", `"attach.berth.dev":"machine-1"`, `"plain.berth.dev":"id-of-node"`), "get", "node",
		env.NodeName,
		"-o",
		`jsonpath={.metadata.labels.topology\.berth\.dev/zone} `+
			`{.metadata.annotations.csi\.volume\.kubernetes\.io/nodeid}`)

	c.Eventually(t, Contains("default"), "get", "serviceaccounts", "-o", "name")
	c.Apply(t, csiObjects)
	c.Kubectl(t, "wait", "--for=condition=Ready", "pod/inline", "--timeout=180s")
	t.Run("inline", func(t *testing.T) {
		for file, want := range map[string]string{
			"greeting": "hello", "csi.storage.k8s.io_pod.name": "inline",
			"csi.storage.k8s.io_serviceAccount.name": "default",
		} {
			if out := c.Kubectl(t, "exec", "inline", "--", "cat", "/v/"+file); out != want {
				t.Errorf("%s is %q", file, out)
			}
		}
		var tokens map[string]struct{ Token string }
		if err := json.Unmarshal([]byte(c.Kubectl(t, "exec", "inline", "--", "cat",
			"/v/csi.storage.k8s.io_serviceAccount.tokens")), &tokens); err != nil || len(tokens["vault"].Token) < 100 {
			t.Errorf("tokens: %v", err)
		}
		driverGot(t, plain, "hunter2-of-the-pod")
		secretsStayOut(t, node, tokens["vault"].Token)
	})
	t.Run("waits for its attachment", func(t *testing.T) {
		c.Eventually(t, Contains("attach.berth.dev "+env.NodeName+" attached-0"), "get", "volumeattachments", "-o",
			"jsonpath={.items[0].spec.attacher} {.items[0].spec.nodeName} {.items[0].spec.source.persistentVolumeName}")
		c.Eventually(t, Contains("kubernetes.io/csi/attach.berth.dev^disk-0"), "get", "node", env.NodeName, "-o",
			"jsonpath={.status.volumesInUse}")
		if out := c.Kubectl(t, "get", "pod", "kept-0", "-o", "jsonpath={.status.phase}"); out != "Pending" {
			t.Errorf("it is %s before its volume is attached", out)
		}
		env.Eventually(t, "it to say why", func() error {
			if out, _, _ := node.CLI("why", "kept-0"); !strings.Contains(out,
				"volume kubernetes.io/csi/attach.berth.dev^disk-0 is not attached to this node yet") {
				return fmt.Errorf("why says %s", out)
			}
			return nil
		})
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- attacher(ctx, c) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	t.Run("attached", func(t *testing.T) {
		c.Eventually(t, Contains("1"), "get", "statefulset", "kept", "-o", "jsonpath={.status.readyReplicas}")
		driverGot(t, attached, `"device":"of-attached-0"`, "hunter2-of-the-driver")
		c.replaced(t, "kept-0")
		if out := c.Kubectl(t, "exec", "kept-0", "--", "wc", "-l", "/v/starts"); !strings.HasPrefix(out, "2 ") {
			t.Errorf("the volume has %s", out)
		}
	})
	t.Run("given back", func(t *testing.T) {
		c.Kubectl(t, "delete", "statefulset/kept", "pod/inline", "--timeout=180s")
		c.Eventually(t, func(out string) error {
			if out != "" {
				return fmt.Errorf("there is %s", out)
			}
			return nil
		}, "get", "volumeattachments", "-o", "name")
		if out := c.Kubectl(t, "get", "node", env.NodeName, "-o", "jsonpath={.status.volumesInUse}"); out != "" {
			t.Errorf("in use are %s", out)
		}
		if left, _ := filepath.Glob(filepath.Join(node.RootDir, "plugins/kubernetes.io/csi/*/*")); len(left) > 0 {
			t.Errorf("staged are %v", left)
		}
	})
	t.Run("driver goes", func(t *testing.T) {
		if err := driver.Stop(); err != nil {
			t.Fatal(err)
		}
		c.Eventually(t, func(out string) error {
			if out != "plain.berth.dev id-of-node null 5\n" {
				return fmt.Errorf("the drivers are %s", out)
			}
			return nil
		}, "get", "csinode", env.NodeName, "-o", drivers)
	})
	for _, secret := range []string{"hunter2-of-the-driver", "hunter2-of-the-pod"} {
		secretsStayOut(t, node, secret)
	}
}

// driverGot checks that a driver received the texts.
func driverGot(t *testing.T, dir string, texts ...string) {
	t.Helper()
	calls, err := csidriver.Calls(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := ""
	for _, call := range calls {
		all += call.Method + " " + strings.ReplaceAll(string(call.Request), `": "`, `":"`) + "\n"
	}
	for _, text := range texts {
		if !strings.Contains(all, text) {
			t.Errorf("the driver was not told %s:\n%s", text, all)
		}
	}
}
