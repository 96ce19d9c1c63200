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

// auditPolicy has the API server write down what nodes ask.
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
	// objectTooEarly is what the Node authorizer says, and tokenTooEarly what NodeRestriction says, of a pod that they do not know to be on the node yet.
	objectTooEarly = "no relationship found between node"
	tokenTooEarly  = "token bound to a pod scheduled on a different node"
	// podReplaced is what NodeRestriction says of the status of a pod that is not on the node.
	podReplaced = "can only update pod status for pods with spec.nodeName set to itself"
	// namespaceEnds is what the API server says of what is made in a namespace that is being deleted: events of its last pods.
	namespaceEnds = "because it is being terminated"
)

// wish is what a request is about, the same for one that is made again: reading begins anew with a list where a watch was refused, at another revision.
func (r asked) wish() string {
	to, err := url.Parse(r.RequestURI)
	if err != nil || !slices.Contains([]string{"get", "list", "watch"}, r.Verb) {
		return r.Verb + " " + r.RequestURI
	}
	return "read " + to.Path + " " + to.Query().Get("fieldSelector")
}

// nodeRequests returns what nodes have asked so far; a line under way is left out.
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

// checkRefusals fails a test in which the API server has refused a request of the node, or could make nothing of it, and one in which the node has asked for what the
// ClusterRole of kubelets does not have: a node asks for nothing that it may not have, and a cluster need not allow it more than a kubelet.
// The Node authorizer and NodeRestriction hear of a pod's node a moment later than that node, whoever its agent is: what was refused for that and granted when it
// was asked again does not count. Of a token that need not be seen, since the pod may be gone before it is asked for again. Nor does it count to ask an API server that
// starts, and has no roles yet, whether it is ready, or to tell of the end of pods whose namespace ends; nor to tell the status of a pod that was the node's, and is gone,
// while another of its name waits for a node, as one of a StatefulSet does: NodeRestriction sees the name first, and nobody the UID that the patch is for.
// What a kubelet asks that was the node's agent for a while is not looked at.
func (c *Cluster) checkRefusals(t testing.TB) {
	t.Helper()
	early, told := map[string]asked{}, map[string]bool{}
	requests := slices.DeleteFunc(c.nodeRequests(t), func(r asked) bool { return strings.HasPrefix(r.UserAgent, "kubelet/") })
	for _, r := range requests {
		key := r.Verb + " " + r.RequestURI
		if !mayKubelet(c.nodeRules, r) {
			t.Errorf("the node asked for more than a kubelet may: %s", key)
		}
		switch code := r.ResponseStatus.Code; {
		case code == http.StatusForbidden && (r.RequestURI == "/readyz" || strings.Contains(r.ResponseStatus.Message, tokenTooEarly)):
		case code == http.StatusForbidden && strings.Contains(r.ResponseStatus.Message, namespaceEnds):
		case code == http.StatusForbidden && strings.Contains(r.ResponseStatus.Message, podReplaced) && told[key]:
		case code == http.StatusForbidden && strings.Contains(r.ResponseStatus.Message, objectTooEarly):
			early[r.wish()] = r
		case code == http.StatusUnauthorized, code == http.StatusForbidden, code == http.StatusBadRequest, code == http.StatusUnprocessableEntity:
			t.Errorf("the API server refused the node: %s: %d %s", key, code, r.ResponseStatus.Message)
		case code/100 == 2:
			delete(early, r.wish())
			told[key] = true
		}
	}
	for key, r := range early {
		t.Errorf("the API server refused the node: %s: %s", key, r.ResponseStatus.Message)
	}
	if len(requests) == 0 {
		t.Error("the audit log has no request of the node")
	}
}
