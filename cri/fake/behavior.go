package fake

import (
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Behavior is what one container does. The zero value runs until it is stopped, and then ends at
// once with exit code 0.
type Behavior struct {
	// CreateErr makes CreateContainer fail. The call then leaves nothing behind.
	CreateErr error
	// StartErr makes StartContainer fail. The container is then exited, with code 128 and reason
	// StartError.
	StartErr error
	// StartDelay is how long StartContainer takes.
	StartDelay time.Duration
	// Exit is how the container ends by itself. It is nil if the container does not.
	Exit *Exit
	// Term is what the container does when it gets its stop signal.
	Term Term
	// Unkillable makes even SIGKILL have no effect, as for a process in uninterruptible sleep. A
	// stop then waits until its context ends.
	Unkillable bool
	// Output is what the container writes when it starts. Lines that begin with "stderr: " go to
	// stderr, all others to stdout.
	Output []string
	// Exec answers the commands that are run in the container. If it is nil, the shell that the
	// fake understands answers them.
	Exec func(cmd []string) ExecResult
}

// Exit is how a container ends by itself.
type Exit struct {
	// After is the time from the container's start to its end.
	After time.Duration
	// Code is the exit code. An OOM kill always has 137.
	Code int32
	// OOM makes it an OOM kill, with reason OOMKilled.
	OOM bool
	// Message is written to the container's termination log, if that file is mounted from the host.
	Message string
}

// Term is what a container does when it gets its stop signal.
type Term struct {
	// Ignore makes the container ignore the signal.
	Ignore bool
	// After is the time from the signal to the container's end.
	After time.Duration
	// Code is the exit code after the signal.
	Code int32
}

// ExecResult is what a command in a container does.
type ExecResult struct {
	Stdout, Stderr string
	Code           int32
	// After is how long the command takes.
	After time.Duration
	// Err makes the execution itself fail, as when the executable is missing.
	Err error
}

// Script sets what containers called name do. The name is their own or their image's. The first
// container created has the first behavior, the next one the second, and all later ones the last.
// It replaces an earlier script for the name.
func (r *Runtime) Script(name string, behaviors ...Behavior) {
	r.node.mu.Lock()
	defer r.node.mu.Unlock()
	r.node.scripts[name] = behaviors
}

// behavior decides what a container will do. It asks the config's Script, then the script for the
// container's name or image, then the container's command.
func (n *node) behavior(sandbox *runtimeapi.PodSandboxConfig, config *runtimeapi.ContainerConfig) Behavior {
	if n.cfg.Script != nil {
		if b, ok := n.cfg.Script(clone(sandbox), clone(config)); ok {
			return b
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	names := []string{
		config.GetMetadata().GetName(), config.GetImage().GetUserSpecifiedImage(), config.GetImage().GetImage(),
	}
	if i := n.imageOf(config.GetImage().GetImage()); i != nil {
		names = append(names, i.Name, i.ref)
	}
	for _, name := range names {
		switch queue := n.scripts[name]; {
		case name == "" || len(queue) == 0:
		case len(queue) == 1:
			return queue[0]
		default:
			n.scripts[name] = queue[1:]
			return queue[0]
		}
	}
	return shellBehavior(config)
}
