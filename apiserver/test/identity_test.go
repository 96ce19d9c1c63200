//go:build cluster

package test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// everyRequest has who asked for what, and whether that was allowed.
const everyRequest = `
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- {level: Metadata}
`

// noHostPID is a policy of the form that many clusters have: it holds for all but administrators.
const noHostPID = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: no-host-pid}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - {apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}
  matchConditions:
  - {name: not-an-administrator, expression: "!('system:masters' in request.userInfo.groups)"}
  validations:
  - {expression: "!(has(object.spec.hostPID) && object.spec.hostPID)", message: "no pod may have hostPID"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: no-host-pid}
spec: {policyName: no-host-pid, validationActions: [Deny]}
`

// podsOf is a Deployment of one pod.
const podsOf = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: NAME, namespace: default}
spec:
  selector: {matchLabels: {app: NAME}}
  template:
    metadata: {labels: {app: NAME}}
    spec: {hostPID: VALUE, containers: [{name: c, image: "registry.example/image:1"}]}
`

// TestControllersActAsThemselves shows that a policy that exempts administrators holds for the pods
// that a user has a controller make, and that the audit log tells who made a pod and who bound it.
// No part of the control plane asks for what it has no right to.
func TestControllersActAsThemselves(t *testing.T) {
	folder := shortFolder(t)
	log := filepath.Join(folder, "audit.log")
	s := prepare(t, filepath.Join(folder, "data"), "--workloads", "--audit-log-path", log)
	s.args = append(s.args, "--audit-policy-file", s.write(t, "policy.yaml", everyRequest))
	s.start(t)
	s.eventually(t, "default", "get", "serviceaccount", "default", "-o", "jsonpath={.metadata.name}")
	s.kubectl(t, "create", "serviceaccount", "editor")
	s.kubectl(t, "create", "rolebinding", "editor", "--clusterrole=edit", "--serviceaccount=default:editor")
	s.apply(t, noHostPID)
	editor := "--as=system:serviceaccount:default:editor"
	s.await(t, "the policy is in force", func() error {
		pod := strings.Replace(strings.ReplaceAll(podManifest, "NAME", "own"), "spec:", "spec:\n  hostPID: true", 1)
		if out, err := s.as("admin", pod, editor, "create", "--dry-run=server", "-f", "-"); err == nil ||
			!strings.Contains(err.Error(), "no pod may have hostPID") {
			return fmt.Errorf("%w %s", err, out)
		}
		return nil
	})
	for name, pid := range map[string]string{"bad": "true", "good": "false"} {
		manifest := strings.NewReplacer("NAME", name, "VALUE", pid).Replace(podsOf)
		if _, err := s.as("admin", manifest, editor, "create", "-f", "-"); err != nil {
			t.Fatal(err)
		}
	}
	s.await(t, "the pod that may be is there", func() error {
		if out, err := s.as("admin", "", "get", "pods", "-l", "app=good", "-o", "name"); err != nil || out == "" {
			return fmt.Errorf("there is %q, %w", out, err)
		}
		return nil
	})
	s.await(t, "the Deployment says why it has no pod", func() error {
		out, err := s.as("admin", "", "get", "deployment", "bad", "-o",
			`jsonpath={.status.conditions[?(@.type=="ReplicaFailure")].message}`)
		pods, e := s.as("admin", "", "get", "pods", "-l", "app=bad", "-o", "name")
		if pods != "" {
			t.Fatalf("the editor has the pod %s", pods)
		}
		if err != nil || e != nil || !strings.Contains(out, "no pod may have hostPID") {
			return fmt.Errorf("it says %q, %w, %w", out, err, e)
		}
		return nil
	})
	register(t, s, nodeName)
	s.eventually(t, nodeName, "get", "pods", "-l", "app=good", "-o", "jsonpath={.items[*].spec.nodeName}")
	s.stop(t)

	makers, scheduled := map[string]int{}, false
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range audited(t, text) {
		who := r.who()
		if strings.HasSuffix(who, ":editor") {
			continue
		}
		ofPods := r.ObjectRef.Resource == "pods"
		if ofPods && r.Verb == "create" && r.ObjectRef.Subresource == "" {
			makers[who]++
		}
		scheduled = scheduled || who == "system:kube-scheduler" && ofPods && r.ObjectRef.Subresource == "binding"
		if r.User.Username == "system:apiserver" && r.Annotations["authorization.k8s.io/decision"] == "forbid" {
			t.Errorf("%s may not %s %s: %s", who, r.Verb, r.RequestURI, r.ResponseStatus.Message)
		}
	}
	if maker := "system:serviceaccount:kube-system:replicaset-controller"; len(makers) != 1 || makers[maker] < 2 {
		t.Errorf("those who made pods are %v, want only %s", makers, maker)
	}
	if !scheduled {
		t.Error("the pod is not bound by system:kube-scheduler")
	}
}
