// Package doctor looks at a machine as a node: whether its kernel, runtime, network, directories and services are as the agent needs them, what is left
// over from earlier, and what is known to be unsafe; each finding says what to do.
//
// Purpose: the list of checks, each of which is a function from a [Host] to findings, and the verdict over all of them. Nothing is changed on the machine.
//
// Truth owned: the versions below which components have known holes (versions.go). Concurrency: [Run] calls one check after the other.
package doctor

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/configs"
)

// Level is how bad a finding is.
type Level string

// The levels.
const (
	// OK: as it should be.
	OK Level = "ok"
	// Hint: it works, and could be better.
	Hint Level = "hint"
	// Warning: something does not work, or is not safe, or will not be one day.
	Warning Level = "warning"
	// Error: pods will not run.
	Error Level = "error"
)

// Finding is what a check found.
type Finding struct {
	// Check is the check's name.
	Check string `json:"check"`
	Level Level  `json:"level"`
	// Message says what is, Fix what to do about it; a finding that is OK needs no fix.
	Message string `json:"message"`
	Fix     string `json:"fix,omitempty"`
}

// Report is all findings, in the order of the checks.
type Report struct {
	Findings []Finding `json:"findings"`
}

// Worst returns the worst level found.
func (r Report) Worst() Level {
	worst := OK
	rank := map[Level]int{OK: 0, Hint: 1, Warning: 2, Error: 3}
	for _, f := range r.Findings {
		if rank[f.Level] > rank[worst] {
			worst = f.Level
		}
	}
	return worst
}

// The exit codes of a look at the machine; it is 0 if there is nothing to do.
const (
	ExitWarning = 1
	ExitError   = 2
)

// ExitCode is [ExitError] with an error, [ExitWarning] with a warning, else 0.
func (r Report) ExitCode() int {
	switch r.Worst() {
	case Error:
		return ExitError
	case Warning:
		return ExitWarning
	}
	return 0
}

// Runtime is what of a CRI runtime is looked at.
type Runtime interface {
	Version(ctx context.Context) (*runtimeapi.VersionResponse, error)
	Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error)
	ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	ListImages(ctx context.Context) ([]*runtimeapi.Image, error)
	ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error)
	// ForgottenShims returns the processes that the runtime has lost track of.
	ForgottenShims(ctx context.Context) ([]int, error)
	// Forgotten returns the paths of network namespaces and bundles that the runtime has lost track of.
	Forgotten(ctx context.Context) ([]string, error)
}

// Space is what of a file system is free.
type Space struct {
	// Bytes and FreeBytes are its size and what is free for all; Inodes and FreeInodes likewise, 0 where it does not count them.
	Bytes, FreeBytes, Inodes, FreeInodes uint64
}

// Host is the machine as the checks see it.
type Host struct {
	Config  *configs.Config
	Runtime Runtime
	// Files reads the machine's files: the real ones, or a test's.
	Files Files
	// Command runs a program and returns what it prints to both outputs.
	Command func(ctx context.Context, name string, args ...string) (string, error)
	Space   func(path string) (Space, error)
	// Synchronized tells whether the clock is kept by somebody (adjtimex(2)).
	Synchronized func() (bool, error)
	// PodCgroups lists the pods that have a cgroup, AgentVersion asks the agent at the socket; its error says that there is none.
	PodCgroups   func(ctx context.Context) ([]types.UID, error)
	AgentVersion func(ctx context.Context) (string, error)
	// Version is that of this program.
	Version string
	Log     *slog.Logger
}

// check is a named look at the machine.
type check struct {
	name string
	run  func(ctx context.Context, h *Host) []Finding
}

// checks lists everything that is looked at.
func checks() []check {
	return []check{
		{"kernel", kernel},
		{"cgroups", cgroupControllers},
		{"swap", swap},
		{"network", sysctls},
		{"runtime", runtimeAnswers},
		{"versions", versions},
		{"cni", cni},
		{"directories", directories},
		{"disk", disk},
		{"clock", clock},
		{"service", service},
		{"agent", agentAnswers},
		{"leftovers", leftovers},
	}
}

// Names returns the names of the checks, in their order.
func Names() []string {
	var names []string
	for _, c := range checks() {
		names = append(names, c.name)
	}
	return names
}

// checkTimeout bounds one check: a runtime that hangs is a finding, too.
const checkTimeout = 15 * time.Second

// Run makes every check. A check that finds nothing to say is OK.
func Run(ctx context.Context, h *Host) Report {
	var r Report
	for _, c := range checks() {
		ctx, cancel := context.WithTimeout(ctx, checkTimeout)
		found := c.run(ctx, h)
		cancel()
		if len(found) == 0 {
			found = []Finding{ok("nothing to say")}
		}
		for _, f := range found {
			f.Check = c.name
			r.Findings = append(r.Findings, f)
		}
	}
	return r
}

func ok(format string, args ...any) Finding {
	return Finding{Level: OK, Message: fmt.Sprintf(format, args...)}
}

func hint(fix, format string, args ...any) Finding {
	return Finding{Level: Hint, Message: fmt.Sprintf(format, args...), Fix: fix}
}

func warning(fix, format string, args ...any) Finding {
	return Finding{Level: Warning, Message: fmt.Sprintf(format, args...), Fix: fix}
}

func failure(fix, format string, args ...any) Finding {
	return Finding{Level: Error, Message: fmt.Sprintf(format, args...), Fix: fix}
}
