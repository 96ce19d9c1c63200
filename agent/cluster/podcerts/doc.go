// Package podcerts gets the certificates that projected volumes of pods name (KEP-4317).
//
// Purpose: [Manager.Use] makes a key for each podCertificate of a pod's volumes, and asks a signer
// of the cluster for a certificate by a PodCertificateRequest, which the pod owns. The answer
// wakes the pod, which writes both. A certificate is replaced, with its key, once its signer says
// so. One that cannot be replaced is used until it expires; the pod's events say so. A signer's
// refusal is final: nobody is asked again for that volume of that pod. A pod may name any number
// of certificates: few of its requests are out at once ([kube.Turns]).
//
// Truth owned: the keys and certificates of the pods on this node, only in memory. After a restart
// of the agent each pod gets new ones. [Manager.Drop] removes a pod's.
//
// Concurrency: a [Manager] is safe for concurrent use, and answers from memory. No log, error or
// event quotes a key.
package podcerts
