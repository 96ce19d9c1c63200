// Package server is the agent's HTTP API: the kubelet's endpoints and berth's own, on the local socket and on loopback ports.
//
// Purpose: answer "what is there and why" for the command line and for probes, serve container logs, and open exec, attach and port-forward streams.
//
//	where                  who may                           what
//	the unix socket        root and the socket's group       everything
//	healthzPort            whoever reaches the address       /healthz
//	readOnlyPort           whoever reaches the address       /healthz, /pods, /metrics
//
// The authenticated port (10250) is not here yet; it takes the same handlers as the socket, behind authentication and authorization.
//
// Truth owned: none. Every answer is asked from the [Backend] or the runtime when the request comes.
//
// Defence: callers are identified by the kernel on the socket; what runs commands needs POST or an upgrade and is only on the socket; requests are
// bounded in number, size and time; streams are only fetched from loopback or unix addresses, and no redirect is followed.
//
// Concurrency: a [Server] answers many requests at once and holds no state between them. [Server.Run] joins all that it started.
package server
