// Package doctor checks whether a machine is fit to be a node. It checks the kernel, the runtime,
// the network, the directories and the services, looks for leftovers, and knows insecure versions.
// Each finding says what to do.
//
// Purpose: the list of checks, each of which is a function from a [Host] to findings, and the exit
// code for all of them. Doctor changes nothing on the machine.
//
// Truth owned: the versions below which components have known vulnerabilities (versions.go).
// Concurrency: [Run] calls one check after the other.
package doctor

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/cri"
)

// Level says how serious a finding is.
type Level string

// The levels.
const (
	// OK: everything is in order.
	OK Level = "ok"
	// Hint: it works, but it could be better.
	Hint Level = "hint"
	// Warning: something does not work, is not secure, or will stop working.
	Warning Level = "warning"
	// Error: pods will not run.
	Error Level = "error"
)

// Finding is what a check found.
type Finding struct {
	// Check is the check's name.
	Check string `json:"check"`
	Level Level  `json:"level"`
	// Message says what was found, and Fix what to do about it. A finding that is OK needs no fix.
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

// The exit codes; the code is 0 if there is nothing to do.
const (
	ExitWarning = 1
	ExitError   = 2
)

// ExitCode returns [ExitError] if there is an error, [ExitWarning] if there is a warning, else 0.
func (r Report) ExitCode() int {
	switch r.Worst() {
	case Error:
		return ExitError
	case Warning:
		return ExitWarning
	}
	return 0
}

// Runtime is the part of a CRI runtime that the checks call.
type Runtime interface {
	Version(ctx context.Context) (*runtimeapi.VersionResponse, error)
	Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error)
	ListPodSandbox(ctx context.Context, filter *runtimeapi.PodSandboxFilter) ([]*runtimeapi.PodSandbox, error)
	ListImages(ctx context.Context) ([]*runtimeapi.Image, error)
	ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error)
}

// Space is the size of a file system and how much of it is free.
type Space struct {
	// Bytes is its size, and FreeBytes is what all users can use. Inodes and FreeInodes are the
	// same for inodes; they are 0 if the file system does not count inodes.
	Bytes, FreeBytes, Inodes, FreeInodes uint64
}

// Agent is the agent that answers at the socket.
type Agent struct {
	Version, RootDir string
	// Same is true if the root directory is that of the host's config.
	Same bool
	// ConfigFault says what of the agent's config on the disk is not in force, and ConfigRemedy what
	// to do; empty if all is in force.
	ConfigFault, ConfigRemedy string
}

// Foreground is a "berth run" with its own root directory. PID is 0 if the process is dead or not
// known.
type Foreground struct {
	RootDir string
	Lives   bool
	PID     int
}

// Host is the machine as the checks see it.
type Host struct {
	Config  *configs.Config
	Runtime Runtime
	// Native says that pods are run natively, and Runtime then is containerd. Endpoint is the socket
	// of either.
	Native   bool
	Endpoint string
	// Forgotten finds what the runtime has lost track of. It is nil for a runtime that loses
	// nothing.
	Forgotten cri.ForgottenFinder
	// Files reads the machine's files, or a test's.
	Files Files
	// Command runs a program and returns its standard output and standard error.
	Command func(ctx context.Context, name string, args ...string) (string, error)
	Space   func(path string) (Space, error)
	// Synchronized reports whether something keeps the clock synchronized (adjtimex(2)).
	Synchronized func() (bool, error)
	// PodCgroups lists the pods that have a cgroup. Agent asks the agent at the socket; its error
	// means that no agent answers.
	PodCgroups func(ctx context.Context) ([]types.UID, error)
	Agent      func(ctx context.Context) (Agent, error)
	// HostPortsTaken says which programs of the node listen on host ports of pods, and of which.
	HostPortsTaken func(ctx context.Context) ([]string, error)
	// Drained reports whether the node is drained, also over restarts of the agent.
	Drained func() bool
	// Foregrounds lists the runs of "berth run" on this machine, alive or dead.
	Foregrounds func() ([]Foreground, error)
	// Version is the version of this program.
	Version string
	Log     *slog.Logger
}

// check is one check with its name.
type check struct {
	name string
	run  func(ctx context.Context, h *Host) []Finding
}

// checks lists all checks.
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
		{"hostports", hostPorts},
		{"leftovers", leftovers},
		{"runs", runs},
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

// Run makes every check. A check without findings is OK.
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
