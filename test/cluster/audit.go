package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// auditPolicy makes the API server record what nodes ask. For [truth] it also records which pods
// are bound to a node, about which pods a node asks, and which namespaces are deleted.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - {level: RequestResponse, verbs: [create], resources: [{resources: [pods, pods/binding]}]}
  - {level: Request, userGroups: ["system:nodes"], resources: [{resources: [pods/status, serviceaccounts/token]}]}
  - {level: Metadata, userGroups: ["system:nodes"]}
  - {level: Metadata, verbs: [delete], resources: [{resources: [namespaces]}]}
  - {level: None}
`

func (c *Cluster) auditPolicy() string { return filepath.Join(c.Folder, "audit.yaml") }
func (c *Cluster) auditLog() string    { return filepath.Join(c.Folder, "audit.log") }

// asked is a request in the API server's audit log.
type asked struct {
	Verb, RequestURI         string
	SourceIPs                []string
	RequestReceivedTimestamp time.Time
	User                     struct {
		Username string
		Groups   []string
		Extra    map[string][]string
	}
	ObjectRef struct {
		Resource, Subresource, APIGroup, Namespace, Name string
	}
	ResponseStatus struct {
		Code    int
		Message string
	}
	RequestObject, ResponseObject auditedObject
}

// auditedObject has what some requests and answers tell about a pod.
type auditedObject struct {
	Metadata struct {
		UID  types.UID
		Name string
	}
	// Target is where a binding puts a pod.
	Target struct{ Name string }
	Spec   struct {
		NodeName string
		Volumes  []corev1.Volume
		// BoundObjectRef is for which pod a token is.
		BoundObjectRef struct{ UID types.UID }
	}
}

// objectTooEarly is the Node authorizer's message about an object if it does not know yet that a
// pod of the node uses the object.
const objectTooEarly = "no relationship found between node"

// byNode reports whether a node has sent a request.
func (r asked) byNode() bool { return slices.Contains(r.User.Groups, nodeGroup) }

// String returns the request and its answer, for messages.
func (r asked) String() string {
	return fmt.Sprintf("%s %s: %d %s", r.Verb, r.RequestURI, r.ResponseStatus.Code, r.ResponseStatus.Message)
}

// wish returns what a request is about. It is the same for a repetition of the request: after a
// refused watch, reading starts again with a list, at another revision.
func (r asked) wish() string {
	to, err := url.Parse(r.RequestURI)
	if err != nil || !slices.Contains([]string{"get", "list", "watch"}, r.Verb) {
		return r.Verb + " " + r.RequestURI
	}
	return "read " + to.Path + " " + to.Query().Get("fieldSelector")
}

// recorded returns the API server's audit log so far. It leaves out an unfinished line.
func (c *Cluster) recorded(t testing.TB) []asked {
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

// nodeRequests returns what nodes have asked so far.
func (c *Cluster) nodeRequests(t testing.TB) []asked {
	t.Helper()
	return slices.DeleteFunc(c.recorded(t), func(r asked) bool { return !r.byNode() })
}

// checkRefusals fails the test if the API server has refused a request of the node, or did not
// understand one. It also fails if the node has asked for something that the ClusterRole of
// kubelets does not have: a cluster need not give a node more rights than a kubelet has.
//
// A refusal counts unless the API server's own record proves that the node was right, see
// [truth.proves]. An object that was refused and granted later was refused because the Node
// authorizer learns a pod's node a moment later than that node, for every agent. So was what the
// node could not ask for again, see [truth.endsEarly].
//
// Requests of [Cluster.notTheAgents] are not checked.
func (c *Cluster) checkRefusals(t testing.TB) {
	t.Helper()
	n, faults, excused := c.refusals(c.recorded(t))
	for _, fault := range faults {
		t.Error(fault)
	}
	for _, r := range excused {
		t.Logf("the API server refused the node, which was right: %s", r)
	}
	if n == 0 {
		t.Error("the audit log has no request of the node")
	}
}

// refusals returns the number of the node's requests in a record, what is wrong with them, and the
// requests that were refused although the node was right.
func (c *Cluster) refusals(record []asked) (n int, faults, excused []string) {
	truth, early := newTruth(record, c.starts), map[string]asked{}
	for _, r := range record {
		if !r.byNode() || slices.ContainsFunc(c.notTheAgents, func(is func(asked) bool) bool { return is(r) }) {
			continue
		}
		n++
		if !mayKubelet(c.nodeRules, r) {
			faults = append(faults, "the node asked for more than a kubelet may: "+r.String())
		}
		switch code := r.ResponseStatus.Code; {
		case code == http.StatusForbidden && truth.proves(r):
			excused = append(excused, r.String())
		case code == http.StatusForbidden && strings.Contains(r.ResponseStatus.Message, objectTooEarly):
			early[r.wish()] = r
		case code == http.StatusUnauthorized, code == http.StatusForbidden, code == http.StatusBadRequest,
			code == http.StatusUnprocessableEntity:
			faults = append(faults, "the API server refused the node: "+r.String())
		case code/100 == 2:
			delete(early, r.wish())
		}
	}
	for _, r := range early {
		if truth.endsEarly(r) {
			excused = append(excused, r.String())
			continue
		}
		faults = append(faults, "the API server refused the node, and granted it never: "+r.String())
	}
	return n, faults, excused
}
