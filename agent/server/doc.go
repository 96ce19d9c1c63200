// Package server is the agent's HTTP API: the kubelet's endpoints and berth's own, on the local socket and on loopback ports.
//
// Purpose: answer "what is there and why" for the command line and for probes, serve container logs, and open exec, attach and port-forward streams.
//
//	where                  who may                           what
//	the unix socket        root and the socket's group       everything
//	port, with TLS         whom the guard (agent/auth) lets  the kubelet's API, nothing of berth's own
//	healthzPort            whoever reaches the address       /healthz
//	readOnlyPort           whoever reaches the address       /healthz, /pods, /metrics
//
// Truth owned: none. Every answer is asked from the [Backend] or the runtime when the request comes.
//
// Defence: callers are identified by the kernel on the socket; the guard stands before every handler of the port with TLS; what runs
// commands needs POST or an upgrade, and is on these two only; requests are bounded in number, size and time; streams are only fetched from loopback or unix addresses, and no redirect is followed.
//
// Concurrency: a [Server] answers many requests at once and holds no state between them. [Server.Run] joins all that it started.
package server
