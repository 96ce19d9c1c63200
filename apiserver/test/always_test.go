//go:build cluster

package test

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// replicas: a ReplicationController, which is of the core group, gets its pods without --workloads.
func replicas(t *testing.T, s *server) {
	s.apply(t, `
apiVersion: v1
kind: ReplicationController
metadata: {name: rc}
spec:
  replicas: 2
  selector: {app: rc}
  template:
    metadata: {labels: {app: rc}}
    spec: {containers: [{name: c, image: registry.example/image:1}]}
`)
	s.eventually(t, "2", "get", "rc", "rc", "-o", "jsonpath={.status.replicas}")
	s.kubectl(t, "delete", "rc", "rc")
}

// budgets: a PodDisruptionBudget lets as many pods be evicted as it says, also without --workloads.
// The owner of another budget's pod is of a kind that is not served: that pod stays.
func budgets(t *testing.T, s *server) {
	register(t, s, "budgeted")
	defer s.kubectl(t, "delete", "node", "budgeted")
	const owner = "ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: r, uid: u, controller: true}]"
	for name, labels := range map[string]string{
		"evicted": "labels: {app: b}", "kept": "labels: {app: b}", "orphan": "labels: {app: o}, " + owner,
	} {
		pod := strings.Replace(podManifest, "{name: NAME}", "{name: "+name+", "+labels+"}", 1)
		s.await(t, "the namespace takes pods", func() error {
			_, err := s.as("admin", pod+"  nodeName: budgeted\n", "apply", "-f", "-")
			return err
		})
		s.kubectl(t, "patch", "pod", name, "--subresource=status", "--type=merge", "-p",
			`{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`)
	}
	s.kubectl(t, "create", "pdb", "b", "--selector=app=b", "--min-available=1")
	s.kubectl(t, "create", "pdb", "o", "--selector=app=o", "--max-unavailable=1")
	evict := func(pod string) error {
		_, err := s.as("admin", `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"`+pod+`"}}`, "create",
			"--raw", "/api/v1/namespaces/default/pods/"+pod+"/eviction", "-f", "-")
		return err
	}
	s.eventually(t, "1", "get", "pdb", "b", "-o", "jsonpath={.status.disruptionsAllowed}")
	s.eventually(t, "SyncFailed", "get", "pdb", "o", "-o", "jsonpath={.status.conditions[*].reason}")
	if err := evict("evicted"); err != nil {
		t.Error(err)
	}
	for _, pod := range []string{"kept", "orphan"} {
		if err := evict(pod); err == nil || !strings.Contains(err.Error(), "disruption budget") {
			t.Errorf("the eviction of %s: %v", pod, err)
		}
	}
	s.kubectl(t, "delete", "pdb", "b", "o")
	s.kubectl(t, "delete", "pod", "kept", "orphan", "--force")
}

// serviceRanges: a range of Services stays while a Service has an address of it.
func serviceRanges(t *testing.T, s *server) {
	s.apply(t, "{apiVersion: networking.k8s.io/v1, kind: ServiceCIDR, metadata: {name: range}, "+
		"spec: {cidrs: [10.97.0.0/24]}}")
	s.await(t, "the range is used", func() error {
		_, err := s.as("admin", "", "create", "service", "clusterip", "ranged", "--tcp=80", "--clusterip=10.97.0.5")
		return err
	})
	s.kubectl(t, "delete", "servicecidr", "range", "--wait=false")
	s.eventually(t, "Terminating", "get", "servicecidr", "range", "-o", "jsonpath={.status.conditions[*].reason}")
	s.kubectl(t, "delete", "service", "ranged")
	s.eventually(t, "", "get", "servicecidr", "range", "--ignore-not-found")
}

// components: the parts of this process are healthy, and so is the store.
func components(t *testing.T, s *server) {
	s.eventually(t, "controller-manager=True etcd-0=True scheduler=True", "get", "cs", "--sort-by=.metadata.name", "-o",
		`jsonpath={range .items[*]}{.metadata.name}={.conditions[0].status} {end}`)
	s.prints(t, []string{"NAME", "Healthy"}, "get", "cs", "scheduler")
	s.refuses(t, "NotFound", "", "get", "cs", "nobody")
	if out, err := s.as("node", "", "get", "cs"); err == nil {
		t.Errorf("a node sees them: %s", out)
	}
	s.prints(t, []string{"node-name", "allow-privileged"}, "get", "--raw", "/flagz")
}

// quietStart: the log of a first start has no error where nothing is wrong.
func quietStart(t *testing.T, s *server) {
	text, err := os.ReadFile(s.log)
	if err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []string{"didn't exit successfully previously", "manifest file is empty"} {
		if bytes.Contains(text, []byte(wrong)) {
			t.Errorf("the log says %q", wrong)
		}
	}
}

// TestIncompleteCommand shows that a command that needs another one below it says so.
func TestIncompleteCommand(t *testing.T) {
	for _, name := range []string{"snapshot", "token"} {
		cmd := exec.Command(program, name)
		var out, complaints bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &complaints
		err := cmd.Run()
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.ExitCode() != 2 || out.Len() > 0 ||
			!strings.Contains(complaints.String(), "Available Commands:") {
			t.Errorf("%s: %v: %s%s", name, err, &out, &complaints)
		}
	}
}
