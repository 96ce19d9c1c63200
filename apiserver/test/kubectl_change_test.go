//go:build cluster

package test

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
)

// asExit says whether kubectl ran and ended with an exit code.
func asExit(err error, exit **exec.ExitError) bool { return errors.As(err, exit) }

func edits(t *testing.T, s *server) {
	s.kubectl(t, "create", "configmap", "edited", "--from-literal=k=before")
	t.Setenv("KUBE_EDITOR", "sed -i s/before/after/")
	s.kubectl(t, "edit", "configmap", "edited")
	if out := s.kubectl(t, "get", "configmap", "edited", "-o", "jsonpath={.data.k}"); out != "after" {
		t.Errorf("the value is %q", out)
	}
	t.Setenv("KUBE_EDITOR", "true")
	s.kubectl(t, "edit", "configmap", "edited")
	if out := s.kubectl(t, "get", "configmap", "edited", "-o", "jsonpath={.data.k}"); out != "after" {
		t.Errorf("after nothing was changed, the value is %q", out)
	}
}

func patches(t *testing.T, s *server) {
	s.apply(t, strings.ReplaceAll(podManifest, "NAME", "patched"))
	for _, c := range []struct{ kind, patch, read, want string }{
		{
			"json", `[{"op":"replace","path":"/spec/containers/0/image","value":"registry.example/image:2"}]`,
			"{.spec.containers[*].image}", "registry.example/image:2",
		},
		{
			"strategic", `{"spec":{"containers":[{"name":"c","image":"registry.example/image:3"}]}}`,
			"{.spec.containers[*].image}", "registry.example/image:3",
		},
		{"merge", `{"metadata":{"labels":{"a":"b"}}}`, "{.metadata.labels.a}", "b"},
		{"merge", `{"metadata":{"labels":null}}`, "{.metadata.labels}", ""},
	} {
		s.kubectl(t, "patch", "pod", "patched", "--type", c.kind, "-p", c.patch)
		if out := s.kubectl(t, "get", "pod", "patched", "-o", "jsonpath="+c.read); out != c.want {
			t.Errorf("after a %s patch there is %q, want %q", c.kind, out, c.want)
		}
	}
	s.refuses(t, "Forbidden: pod updates may not change fields", "", "patch", "pod", "patched", "-p",
		`{"spec":{"containers":[{"name":"c","command":["sh"]}]}}`)
	s.refuses(t, "the object has been modified", "", "patch", "pod", "patched", "-p",
		`{"metadata":{"resourceVersion":"1","labels":{"a":"b"}}}`)
	s.kubectl(t, "patch", "pod", "patched", "--subresource=status", "--type=merge", "-p", `{"status":{"phase":"Running"}}`)
	if out := s.kubectl(t, "get", "pod", "patched", "-o", "jsonpath={.status.phase}"); out != "Running" {
		t.Errorf("the phase is %q", out)
	}
	s.kubectl(t, "delete", "pod", "patched", "--force")
}

func labels(t *testing.T, s *server) {
	s.kubectl(t, "create", "configmap", "labelled")
	s.kubectl(t, "label", "configmap", "labelled", "a=1")
	s.refuses(t, "already has a value", "", "label", "configmap", "labelled", "a=2")
	s.kubectl(t, "label", "configmap", "labelled", "a=2", "--overwrite")
	s.kubectl(t, "annotate", "configmap", "labelled", "note=x")
	const read = "jsonpath={.metadata.labels.a} {.metadata.annotations.note}"
	if out := s.kubectl(t, "get", "configmap", "labelled", "-o", read); out != "2 x" {
		t.Errorf("label and annotation are %q", out)
	}
	s.kubectl(t, "label", "configmap", "labelled", "a-")
	if out := s.kubectl(t, "get", "configmap", "labelled", "-o", read); out != "x" {
		t.Errorf("without the label: %q", out)
	}
}

