package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/pem"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// tokenTooEarly and podReplaced are NodeRestriction's messages about a token for a pod, and
	// about a pod's status, if the pod is not on the node as far as it knows.
	tokenTooEarly = "token bound to a pod scheduled on a different node"
	podReplaced   = "can only update pod status for pods with spec.nodeName set to itself"
	// namespaceEnds is the API server's message about objects made in a namespace that is being
	// deleted, such as the events of its last pods.
	namespaceEnds = "because it is being terminated"
)

// truth is what the audit log and the test know. A message alone does not prove a node right.
type truth struct {
	// nodes has the node of each pod that is or was on one.
	nodes map[types.UID]string
	// pods has what is known of each pod's start and end.
	pods map[types.UID]*podTruth
	// ended are the namespaces that were deleted.
	ended map[string]bool
	// starts are the starts of the API server.
	starts []start
}

// podTruth is what is known of a pod.
type podTruth struct {
	namespace, name string
	volumes         []corev1.Volume
	// isGone says that its node has confirmed its end.
	isGone bool
}

// start is a start of the API server: from its process's start until it has reported that it is
// ready.
type start struct{ began, ready time.Time }

// newTruth reads a record. A pod is on a node if it was made for the node or bound to it, or if the
// API server has accepted its status from the node.
func newTruth(record []asked, starts []start) truth {
	out := truth{
		nodes: map[types.UID]string{}, pods: map[types.UID]*podTruth{}, ended: map[string]bool{}, starts: starts,
	}
	for _, r := range record {
		if r.ResponseStatus.Code/100 != 2 {
			continue
		}
		switch r.Verb + " " + r.ObjectRef.Resource + "/" + r.ObjectRef.Subresource {
		case "create pods/":
			pod := r.ResponseObject
			out.pods[pod.Metadata.UID] = &podTruth{
				namespace: r.ObjectRef.Namespace, name: pod.Metadata.Name, volumes: pod.Spec.Volumes,
			}
			if node := pod.Spec.NodeName; node != "" {
				out.nodes[pod.Metadata.UID] = node
			}
		case "create pods/binding":
			out.nodes[r.RequestObject.Metadata.UID] = r.RequestObject.Target.Name
		case "patch pods/status":
			if node, ok := strings.CutPrefix(r.User.Username, nodeUser); ok {
				out.nodes[r.RequestObject.Metadata.UID] = node
			}
		case "delete pods/":
			for uid, p := range out.pods {
				if p.namespace == r.ObjectRef.Namespace && p.name == r.ObjectRef.Name &&
					r.User.Username == nodeUser+out.nodes[uid] {
					p.isGone = true
				}
			}
		case "delete namespaces/":
			out.ended[r.ObjectRef.Name] = true
		}
	}
	return out
}

// endsEarly reports whether the Node authorizer refused, as too early, what a pod of the node
// needs, and the node could not ask for again: the pod is gone, or its namespace was deleted. The
// authorizer does not record for which pod a token would have been.
func (t truth) endsEarly(r asked) bool {
	for uid, p := range t.pods {
		if r.User.Username == nodeUser+t.nodes[uid] && p.namespace == r.ObjectRef.Namespace && p.needs(r) &&
			(p.isGone || t.ended[p.namespace]) {
			return true
		}
	}
	return false
}

// needs reports whether a request is for what the pod needs: what each pod has, or one of its
// volumes.
func (p *podTruth) needs(r asked) bool {
	to := r.ObjectRef
	if to.Resource == "serviceaccounts" && to.Subresource == "token" ||
		to.Resource == "configmaps" && to.Name == "kube-root-ca.crt" {
		return true
	}
	return slices.ContainsFunc(p.volumes, func(v corev1.Volume) bool {
		switch {
		case v.PersistentVolumeClaim != nil:
			return to.Resource == "persistentvolumeclaims" && to.Name == v.PersistentVolumeClaim.ClaimName
		case v.Secret != nil:
			return to.Resource == "secrets" && to.Name == v.Secret.SecretName
		case v.ConfigMap != nil:
			return to.Resource == "configmaps" && to.Name == v.ConfigMap.Name
		default:
			return false
		}
	})
}

// proves reports whether the node was right to send a request that was refused:
//
//   - It asked an API server that was starting, and had not read its roles, whether it is ready.
//   - It asked for a token for a pod that is on the node. NodeRestriction learns that a moment
//     later than the node, and the pod may be gone before the token is asked for again.
//   - It reported the status of a pod that was on the node and is gone, while another pod of the
//     same name waits for a node, as in a StatefulSet. NodeRestriction looks up the name alone.
//   - It reported the end of pods in a namespace that was deleted.
func (t truth) proves(r asked) bool {
	says := func(message string) bool { return strings.Contains(r.ResponseStatus.Message, message) }
	isOn := func(uid types.UID) bool {
		node, known := t.nodes[uid]
		return known && uid != "" && r.User.Username == nodeUser+node
	}
	switch {
	case r.RequestURI == "/readyz":
		return slices.ContainsFunc(t.starts, func(s start) bool {
			return !r.RequestReceivedTimestamp.Before(s.began) && r.RequestReceivedTimestamp.Before(s.ready)
		})
	case says(tokenTooEarly):
		return isOn(r.RequestObject.Spec.BoundObjectRef.UID)
	case says(podReplaced):
		return isOn(r.RequestObject.Metadata.UID)
	default:
		return says(namespaceEnds) && t.ended[r.ObjectRef.Namespace]
	}
}

// credentialID is where the API server records with which credential a request came.
const credentialID = "authentication.kubernetes.io/credential-id"

// with recognises the requests with a client certificate, of which it gets the file.
func with(t testing.TB, certificate string) func(asked) bool {
	t.Helper()
	text, err := os.ReadFile(certificate)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		t.Fatalf("%s is no certificate", certificate)
	}
	sum := sha256.Sum256(block.Bytes)
	id := "X509SHA256=" + hex.EncodeToString(sum[:])
	return func(r asked) bool { return slices.Contains(r.User.Extra[credentialID], id) }
}

// from recognises the requests that come from an address.
func from(address string) func(asked) bool {
	return func(r asked) bool { return slices.Equal(r.SourceIPs, []string{address}) }
}
