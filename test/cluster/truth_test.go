package cluster

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestRefusals checks which refusals of a node's requests the audit log explains. A message that
// explains one explains no other.
func TestRefusals(t *testing.T) {
	const mine, others = types.UID("mine"), types.UID("others")
	began := time.Now()
	c := &Cluster{
		nodeRules: []rbacv1.PolicyRule{{
			Verbs: []string{"create", "patch", "get", "list", "delete"}, APIGroups: []string{""},
			Resources: []string{
				"pods", "pods/status", "serviceaccounts/token", "events", "secrets", "configmaps", "persistentvolumeclaims",
			},
		}},
		starts:       []start{{began: began, ready: began.Add(time.Second)}},
		notTheAgents: []func(asked) bool{from("192.0.2.1")},
	}
	to := func(verb, resource, subresource string, code int, message string, more func(*asked)) asked {
		r := asked{Verb: verb, RequestURI: "/" + resource + "/" + subresource}
		r.ObjectRef.Resource, r.ObjectRef.Subresource, r.ObjectRef.Namespace = resource, subresource, "default"
		r.ResponseStatus.Code, r.ResponseStatus.Message = code, message
		r.User.Username, r.User.Groups = nodeUser+"node", []string{nodeGroup}
		if more != nil {
			more(&r)
		}
		return r
	}
	byOthers := func(r *asked) { r.User.Username, r.User.Groups = "system:kube-scheduler", nil }
	bind := func(uid types.UID, node string) asked {
		return to("create", "pods", "binding", 201, "", func(r *asked) {
			byOthers(r)
			r.RequestObject.Metadata.UID, r.RequestObject.Target.Name = uid, node
		})
	}
	ready := func(after time.Duration) asked {
		return to("get", "", "", 403, "", func(r *asked) {
			r.RequestURI, r.RequestReceivedTimestamp = "/readyz", began.Add(after)
		})
	}
	token := func(uid types.UID) asked {
		return to("create", "serviceaccounts", "token", 403, tokenTooEarly,
			func(r *asked) { r.RequestObject.Spec.BoundObjectRef.UID = uid })
	}
	status := func(uid types.UID, code int) asked {
		return to("patch", "pods", "status", code, podReplaced, func(r *asked) { r.RequestObject.Metadata.UID = uid })
	}
	event := to("create", "events", "", 403, namespaceEnds, nil)
	end := to("delete", "namespaces", "", 200, "", func(r *asked) { byOthers(r); r.ObjectRef.Name = "default" })
	made := func(uid types.UID) asked { // with a claim
		return to("create", "pods", "", 201, "", func(r *asked) {
			byOthers(r)
			r.ResponseObject.Metadata.UID, r.ResponseObject.Metadata.Name = uid, string(uid)
			r.ResponseObject.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "claim"},
			}}}
		})
	}
	gone := to("delete", "pods", "", 200, "", func(r *asked) { r.ObjectRef.Name = string(mine) })
	claim := func(name string) asked {
		return to("get", "persistentvolumeclaims", "", 403, objectTooEarly, func(r *asked) { r.ObjectRef.Name = name })
	}
	early := to("create", "serviceaccounts", "token", 403, objectTooEarly, nil)
	bundle := to("list", "configmaps", "", 403, objectTooEarly, func(r *asked) { r.ObjectRef.Name = "kube-root-ca.crt" })
	secret := func(code int) asked { return to("get", "secrets", "", code, objectTooEarly, nil) }
	pod := func(from string) asked {
		return to("get", "pods", "", 403, "forbidden", func(r *asked) { r.SourceIPs = []string{from} })
	}
	for name, tc := range map[string]struct {
		record []asked
		faults int
	}{
		"readiness while it starts":         {[]asked{ready(time.Millisecond)}, 0},
		"readiness later":                   {[]asked{ready(time.Minute)}, 1},
		"a token of a pod of the node":      {[]asked{bind(mine, "node"), token(mine)}, 0},
		"a token of a pod elsewhere":        {[]asked{bind(mine, "node"), bind(others, "other"), token(others)}, 1},
		"a token of no pod":                 {[]asked{bind(mine, "node"), token("")}, 1},
		"a status of a pod of the node":     {[]asked{status(mine, 200), status(mine, 403)}, 0},
		"a status of its successor":         {[]asked{status(mine, 200), status(others, 403)}, 1},
		"an event where all ends":           {[]asked{end, event}, 0},
		"an event where nothing ends":       {[]asked{event}, 1},
		"a secret that is granted later":    {[]asked{secret(403), secret(200)}, 0},
		"a secret that is never granted":    {[]asked{secret(200), secret(403)}, 1},
		"a token that comes too late":       {[]asked{made(mine), bind(mine, "node"), early, end}, 0},
		"certificates that come too late":   {[]asked{made(mine), bind(mine, "node"), bundle, end}, 0},
		"a claim of a pod that is gone":     {[]asked{made(mine), bind(mine, "node"), claim("claim"), gone}, 0},
		"a claim of a pod that is there":    {[]asked{made(mine), bind(mine, "node"), claim("claim")}, 1},
		"a claim of no pod":                 {[]asked{made(mine), bind(mine, "node"), claim("other"), gone}, 1},
		"a claim of a pod elsewhere":        {[]asked{made(mine), bind(mine, "other"), claim("claim"), end}, 1},
		"a token that never comes":          {[]asked{made(mine), bind(mine, "node"), early}, 1},
		"a token where the node has no pod": {[]asked{made(others), bind(others, "other"), early, end}, 1},
		"a secret where all ends":           {[]asked{made(mine), bind(mine, "node"), secret(403), end}, 1},
		"a pod, asked for by a thief":       {[]asked{pod("192.0.2.1")}, 0},
		"a pod, asked for by the agent":     {[]asked{pod("127.0.0.1")}, 1},
		"what a kubelet does not ask for":   {[]asked{to("watch", "events", "", 200, "", nil)}, 1},
		"what the API server cannot grasp":  {[]asked{to("create", "events", "", 422, "", nil)}, 1},
	} {
		if _, faults, _ := c.refusals(tc.record); len(faults) != tc.faults {
			t.Errorf("%s: %d faults, want %d: %s", name, len(faults), tc.faults, strings.Join(faults, "; "))
		}
	}
}
