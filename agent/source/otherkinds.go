package source

import (
	"encoding/json"
	"strings"
)

// composeFile is what to do with a file of compose.
const composeFile = `services: this is a compose file, and berth reads manifests of pods: docs/migration.md, "From ` +
	`compose, by hand", has for each key what a pod has instead`

// isCompose reports whether an object without a kind is a file of compose: its services are a
// mapping.
func isCompose(raw []byte) bool {
	var head struct {
		Services map[string]json.RawMessage `json:"services"`
	}
	return json.Unmarshal(raw, &head) == nil && len(head.Services) > 0
}

// insteadOf says what to write in place of a kind that manifests do not have. It returns "" for a
// kind that it does not know.
func insteadOf(kind string) string {
	const template = "a node agent runs pods: copy spec.template (its metadata and its spec) into a manifest of kind Pod"
	const controllers = "only the controllers of a cluster act on it: leave it out"
	switch strings.TrimSuffix(kind, "List") {
	case "Deployment", "ReplicaSet", "ReplicationController", "DaemonSet":
		return template + ", and write one manifest for each pod"
	case "StatefulSet":
		return template + ", and a PersistentVolume and a PersistentVolumeClaim for each volumeClaimTemplate"
	case "Job":
		return template + " with restartPolicy OnFailure or Never"
	case "CronJob":
		return "a node agent runs pods: copy spec.jobTemplate.spec.template into a manifest of kind Pod, and let a " +
			"timer of systemd run it with \"berth run FILE --once\""
	case "Service", "Endpoints", "EndpointSlice":
		return "nothing on a node without a cluster balances connections: use the address of the pod, hostPort or " +
			"hostNetwork"
	case "Ingress", "IngressClass", "Gateway", "HTTPRoute":
		return "run the proxy itself as a pod, with hostPort or hostNetwork"
	case "Namespace":
		return "a namespace needs no object: metadata.namespace of the pods is enough"
	case "ServiceAccount", "Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding":
		return "a pod of a manifest does not use an API server: leave it out, and serviceAccountName in the pod"
	case "StorageClass":
		return "nothing provisions volumes for pods of manifests: write a PersistentVolume"
	case "NetworkPolicy", "HorizontalPodAutoscaler", "PodDisruptionBudget", "LimitRange", "ResourceQuota",
		"PriorityClass", "CustomResourceDefinition":
		return controllers
	}
	return ""
}
