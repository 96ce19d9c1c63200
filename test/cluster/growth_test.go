//go:build cluster

package cluster

import (
	"fmt"
	"slices"
	"testing"

	"github.com/berthd/berth/test/csidriver"
	"github.com/berthd/berth/test/env"
)

// growthObjects are a driver whose volumes can grow, a volume of the driver, and its pod.
const growthObjects = `
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: grows.berth.dev}
spec: {attachRequired: false}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: grows}
provisioner: grows.berth.dev
allowVolumeExpansion: true
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: grows-0}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: grows
  csi: {driver: grows.berth.dev, volumeHandle: disk-0}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], storageClassName: grows, resources: {requests: {storage: 1Gi}}}
`

// growthPod is a pod with the claim.
const growthPod = `
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: "berth.local/busybox:v1", command: [sh, -c, "trap exit TERM; sleep 3600 & wait"],
    volumeMounts: [{name: v, mountPath: /v}]}]
  volumes: [{name: v, persistentVolumeClaim: {claimName: data}}]
`

// grow makes a volume larger as the controllers of its driver do, which leave the rest to the node.
func grow(t *testing.T, c *Cluster, size string) {
	t.Helper()
	c.Kubectl(t, "patch", "pvc", "data", "-p", fmt.Sprintf(`{"spec":{"resources":{"requests":{"storage":%q}}}}`, size))
	c.Kubectl(t, "patch", "pvc", "data", "--subresource=status", "-p",
		fmt.Sprintf(`{"status":{"allocatedResources":{"storage":%q},
		"allocatedResourceStatuses":{"storage":"ControllerResizeInProgress"}}}`, size))
	c.Kubectl(t, "patch", "pv", "grows-0", "-p", fmt.Sprintf(`{"spec":{"capacity":{"storage":%q}}}`, size))
	c.Kubectl(t, "patch", "pvc", "data", "--subresource=status", "-p",
		`{"status":{"allocatedResourceStatuses":{"storage":"NodeResizePending"},"conditions":[{"type":"FileSystemResizePending","status":"True"}]}}`)
}

// hasGrown waits until the claim reports that it has grown, and that nothing is left to do.
func hasGrown(t *testing.T, c *Cluster, size string) {
	t.Helper()
	c.Eventually(t, func(out string) error {
		if want := size + "//"; out != want {
			return fmt.Errorf("the claim has %s, want %s", out, want)
		}
		return nil
	}, "get", "pvc", "data", "-o",
		"jsonpath={.status.capacity.storage}/{.status.allocatedResourceStatuses}/{.status.conditions}")
}

// TestVolumeGrowth checks that a volume of a CSI driver grows while a pod uses it, also when the
// agent is killed meanwhile, and before the next pod uses it. It grows once each time. The events
// and what the node writes to the claim are a kubelet's, and none of it is refused.
func TestVolumeGrowth(t *testing.T) {
	t.Parallel()
	c := Start(t, Options{})
	node := c.StartNode(t, env.AgentOptions{})
	c.WaitNodeReady(t)
	dir, _ := startCSIDriver(t, c, node, "grows.berth.dev", "-can", "STAGE_UNSTAGE_VOLUME,EXPAND_VOLUME")
	account(t, c)
	c.Apply(t, growthObjects+"---"+fmt.Sprintf(growthPod, "one"))
	c.Kubectl(t, "wait", "--for=condition=Ready", "pod/one", "--timeout=180s")
	asked := func() int {
		t.Helper()
		calls, err := csidriver.Calls(dir)
		if err != nil {
			t.Fatal(err)
		}
		return len(slices.DeleteFunc(calls, func(c csidriver.Call) bool { return c.Method != "NodeExpandVolume" }))
	}
	grow(t, c, "2Gi")
	hasGrown(t, c, "2Gi")
	const words = `MountVolume.NodeExpandVolume succeeded for volume "grows-0" ` + env.NodeName
	for _, of := range []string{
		"involvedObject.kind=Pod,involvedObject.name=one",
		"involvedObject.kind=PersistentVolumeClaim,involvedObject.name=data",
	} {
		c.Eventually(t, Contains("kubelet Normal FileSystemResizeSuccessful "+words), "get", "events",
			"--field-selector", of+",reason=FileSystemResizeSuccessful",
			"-o", `jsonpath={range .items[*]}{.source.component} {.type} {.reason} {.message}{"\n"}{end}`)
	}
	if n := asked(); n != 1 {
		t.Errorf("the driver was asked %d times", n)
	}

	if err := csidriver.Set(dir, "NodeExpandVolume", csidriver.Hang); err != nil {
		t.Fatal(err)
	}
	grow(t, c, "3Gi")
	c.Eventually(t, Contains("NodeResizeInProgress"), "get", "pvc", "data", "-o",
		"jsonpath={.status.allocatedResourceStatuses.storage}")
	env.Eventually(t, "the driver to be asked", func() error {
		if n := asked(); n < 2 {
			return fmt.Errorf("it was asked %d times", n)
		}
		return nil
	})
	node.Kill9()
	if err := csidriver.Set(dir, "NodeExpandVolume", ""); err != nil {
		t.Fatal(err)
	}
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	hasGrown(t, c, "3Gi")
	if n := asked(); n != 3 {
		t.Errorf("the driver was asked %d times", n)
	}

	c.Kubectl(t, "delete", "pod", "one", "--timeout=180s")
	grow(t, c, "4Gi")
	if err := csidriver.Set(dir, "NodeExpandVolume", csidriver.Fail); err != nil {
		t.Fatal(err)
	}
	began := asked()
	c.Apply(t, fmt.Sprintf(growthPod, "two"))
	c.Eventually(t,
		Contains(`MountVolume.Setup failed while expanding volume for volume "grows-0" : `+
			`Expander.NodeExpand failed to expand the volume : rpc error: code = Internal desc = told to fail`),
		"get", "events", "--field-selector", "involvedObject.name=two,reason=FailedMount")
	c.Eventually(t,
		Contains("NodeResizeError failed to expand pvc with Expander.NodeExpand failed to expand the volume : "), "get",
		"pvc", "data",
		"-o", `jsonpath={range .status.conditions[*]}{.type} {.message}{"\n"}{end}`)
	if out := c.Kubectl(t, "get", "pod", "two", "-o", "jsonpath={.status.phase}"); out != "Pending" {
		t.Errorf("it is %s before its volume has grown", out)
	}
	if err := csidriver.Set(dir, "NodeExpandVolume", ""); err != nil {
		t.Fatal(err)
	}
	c.Kubectl(t, "wait", "--for=condition=Ready", "pod/two", "--timeout=180s")
	hasGrown(t, c, "4Gi")
	if asked() < began+2 {
		t.Error("the driver was not asked before the pod started")
	}
	c.Kubectl(t, "delete", "pod", "two", "--timeout=180s")
}