func replaces(t *testing.T, s *server) {
	pod := strings.ReplaceAll(podManifest, "NAME", "replaced")
	s.apply(t, pod)
	old := s.kubectl(t, "get", "pod", "replaced", "-o", "jsonpath={.metadata.uid}")
	s.kubectl(t, "set", "image", "pod/replaced", "c=registry.example/image:2")
	if out := s.kubectl(t, "get", "pod", "replaced", "-o", "jsonpath={.spec.containers[0].image}"); out !=
		"registry.example/image:2" {
		t.Errorf("set image: %q", out)
	}
	if _, err := s.as("admin", pod, "replace", "--force", "-f", "-"); err != nil {
		t.Error(err)
	}
	if fresh := s.kubectl(t, "get", "pod", "replaced", "-o", "jsonpath={.metadata.uid}"); fresh == old || fresh == "" {
		t.Errorf("the pod that was replaced by force has the same uid %q", fresh)
	}
	s.kubectl(t, "delete", "pod", "replaced", "--force")
	s.refuses(t, "NotFound", pod, "replace", "-f", "-")
}

// deletesWithGrace deletes a pod that has a node. The pod stays until its node says that it has
// ended, which is a forced deletion here.
func deletesWithGrace(t *testing.T, s *server) {
	register(t, s, "graceful")
	defer s.kubectl(t, "delete", "node", "graceful")
	s.apply(t, strings.ReplaceAll(podManifest, "NAME", "graced")+"  nodeName: graceful\n")
	s.kubectl(t, "delete", "pod", "graced", "--grace-period=17", "--wait=false")
	const read = "jsonpath={.metadata.deletionGracePeriodSeconds} {.metadata.deletionTimestamp}"
	out := s.kubectl(t, "get", "pod", "graced", "-o", read)
	if !strings.HasPrefix(out, "17 20") {
		t.Errorf("the grace period and its end are %q", out)
	}
	s.kubectl(t, "delete", "pod", "graced", "--grace-period=5", "--wait=false")
	if out := s.kubectl(t, "get", "pod", "graced", "-o", read); !strings.HasPrefix(out, "5 20") {
		t.Errorf("a shorter grace period is %q", out)
	}
	s.kubectl(t, "delete", "pod", "graced", "--grace-period=0", "--force")
	s.eventually(t, "", "get", "pod", "graced", "--ignore-not-found")
	s.kubectl(t, "create", "configmap", "one-of-two")
	s.kubectl(t, "create", "configmap", "two-of-two")
	s.kubectl(t, "label", "configmap", "one-of-two", "two-of-two", "deleted=together")
	s.kubectl(t, "delete", "configmaps", "-l", "deleted=together")
	if out := s.kubectl(t, "get", "configmaps", "-l", "deleted=together", "-o", "name"); out != "" {
		t.Errorf("left: %s", out)
	}
}

func waits(t *testing.T, s *server) {
	s.kubectl(t, "create", "configmap", "awaited")
	ended := make(chan error, 1)
	go func() {
		_, err := s.as("admin", "", "wait", "configmap/awaited", "--for=jsonpath={.data.k}=there", "--timeout=180s")
		ended <- err
	}()
	s.kubectl(t, "patch", "configmap", "awaited", "-p", `{"data":{"k":"there"}}`)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	go func() {
		_, err := s.as("admin", "", "wait", "configmap/awaited", "--for=delete", "--timeout=180s")
		ended <- err
	}()
	s.kubectl(t, "delete", "configmap", "awaited")
	if err := <-ended; err != nil {
		t.Error(err)
	}
	s.refuses(t, "timed out waiting", "", "wait", "namespace/default", "--for=condition=Never", "--timeout=1s")
}

func explains(t *testing.T, s *server) {
	s.prints(t, []string{"KIND:       Pod", "FIELDS:", "containers", "-required-"}, "explain", "pod.spec")
	s.prints(t, []string{"livenessProbe", "httpGet"}, "explain", "pod.spec.containers", "--recursive")
	s.refuses(t, `field "nothing" does not exist`, "", "explain", "pod.nothing")
}

