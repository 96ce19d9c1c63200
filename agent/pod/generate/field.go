package generate

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
)

// Addresses are the IP addresses that the downward API exposes. The pod's own status gets them
// later, so it is not used.
type Addresses struct {
	// HostIPs are the node's addresses, the primary first.
	HostIPs []string
	// PodIPs are the pod's addresses, the primary (of the node's preferred family) first. A
	// host-network pod has the node's.
	PodIPs []string
}

// FieldValue returns what a fieldRef selects: a field of the pod's metadata or spec, or an address.
// For a nil map or a missing key it returns the empty string. A whole map is written as sorted
// lines of key="value", quoted as Go strings. The error names the field path and never a value.
func FieldValue(pod *v1.Pod, ref *v1.ObjectFieldSelector, addrs Addresses) (string, error) {
	if ref.APIVersion != "" && ref.APIVersion != "v1" {
		return "", fmt.Errorf("unsupported pod version: %s", ref.APIVersion)
	}
	if path, key, ok := splitSubscript(ref.FieldPath); ok {
		return mapValue(pod, ref.FieldPath, path, key)
	}
	switch ref.FieldPath {
	case "metadata.name":
		return pod.Name, nil
	case "metadata.namespace":
		return pod.Namespace, nil
	case "metadata.uid":
		return string(pod.UID), nil
	case "metadata.labels":
		return formatMap(pod.Labels), nil
	case "metadata.annotations":
		return formatMap(pod.Annotations), nil
	case "spec.nodeName", "spec.host":
		return pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return pod.Spec.ServiceAccountName, nil
	case "status.podIP":
		return first(addrs.PodIPs), nil
	case "status.podIPs":
		return strings.Join(addrs.PodIPs, ","), nil
	case "status.hostIP", "status.hostIPs":
		return hostAddress(ref.FieldPath, addrs.HostIPs)
	}
	return "", fmt.Errorf("unsupported fieldPath: %s", ref.FieldPath)
}

// hostAddress returns the node's first address or all of them. If none is known it returns an
// error, because the pod would take an empty value for an answer.
func hostAddress(path string, ips []string) (string, error) {
	if len(ips) == 0 {
		return "", fmt.Errorf("fieldPath %s: the node's IP address is not known yet", path)
	}
	if path == "status.hostIP" {
		return ips[0], nil
	}
	return strings.Join(ips, ","), nil
}

// mapValue returns one label or annotation. full is the field path as written, for the error.
func mapValue(pod *v1.Pod, full, path, key string) (string, error) {
	var values map[string]string
	name := key
	switch path {
	case "metadata.labels":
		values = pod.Labels
	case "metadata.annotations":
		values = pod.Annotations
		name = strings.ToLower(key)
	default:
		return "", fmt.Errorf("fieldPath %q does not support subscript", full)
	}
	if errs := validation.IsQualifiedName(name); len(errs) > 0 {
		return "", fmt.Errorf("invalid key subscript in %s: %s", full, strings.Join(errs, ";"))
	}
	return values[key], nil
}

// splitSubscript splits path['key'] into path and key. The key runs from the first [' to the last
// '].
func splitSubscript(fieldPath string) (path, key string, ok bool) {
	rest, ok := strings.CutSuffix(fieldPath, "']")
	if !ok {
		return "", "", false
	}
	path, key, ok = strings.Cut(rest, "['")
	return path, key, ok && path != ""
}

// formatMap writes a map as lines of key="value" in the order of the keys, without a newline at the
// end.
func formatMap(values map[string]string) string {
	lines := make([]string, 0, len(values))
	for _, key := range slices.Sorted(maps.Keys(values)) {
		lines = append(lines, key+"="+strconv.Quote(values[key]))
	}
	return strings.Join(lines, "\n")
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}
