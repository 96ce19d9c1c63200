// Package server is the agent's HTTP API: the kubelet's endpoints and berth's own, on the local
// socket and on ports.
//
// Purpose: answer what exists and why, for the command line and for probes. Serve container logs,
// and open streams for exec, attach and port-forward.
//
//	where                who may                      what
//	the unix socket      root, the socket's group     everything
//	port, with TLS       whom agent/server/auth lets  the kubelet's API, nothing of berth's own
//	healthzPort          whoever reaches the address  /healthz
//	readOnlyPort         whoever reaches the address  /healthz, /pods, /metrics
//
// Truth owned: none. For every answer, the server asks the [Backend] or the runtime.
//
// Defence: on the socket, the kernel identifies callers. The guard stands before every handler of
// the port with TLS. Handlers that run commands need POST or an upgrade, and exist only on the
// socket and on this port. Requests are bounded in number, size and time, for each listener by
// itself. The connections of one caller begin a few at a time, so that a command is not behind
// them. A caller that reads its answer slowly loses its place when another needs it. A refusal must
// be sent soon, and the node's logs and profiles piece by piece; only what is followed may wait for
// its reader. Measurements that many callers ask for at the same time are made once. The server
// fetches streams only from loopback or unix addresses, and follows no redirect.
//
// Concurrency: a [Server] answers many requests at once and holds no state between them.
// [Server.Run] joins all goroutines that it started.
package server
