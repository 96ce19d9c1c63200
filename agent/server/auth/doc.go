// Package auth decides who may use the agent's port of the kubelet's API: it finds out who asks,
// and asks whether they may.
//
// Purpose: [Guard] stands before the handlers. A request is its user's by a client certificate
// (x509), by a bearer token that the API server knows (TokenReview), or nobody's (anonymous, where
// the config lets it in). What it wants is a verb on a subresource of this node's object
// ([AttributesOf], pure), and the API server says whether the user may do that
// (SubjectAccessReview). The answers 401 and 403 are the kubelet's.
//
//	request ─▶ authenticator: certificate │ token │ anonymous ─▶ User
//	                          ▲ pool of CAs ▲ cache               │
//	             handler ◀─ authorizer (▲ cache) ◀─ AttributesOf ◀┘
//
// Everything is refused that nothing allows: no authorities and no API server mean that nobody is
// known, and a review that cannot be made is no permission. Commands and streams (exec, attach,
// portForward, run) always need the verb create, however they are asked for: a WebSocket is opened
// with GET, and whoever may only read must not run anything through one.
//
// The libraries of k8s.io/apiserver that do the same would make the agent 33 MB larger on disk and
// 23 MB in memory.
//
// Truth owned: none. Certificates' authorities are the caller's; reviews are the API server's,
// remembered for as long as the config says.
//
// Defence: anybody can make the agent check credentials. Certificates are few and small, a part of
// the CPUs verifies them, and of failures only a short text is remembered. Reviews at work are
// bounded, altogether and those of one user's rights, and so are the requests that wait for them:
// one more is answered with 429.
//
// Concurrency: everything may be used by many requests at once. Reviews of the same thing are made
// once.
package auth
