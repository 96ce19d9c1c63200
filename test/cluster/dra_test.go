//go:build cluster

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
	healthapi "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	draapi "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/berthd/berth/test/dradriver"
	"github.com/berthd/berth/test/env"
)

// card is the name of the tests' DRA driver, and of its class of devices.
const card = "card.example.com"

// cards are the node's cards as their driver publishes them.
const cards = `
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: cards}
spec:
  nodeName: %s
  driver: card.example.com
  pool: {name: cards, generation: 1, resourceSliceCount: 1}
  devices: [{name: card-0}, {name: card-1}]
`

// cardObjects are a class of cards, a claim that two pods share, and a pod whose own claim is made
// from a template. The init container has the card, too, and the container "plain" has none.
const cardObjects = `
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: card.example.com}
spec: {selectors: [{cel: {expression: 'device.driver == "card.example.com"'}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: shared}
spec: {devices: {requests: [{name: one, exactly: {deviceClassName: card.example.com}}]}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: own}
spec: {spec: {devices: {requests: [{name: one, exactly: {deviceClassName: card.example.com}}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: own}
spec:
  terminationGracePeriodSeconds: 1
  resourceClaims: [{name: card, resourceClaimTemplateName: own}]
  initContainers: [{name: first, image: "berth.local/busybox:v1", command: [sh, -c, "test $CARD"],
    resources: {claims: [{name: card}]}}]
  containers:
  - {name: main, image: "berth.local/busybox:v1", command: [sh, -c, "trap exit TERM; sleep 3600 & wait"],
    resources: {claims: [{name: card, request: one}]}}
  - {name: plain, image: "berth.local/busybox:v1", command: [sh, -c, "trap exit TERM; sleep 3600 & wait"]}
---
apiVersion: v1
kind: Pod
metadata: {name: left}
spec:
  terminationGracePeriodSeconds: 1
  resourceClaims: [{name: card, resourceClaimName: shared}]
  containers: [{name: main, image: "berth.local/busybox:v1", command: [sh, -c, "trap exit TERM; sleep 3600 & wait"],
    resources: {claims: [{name: card}]}}]
---
apiVersion: v1
kind: Pod
metadata: {name: right}
spec:
  terminationGracePeriodSeconds: 1
  resourceClaims: [{name: card, resourceClaimName: shared}]
  containers: [{name: main, image: "berth.local/busybox:v1", command: [sh, -c, "trap exit TERM; sleep 3600 & wait"],
    resources: {claims: [{name: card}]}}]
`

// brief is a pod that has a card of its own and ends at once.
const brief = `
apiVersion: v1
kind: Pod
metadata: {name: brief}
spec:
  restartPolicy: Never
  resourceClaims: [{name: card, resourceClaimTemplateName: own}]
  containers: [{name: main, image: "berth.local/busybox:v1", command: [sh, -c, "test $CARD"],
    resources: {claims: [{name: card}]}}]
`