func asksForRights(t *testing.T, s *server) {
	if out := s.kubectl(t, "auth", "can-i", "delete", "nodes"); out != "yes" {
		t.Errorf("the administrator may delete nodes: %q", out)
	}
	out, err := s.as("admin", "", "auth", "can-i", "get", "secrets", "--as", "system:serviceaccount:default:default")
	if err == nil || out != "no\n" {
		t.Errorf("a ServiceAccount may read Secrets: %q, %v", out, err)
	}
	s.prints(t, []string{"selfsubjectreviews.authentication.k8s.io", "[create]"}, "auth", "can-i", "--list", "--as", "u",
		"--as-group", "system:authenticated")
	s.prints(t, []string{"kubernetes-admin", "system:masters"}, "auth", "whoami")
	s.prints(t, []string{"role.rbac.authorization.k8s.io/default reconciled"}, "auth", "reconcile", "-f",
		s.write(t, "role.yaml", "{apiVersion: rbac.authorization.k8s.io/v1, kind: Role, metadata: {name: default, "+
			"namespace: default}, rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]}"))
}

func listsResources(t *testing.T, s *server) {
	s.prints(t, []string{
		"pods ", "po ", "nodes ", "leases ", "coordination.k8s.io/v1", "resourceclaims",
		"poddisruptionbudgets", "validatingadmissionpolicies", "true", "false",
	}, "api-resources")
	s.prints(t, []string{"v1", "rbac.authorization.k8s.io/v1", "resource.k8s.io/v1"}, "api-versions")
	s.prints(t, []string{"Server Version: v1.36."}, "version")
	s.prints(t, []string{"Kubernetes control plane"}, "cluster-info")
}

func drains(t *testing.T, s *server) {
	register(t, s, "drained")
	defer s.kubectl(t, "delete", "node", "drained")
	const unschedulable = "jsonpath={.spec.unschedulable} " +
		`{.spec.taints[?(@.key=="node.kubernetes.io/unschedulable")].effect}`
	s.kubectl(t, "cordon", "drained")
	s.eventually(t, "true NoSchedule", "get", "node", "drained", "-o", unschedulable)
	s.apply(t, strings.ReplaceAll(podManifest, "NAME", "refused"))
	s.await(t, "the pod is refused by the node", func() error {
		out, err := s.as("admin", "", "events", "--for", "pod/refused")
		if err == nil && !strings.Contains(out, "0/1 nodes are available: 1 node(s) were unschedulable") {
			err = fmt.Errorf("the events are\n%s", out)
		}
		return err
	})
	s.kubectl(t, "uncordon", "drained")
	s.eventually(t, "drained", "get", "pod", "refused", "-o", "jsonpath={.spec.nodeName}")
	s.refuses(t, "cannot delete Pods that declare no controller", "", "drain", "drained")
	// Nobody ends the evicted pod: its node has no agent.
	s.kubectl(t, "drain", "drained", "--force", "--disable-eviction", "--grace-period=0", "--timeout=180s")
	s.eventually(t, "", "get", "pod", "refused", "--ignore-not-found")
}

func taints(t *testing.T, s *server) {
	register(t, s, "tainted")
	defer s.kubectl(t, "delete", "node", "tainted")
	const read = `jsonpath={.spec.taints[?(@.key=="k")].effect}`
	s.kubectl(t, "taint", "node", "tainted", "k=v:NoSchedule")
	if out := s.kubectl(t, "get", "node", "tainted", "-o", read); out != "NoSchedule" {
		t.Errorf("the taint is %q", out)
	}
	s.kubectl(t, "taint", "node", "tainted", "k-")
	if out := s.kubectl(t, "get", "node", "tainted", "-o", read); out != "" {
		t.Errorf("the taint is %q", out)
	}
}
