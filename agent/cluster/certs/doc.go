// Package certs has the agent's certificates: those that it serves with, and the authorities that
// it verifies its callers by.
//
// Purpose: [Pair] and [Bundle] are files that others renew. They are read again when they have
// changed, without a restart and without a watch: a TLS handshake that needs them checks the files,
// at most once a second. [SelfSigned] makes a certificate for a node that was given none.
// [ServerConfig] combines them for a listener. A [Rotator] keeps a certificate that the cluster
// signs: the node's first client certificate, which a bootstrap token allows, its later ones, and
// the serving certificate if the config asks for it.
//
// Truth owned: in the certificates' directory, the [Store]s kubelet-client and kubelet-server, and
// kubelet.crt and kubelet.key if the agent made them. Other files belong to their owners.
//
// A file that cannot be read any more is logged once, and its last good content stays in use: a
// half-finished renewal does not end the service.
//
// Concurrency: many handshakes may use everything at the same time.
package certs
