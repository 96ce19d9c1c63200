//go:build integration

// Package integration runs the agent on a real containerd and checks the state of the machine.
//
// Purpose: to test what fakes cannot show: processes, mounts, cgroups, namespaces, addresses and
// log files, also while the agent and containerd are killed.
//
// Truth owned: none. Each test has an environment of its own (test/env) and leaves nothing behind.
//
// Concurrency: tests run at the same time. Tests that stop or kill the agent of their environment
// run one after the other in it.
package integration
