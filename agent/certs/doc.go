// Package certs has the agent's certificates: those that it serves with, and the authorities that it knows its callers by.
//
// Purpose: [Pair] and [Bundle] are files that others renew; they are read again when they have changed, without a restart and without anybody watching them:
// a handshake that wants one looks, at most once a second. [SelfSigned] makes the certificate of a node that nobody gave one. [ServerConfig] puts them together
// for a listener. A [Rotator] keeps a certificate that the cluster signs: a node's first one, got with a bootstrap token, the ones after it, and that of the
// agent's port where the config asks for it.
//
// Truth owned: in the certificates' directory, the [Store]s kubelet-client and kubelet-server, and kubelet.crt and kubelet.key where the agent has made them. Other
// files are their owners'.
//
// What cannot be read any more is told once, and the last good one stays in use: a renewal that was caught half done does not end the service.
//
// Concurrency: everything may be used by many handshakes at once.
package certs
