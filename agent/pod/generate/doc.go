// Package generate translates a pod into the messages that the runtime understands.
//
// Purpose: [Sandbox] makes a PodSandboxConfig, [Container] a ContainerConfig, [Env] a container's
// environment, and [HostsFile] the pod's /etc/hosts. [FieldValue] and [ResourceValue] return what
// the downward API exposes. The meaning of every field is the kubelet's, so that a kubelet and
// berth can take over each other's pods.
//
// Truth owned: none. Every function is pure: it changes nothing of what it is given, and does no
// I/O except through a function that the caller passes in. What this node cannot do is refused with
// a [ConfigError], never dropped.
//
// Secrets: no error of this package holds the value of an environment variable, of a ConfigMap or
// of a Secret. Errors name objects, keys and fields only.
//
// Concurrency: everything is safe for concurrent use, as long as nobody changes the inputs
// meanwhile.
package generate
