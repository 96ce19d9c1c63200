package cluster

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// auditPolicy makes the API server record what nodes ask.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - {level: Metadata, userGroups: ["system:nodes"]}
  - {level: None}
`

func (c *Cluster) auditPolicy() string { return filepath.Join(c.Folder, "audit.yaml") }
func (c *Cluster) auditLog() string    { return filepath.Join(c.Folder, "audit.log") }

// asked is a request in the API server's audit log.
type asked struct {
	Verb, RequestURI string
	UserAgent        string
	ObjectRef        struct{ Resource, Subresource, APIGroup string }
	ResponseStatus   struct {
		Code    int
		Message string
	}
}

const (
	// objectTooEarly is the Node authorizer's message, and tokenTooEarly NodeRestriction's, about a
	// pod if they do not know yet that it is on the node.
	objectTooEarly = "no relationship found between node"
	tokenTooEarly  = "token bound to a pod scheduled on a different node"
	// podReplaced is NodeRestriction's message about the status of a pod that is not on the node.
	podReplaced = "can only update pod status for pods with spec.nodeName set to itself"
	// namespaceEnds is the API server's message about objects made in a namespace that is being
	// deleted, such as the events of its last pods.
	namespaceEnds = "because it is being terminated"
)

// wish returns what a request is about. It is the same for a repetition of the request: after a
// refused watch, reading starts again with a list, at another revision.
func (r asked) wish() string {
	to, err := url.Parse(r.RequestURI)
	if err != nil || !slices.Contains([]string{"get", "list", "watch"}, r.Verb) {
		return r.Verb + " " + r.RequestURI
	}
	return "read " + to.Path + " " + to.Query().Get("fieldSelector")
}

// nodeRequests returns what nodes have asked so far. It leaves out an unfinished line.
func (c *Cluster) nodeRequests(t testing.TB) []asked {
	t.Helper()
	text, err := os.ReadFile(c.auditLog())
	if err != nil {
		t.Errorf("read the audit log: %v", err)
		return nil
	}
	var out []asked
	for line := range bytes.Lines(text) {
		var r asked
		if json.Unmarshal(line, &r) == nil {
			out = append(out, r)
		}
	}
	return out
}

// checkRefusals fails the test if the API server has refused a request of the node, or did not
// understand one. It also fails if the node has asked for something that the ClusterRole of
// kubelets does not have: a cluster need not give a node more rights than a kubelet has.
//
// Some refusals do not count:
//
//   - The Node authorizer and NodeRestriction learn a pod's node a moment later than that node, for
//     every agent. A request that was refused for that and granted later does not count. For a
//     token no later request is needed, because the pod may be gone before the token is asked for
//     again.
//   - The node asks an API server that starts, and has no roles yet, whether it is ready.
//   - The node reports the end of pods whose namespace is being deleted.
//   - The node reports the status of a pod that was the node's and is gone, while another pod of
//     the same name waits for a node, as in a StatefulSet. NodeRestriction looks up the name, and
//     the request has no UID that it sees.
//
// Requests of a kubelet that was the node's agent for a while are not checked, and neither are
// those that a test sends with kubectl and the node's certificate.
func (c *Cluster) checkRefusals(t testing.TB) {
	t.Helper()
	early, reported := map[string]asked{}, map[string]bool{}
	requests := slices.DeleteFunc(c.nodeRequests(t),
		func(r asked) bool {
			return strings.HasPrefix(r.UserAgent, "kubelet/") || strings.HasPrefix(r.UserAgent, "kubectl/")
		})
	for _, r := range requests {
		key := r.Verb + " " + r.RequestURI
		if !mayKubelet(c.nodeRules, r) {
			t.Errorf("the node asked for more than a kubelet may: %s", key)
		}
		switch code := r.ResponseStatus.Code; {
		case code == http.StatusForbidden &&
			(r.RequestURI == "/readyz" || strings.Contains(r.ResponseStatus.Message, tokenTooEarly)):
		case code == http.StatusForbidden && strings.Contains(r.ResponseStatus.Message, namespaceEnds):
		case code == http.StatusForbidden && strings.Contains(r.ResponseStatus.Message, podReplaced) && reported[key]:
		case code == http.StatusForbidden && strings.Contains(r.ResponseStatus.Message, objectTooEarly):
			early[r.wish()] = r
		case code == http.StatusUnauthorized, code == http.StatusForbidden, code == http.StatusBadRequest,
			code == http.StatusUnprocessableEntity:
			t.Errorf("the API server refused the node: %s: %d %s", key, code, r.ResponseStatus.Message)
		case code/100 == 2:
			delete(early, r.wish())
			reported[key] = true
		}
	}
	for key, r := range early {
		t.Errorf("the API server refused the node: %s: %s", key, r.ResponseStatus.Message)
	}
	if len(requests) == 0 {
		t.Error("the audit log has no request of the node")
	}
}
