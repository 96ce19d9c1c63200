//go:build integration

// Package integration runs the agent on a real containerd and looks at what is then on the machine.
//
// Purpose: what fakes cannot show: processes, mounts, cgroups, namespaces, addresses and log files, under kills of the agent and of containerd, too.
//
// Truth owned: none. Each test has an environment of its own (test/env), and leaves nothing.
//
// Concurrency: tests run beside each other, those with the agent's whole life in one environment in order.
package integration
