// Package suite is the contract of [cri.Runtime] as tests. It has what a kubelet-like agent relies
// on, and runs on every implementation, so that the fake keeps to what real runtimes do.
//
// Purpose: [Run] takes a function that returns a fresh [Target], and runs every case as a subtest.
// A case that needs something that the target [Target.Lacks] is skipped. No case is made weaker for
// a target.
//
// Truth owned: the details of the contract that package cri has only in words, such as what a
// status shows after a stop.
//
// Concurrency: cases run one after another. Waiting is polling with the runtime's own clock, so a
// fake may run the suite inside a synctest bubble. Every case removes the sandboxes that it made,
// also when the case fails.
package suite

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/berthd/berth/cri"
)

// Capability is something that some runtimes or some machines cannot do.
type Capability string

// The capabilities that a target may lack.
const (
	Network Capability = "network" // sandboxes get an IP
	// a container over its memory limit is killed, and its status says OOMKilled
	OOM       Capability = "oom"
	Logs      Capability = "logs"      // output is written to the log path in the CRI's format
	Reopen    Capability = "reopen"    // ReopenContainerLog
	Events    Capability = "events"    // Events
	Stats     Capability = "stats"     // ContainerStats
	Streaming Capability = "streaming" // Exec, Attach and PortForward return URLs
	Update    Capability = "update"    // UpdateContainerResources
	BadStart  Capability = "badstart"  // starting a program that is not in the image fails
	BadPull   Capability = "badpull"   // pulling from a registry that does not answer fails
)

// Target is a runtime under test.
type Target struct {
	Runtime cri.Runtime
	// Image is an image that is present and has what Commands need.
	Image string
	// Commands are what the suite makes containers of Image do. The zero value is [Shell].
	Commands Commands
	// PullImage is an image that is not present and can be pulled. If it is empty, the cases of
	// successful pulls are skipped.
	PullImage string
	// CgroupParent and Handler are set for every sandbox.
	CgroupParent, Handler string
	// Lacks is what the runtime or the machine cannot do.
	Lacks []Capability
}

// Commands are the few things that containers do in this suite. A fake need not run programs: it
// may recognise the commands that its own Commands return.
type Commands struct {
	// Wait runs until SIGTERM, and then ends at once with exit code 0.
	Wait []string
	// Stubborn runs forever and ignores SIGTERM.
	Stubborn []string
	// Heeds ends with exit code 0 once the container's first process is its program and has set a
	// handler for SIGTERM, and Ignores once it ignores SIGTERM. Before that, the kernel keeps the
	// signal from the process, or it ends the OCI runtime that is about to become the program. Both
	// are empty if programs are so from the start.
	Heeds, Ignores []string
	// Eat allocates memory without an end.
	Eat []string
	// Exit ends at once with the code.
	Exit func(code int) []string
	// Print writes one line to each stream and ends with exit code 0.
	Print func(stdout, stderr string) []string
}

// Shell returns commands for an image with a POSIX shell and the usual tools, such as busybox.
func Shell() Commands {
	sh := func(script string) []string { return []string{"sh", "-c", script} }
	return Commands{
		Wait:     sh(`trap "exit 0" TERM; sleep 1000000 & wait`),
		Stubborn: sh(`trap "" TERM; while :; do sleep 1000; done`),
		// SIGTERM is 15, and a runtime's process is called runc:[2:INIT]
		Heeds:   sh(`! grep -q INIT /proc/1/comm && grep -q '^SigCgt:.*[4-7c-f]...$' /proc/1/status`),
		Ignores: sh(`grep -q '^SigIgn:.*[4-7c-f]...$' /proc/1/status`),
		Eat:     sh(`exec dd if=/dev/zero of=/dev/null bs=512M count=1`),
		Exit:    func(code int) []string { return sh("exit " + strconv.Itoa(code)) },
		Print: func(stdout, stderr string) []string {
			return sh(fmt.Sprintf("echo '%s'; echo '%s' >&2", stdout, stderr))
		},
	}
}

// patience bounds every wait for something that must happen. It is long because the machine may be
// busy. It costs nothing if all is well.
const patience = 3 * time.Minute

// Run runs the cases of the contract, each on a target that newTarget makes. Cases may share a
// target: names are unique, and every case looks only at what it made.
func Run(t *testing.T, newTarget func(t *testing.T) Target) {
	cases := []struct {
		name  string
		needs []Capability
		run   func(*bench)
	}{
		{"Status", nil, statusCase},
		{"SandboxLife", nil, sandboxLife},
		{"SandboxNetwork", []Capability{Network}, sandboxNetwork},
		{"SandboxFilters", nil, sandboxFilters},
		{"SandboxNameIsReserved", nil, sandboxNameIsReserved},
		{"SandboxTakesContainersWithIt", nil, sandboxTakesContainersWithIt},
		{"ContainerLife", nil, containerLife},
		{"ContainerFilters", nil, containerFilters},
		{"ContainerNameIsReserved", nil, containerNameIsReserved},
		{"ExitCodes", nil, exitCodes},
		{"StopKillsAfterGrace", nil, stopKillsAfterGrace},
		{"RemoveRunningContainer", nil, removeRunningContainer},
		{"StartFails", []Capability{BadStart}, startFails},
		{"OOMKilled", []Capability{OOM}, oomKilled},
		{"UnknownIDs", nil, unknownIDs},
		{"ExecSync", nil, execSync},
		{"Logs", []Capability{Logs}, logs},
		{"ReopenLog", []Capability{Logs, Reopen}, reopenLog},
		{"Streaming", []Capability{Streaming}, streaming},
		{"Update", []Capability{Update}, update},
		{"Stats", []Capability{Stats}, stats},
		{"EventsArrive", []Capability{Events}, eventsArrive},
		{"EventsEndWithContext", []Capability{Events}, eventsEndWithContext},
		{"EventsTellTheTruth", []Capability{Events}, eventsTellTheTruth},
		{"ContextCancel", nil, contextCancel},
		{"Concurrent", nil, concurrent},
		{"Images", nil, images},
		{"PullFails", []Capability{BadPull}, pullFails},
		{"Pull", nil, pull},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			target := newTarget(t)
			for _, need := range c.needs {
				if slices.Contains(target.Lacks, need) {
					t.Skipf("the target lacks %s", need)
				}
			}
			if target.Commands.Wait == nil {
				target.Commands = Shell()
			}
			ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
			t.Cleanup(cancel)
			c.run(&bench{T: t, Target: target, ctx: ctx})
		})
	}
}
