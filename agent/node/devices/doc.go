// Package devices gives the devices of device plugins to containers.
//
// Purpose: the kubelet's side of the device plugin API (k8s.io/kubelet/pkg/apis/deviceplugin,
// v1beta1). A plugin registers at a socket (<root>/device-plugins/kubelet.sock, or as one of
// package plugins) and lists its devices. A container that has the plugin's resource in its limits
// gets some of them: [Manager.Allocate] chooses them when the pod is admitted, and
// [Manager.Container] says, at each start, what the plugin wants the container to have.
//
//	registers ─▶ asked for its options ─▶ lists its devices ─▶ connection ends ─▶ 5 minutes later
//	                                        ▲        │          devices unhealthy    resource is 0
//	                                        └─ again ┘
//
// Truth owned: which plugins are connected, which devices they have, and which container has which
// device. The last is kept in the kubelet's own file and format (package checkpoint), which
// outlives both agents. Which pods still need their devices is read from the workers at each
// allocation.
//
// Concurrency: a [Manager] is safe for concurrent use. [Manager.Run] joins the goroutine of each
// plugin. No lock is held while a plugin is asked, and every request has a time limit, so that a
// plugin that hangs holds up only the pods that want its devices.
package devices
