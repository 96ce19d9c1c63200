// Package suite is the contract of [cri.Runtime] as tests: what a kubelet-like agent relies on, said once, and run against every
// implementation, so that the fake cannot drift from the runtimes that it stands for.
//
// Purpose: [Run] takes a function that gives a fresh [Target] and runs every case as a subtest. A case that needs what a target says it
// [Target.Lacks] is skipped, never weakened.
//
// Truth owned: the contract's details that package cri leaves to words, such as what a status shows after a stop.
//
// Concurrency: cases run one after another. Waiting is polling with the runtime's own clock, so a fake may run the suite inside a synctest
// bubble. Every case removes the sandboxes it made, also when it fails.
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

// Capability is something that not every runtime, or not every machine, can do.
type Capability string

// The capabilities that a target may lack.
const (
	Network   Capability = "network"   // sandboxes get an IP
	OOM       Capability = "oom"       // a container over its memory limit is killed, and its status says OOMKilled
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
	// Image is an image that is already there and has what Commands need.
	Image string
	// Commands are what containers of Image are made to do. The zero value is [Shell].
	Commands Commands
	// PullImage is an image that PullImage can fetch and that is not there yet; empty skips pulls that succeed.
	PullImage string
	// CgroupParent and Handler go into every sandbox.
	CgroupParent, Handler string
	// Lacks names what the runtime or the machine cannot do.
	Lacks []Capability
}

// Commands are the few things that containers do in this suite. A fake need not run programs: it may recognise what its own
// Commands return.
type Commands struct {
	// Wait runs until SIGTERM, and then ends at once with exit code 0.
	Wait []string
	// Stubborn runs for ever and ignores SIGTERM.
	Stubborn []string
	// Heeds ends with exit code 0 where the container's first process has set what it does on SIGTERM: before, the kernel keeps the signal from it. Empty where that is
	// so from the start.
	Heeds []string
	// Eat allocates memory without end.
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
		Heeds:    sh(`grep -q '^SigCgt:.*[4-7c-f]...$' /proc/1/status`), // SIGTERM is 15
		Eat:      sh(`exec dd if=/dev/zero of=/dev/null bs=512M count=1`),
		Exit:     func(code int) []string { return sh("exit " + strconv.Itoa(code)) },
		Print: func(stdout, stderr string) []string {
			return sh(fmt.Sprintf("echo '%s'; echo '%s' >&2", stdout, stderr))
		},
	}
}

// patience bounds every wait for something that must happen. It is long because the machine may be busy, and costs nothing when all is well.
const patience = 3 * time.Minute

// Run runs the contract's cases on targets made by newTarget, one for each case. A target that is shared between cases is fine: names
// are unique, and every case looks only at what it made.
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
