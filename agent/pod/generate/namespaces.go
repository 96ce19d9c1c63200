package generate

import (
	"errors"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// errNoUserNamespace is the error for a pod with hostUsers: false that has no id mapping, because
// the runtime could not use one.
var errNoUserNamespace = errors.New("can't set `spec.hostUsers: false`, runtime does not support user namespaces")

// namespaces returns which namespaces the pod shares with the node, among its containers, or not at
// all. A container without shareProcessNamespace has processes of its own. mapping is the pod's
// user namespace, and is used only for hostUsers: false.
func namespaces(pod *v1.Pod, mapping *runtimeapi.UserNamespace) (*runtimeapi.NamespaceOption, error) {
	options := &runtimeapi.NamespaceOption{
		Network: nodeOr(pod.Spec.HostNetwork, runtimeapi.NamespaceMode_POD),
		Ipc:     nodeOr(pod.Spec.HostIPC, runtimeapi.NamespaceMode_POD),
		Pid:     runtimeapi.NamespaceMode_CONTAINER,
	}
	if isTrue(pod.Spec.ShareProcessNamespace) {
		options.Pid = runtimeapi.NamespaceMode_POD
	}
	options.Pid = nodeOr(pod.Spec.HostPID, options.Pid)
	if pod.Spec.HostUsers == nil || *pod.Spec.HostUsers {
		options.UsernsOptions = &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_NODE}
		return options, nil
	}
	if mapping == nil || mapping.Mode != runtimeapi.NamespaceMode_POD || len(mapping.Uids) == 0 ||
		len(mapping.Gids) == 0 {
		return nil, errNoUserNamespace
	}
	options.UsernsOptions = mapping
	return options, nil
}

func nodeOr(node bool, otherwise runtimeapi.NamespaceMode) runtimeapi.NamespaceMode {
	if node {
		return runtimeapi.NamespaceMode_NODE
	}
	return otherwise
}