// startCardDriver starts the tests' DRA driver beside a node. It writes a CDI spec for each claim,
// with the variable CARD, which has the claim's name. While busy is true, it takes no claim back.
func startCardDriver(t *testing.T, c *Cluster, node *env.Agent, busy *atomic.Bool) *dradriver.Driver {
	t.Helper()
	specs := c.CDISpecs()
	spec := func(claim *draapi.Claim) string { return filepath.Join(specs, "card-"+claim.GetUid()+".json") }
	endpoint := filepath.Join(node.RootDir, "plugins", card, "dra.sock")
	if err := errors.Join(os.MkdirAll(specs, 0o755), os.MkdirAll(filepath.Dir(endpoint), 0o755)); err != nil {
		t.Fatal(err)
	}
	driver, err := dradriver.Start(dradriver.Config{
		Name: card, Health: true, Endpoint: endpoint, Registry: filepath.Join(node.RootDir, "plugins_registry"),
		Prepare: func(_ context.Context, claim *draapi.Claim) ([]*draapi.Device, error) {
			text := fmt.Sprintf(`{"cdiVersion": "0.6.0", "kind": "example.com/card", "devices": [{"name": %q, `+
				`"containerEdits": {"env": ["CARD=%s"]}}]}`, claim.GetUid(), claim.GetName())
			if err := os.WriteFile(spec(claim), []byte(text), 0o644); err != nil {
				return nil, err
			}
			return []*draapi.Device{{
				PoolName: "cards", DeviceName: "card-0", RequestNames: []string{"one"},
				CdiDeviceIds: []string{"example.com/card=" + claim.GetUid()},
			}}, nil
		},
		Unprepare: func(_ context.Context, claim *draapi.Claim) error {
			if busy.Load() {
				return errors.New("busy")
			}
			if err := os.Remove(spec(claim)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
			return nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(driver.Stop)
	return driver
}

// given returns how often a driver was asked to do something for a claim.
func given(d *dradriver.Driver, call string) int {
	return len(slices.DeleteFunc(d.Calls(), func(c string) bool { return !strings.HasPrefix(c, call) }))
}

// TestResourceClaims has pods of a real scheduler wait for a DRA driver, and get its devices: one
// pod by a template, and two by a claim that they share. The containers keep them over a crash of
// the agent, and the driver gets each claim back once, after its last pod. ResourceSlices are
// deleted while their driver is not there.
func TestResourceClaims(t *testing.T) {
	c := Start(t, Options{})
	a := c.StartNode(t, env.AgentOptions{})
	c.WaitNodeReady(t)
	c.Eventually(t, Contains("default"), "get", "serviceaccounts", "-o", "name")
	c.Apply(t, fmt.Sprintf(cards, env.NodeName))
	c.Apply(t, cardObjects)
	c.Kubectl(t, "wait", "--for=condition=PodScheduled", "pod/own", "pod/left", "pod/right", "--timeout=180s")
	c.Eventually(t, Contains("FailedPrepareDynamicResources Failed to prepare dynamic resources: "+
		"prepare dynamic resources: DRA driver card.example.com is not registered"), "get", "events", "-o",
		`jsonpath={range .items[*]}{.reason} {.message}{"\n"}{end}`)
	gone := func(out string) error {
		if out != "" {
			return fmt.Errorf("there is %s", out)
		}
		return nil
	}
	c.Eventually(t, gone, "get", "resourceslices", "-o", "name") // no driver came
	var busy atomic.Bool
	driver := startCardDriver(t, c, a, &busy)
	c.Apply(t, fmt.Sprintf(cards, env.NodeName))
	c.Kubectl(t, "wait", "--for=condition=Ready", "pod/own", "pod/left", "pod/right", "--timeout=180s")

	own := c.Kubectl(t, "get", "pod", "own", "-o", "jsonpath={.status.resourceClaimStatuses[0].resourceClaimName}")
	has := func(pod, container, want string) {
		t.Helper()
		out := c.Kubectl(t, "exec", pod, "-c", container, "--", "sh", "-c", "echo $CARD")
		if strings.TrimSpace(out) != want {
			t.Errorf("container %s of pod %s has the card %q, want %q", container, pod, out, want)
		}
	}
	has("own", "main", own)
	has("own", "plain", "")
	has("left", "main", "shared")
	has("right", "main", "shared")
	if n := given(driver, "prepare"); n != 2 {
		t.Errorf("the driver was asked for %q", driver.Calls())
	}

	driver.Say(&healthapi.DeviceHealth{
		Device: &healthapi.DeviceIdentifier{PoolName: "cards", DeviceName: "card-0"},
		Health: healthapi.HealthStatus_UNHEALTHY, Message: "hot", HealthCheckTimeoutSeconds: 3600,
	})
	c.Eventually(t, Contains("claim:card Unhealthy hot"), "get", "pod", "left", "-o",
		`jsonpath={range .status.containerStatuses[0].allocatedResourcesStatus[0]}{.name} {.resources[0].health} `+
			`{.resources[0].message}{end}`)
	c.Eventually(t, Contains(`dra_resource_claims_in_use{driver_name="<any>"} 2`,
		`dra_operations_duration_seconds_count{is_error="false",operation_name="PrepareResources"} 3`),
		"get", "--raw", "/api/v1/nodes/"+env.NodeName+"/proxy/metrics")

	a.Kill9()
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
	a.WaitReady(t, "own", "left", "right")
	// With process 1, the kernel may end the command itself before it returns.
	if _, said, err := c.TryKubectl(t.Context(), "", "exec", "own", "-c", "main", "--", "kill", "1"); err != nil &&
		ExitCode(err) != 128+int(unix.SIGKILL) {
		t.Fatalf("end the container: %v: %s", err, said)
	}
	c.Eventually(t, Contains("1"), "get", "pod", "own", "-o",
		`jsonpath={range .status.containerStatuses[?(@.name=="main")]}{.restartCount}{end}`)
	c.Kubectl(t, "wait", "--for=condition=Ready", "pod/own", "--timeout=180s")
	has("own", "main", own)

	c.Kubectl(t, "delete", "pod", "own", "left", "--timeout=180s")
	if n := given(driver, "unprepare "+own); n != 1 || given(driver, "unprepare shared") != 0 {
		t.Errorf("the driver was asked for %q", driver.Calls())
	}
	has("right", "main", "shared")

	// a pod has not ended before its card is given back, because the cluster gives it to others then
	busy.Store(true)
	c.Apply(t, brief)
	env.Eventually(t, "the driver to be asked to take a card back", func() error {
		if given(driver, "unprepare brief-card-") < 2 {
			return fmt.Errorf("it was asked for %q", driver.Calls())
		}
		return nil
	})
	if out := c.Kubectl(t, "get", "pod", "brief", "-o", "jsonpath={.status.phase}"); out != "Running" {
		t.Errorf("a pod that still has its card is %s", out)
	}
	busy.Store(false)
	c.Kubectl(t, "wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/brief", "--timeout=180s")

	c.Kubectl(t, "delete", "pod", "right", "brief", "--timeout=180s")
	if n := given(driver, "unprepare shared"); n != 1 {
		t.Errorf("the driver was asked for %q", driver.Calls())
	}
	state, err := os.ReadFile(filepath.Join(a.RootDir, "dra_manager_state"))
	if err != nil || !strings.Contains(string(state), `\"ClaimInfoStateList\":[]`) {
		t.Errorf("the state file has %s (%v)", state, err)
	}
	if left, _ := filepath.Glob(filepath.Join(c.CDISpecs(), "*")); len(left) > 0 {
		t.Errorf("CDI specs are left: %q", left)
	}
	if out := c.Kubectl(t, "get", "resourceslices", "-o", "name"); out != "resourceslice.resource.k8s.io/cards\n" {
		t.Errorf("the slices of a driver that is here are %q", out)
	}
	driver.Stop()
	c.Eventually(t, gone, "get", "resourceslices", "-o", "name")
}
