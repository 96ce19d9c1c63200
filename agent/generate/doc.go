// Package generate translates a pod into the messages that the runtime understands.
//
// Purpose: [Sandbox] makes a PodSandboxConfig, [Container] a ContainerConfig, [Env] a container's environment, [HostsFile]
// the pod's /etc/hosts, [FieldValue] and [ResourceValue] what the downward API exposes. The meaning of every field is the
// kubelet's, so that a kubelet and berth can take over each other's pods.
//
// Truth owned: none. Every function is pure: it reads what it is given, changes none of it, and does no I/O except through a
// function that the caller passes in. What cannot be honoured on this node is refused with a [ConfigError], never dropped.
//
// Secrets: no error of this package holds the value of an environment variable, of a ConfigMap or of a Secret; errors name
// objects, keys and fields only.
//
// Concurrency: everything is safe for concurrent use, as long as nobody changes the inputs meanwhile.
package generate
