package auth

import (
	"net/http"
	"slices"
	"strings"
)

// Attributes are what a request needs on the node's object: a verb and a subresource, as in RBAC.
type Attributes struct {
	Verb, Subresource string
}

// The subresources of a node.
const (
	subProxy      = "proxy"
	subPods       = "pods"
	subHealthz    = "healthz"
	subConfigz    = "configz"
	subStats      = "stats"
	subMetrics    = "metrics"
	subLog        = "log"
	subCheckpoint = "checkpoint"
	subStatusz    = "statusz"
)

// AttributesOf returns the attributes of a request, the narrowest first. A user needs only one of
// them. The path must be one that has a handler. Paths without a subresource of their own are
// "proxy". The table is that of Kubernetes 1.36 (KEP-2862).
func AttributesOf(method, path string) []Attributes {
	root := firstSegment(path)
	verb := verbOf(method)
	if slices.Contains([]string{"exec", "attach", "portForward", "run"}, root) {
		verb = "create"
	}
	var out []Attributes
	for _, sub := range subresources(root) {
		out = append(out, Attributes{Verb: verb, Subresource: sub})
	}
	return out
}

// subresources returns the subresources for the paths below a first segment.
func subresources(root string) []string {
	switch root {
	case "pods", "runningpods":
		return []string{subPods, subProxy}
	case "healthz":
		return []string{subHealthz, subProxy}
	case "configz":
		return []string{subConfigz, subProxy}
	case "flagz":
		return []string{subConfigz}
	case "stats":
		return []string{subStats}
	case "metrics":
		return []string{subMetrics}
	case "logs":
		return []string{subLog}
	case "checkpoint":
		return []string{subCheckpoint}
	case "statusz":
		return []string{subStatusz}
	}
	return []string{subProxy}
}

// verbOf returns the API's verb for a method. For other methods it returns an empty verb, which
// only users with all rights have.
func verbOf(method string) string {
	switch method {
	case http.MethodPost:
		return "create"
	case http.MethodGet:
		return "get"
	case http.MethodPut:
		return "update"
	case http.MethodPatch:
		return "patch"
	case http.MethodDelete:
		return "delete"
	}
	return ""
}

func firstSegment(path string) string {
	first, _, _ := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	return first
}
