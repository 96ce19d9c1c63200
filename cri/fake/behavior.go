package fake

import (
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Behavior is what one container does. The zero value runs until it is stopped, then ends at once with exit code 0.
type Behavior struct {
	// CreateErr fails CreateContainer, and nothing is left behind.
	CreateErr error
	// StartErr fails StartContainer; the container is then exited, with code 128 and reason StartError.
	StartErr error
	// StartDelay is how long StartContainer takes.
	StartDelay time.Duration
	// Exit says how the container ends by itself; nil if it does not.
	Exit *Exit
	// Term says what the container does when it gets its stop signal.
	Term Term
	// Unkillable makes even SIGKILL have no effect, like a process in uninterruptible sleep: stops take until their context ends.
	Unkillable bool
	// Output is what the container writes when it starts: lines to stdout, or to stderr where they begin with "stderr: ".
	Output []string
	// Exec answers commands that are run in the container; nil leaves them to the shell that the fake understands.
	Exec func(cmd []string) ExecResult
}

// Exit is how a container ends by itself.
type Exit struct {
	// After is how long after its start.
	After time.Duration
	// Code is the exit code; an OOM kill has 137, whatever is here.
	Code int32
	// OOM makes it an OOM kill: reason OOMKilled.
	OOM bool
	// Message is written to the container's termination log where that is mounted from the host.
	Message string
}

// Term is what a container does when it gets its stop signal.
type Term struct {
	// Ignore makes it go on.
	Ignore bool
	// After is how long it takes to end.
	After time.Duration
	// Code is its exit code then.
	Code int32
}

// ExecResult is what a command in a container does.
type ExecResult struct {
	Stdout, Stderr string
	Code           int32
	// After is how long it takes.
	After time.Duration
	// Err fails the execution itself, as a missing executable does.
	Err error
}

// Script says what containers called name (their own name, or their image's) do: the first to be created does the first behavior,
// the next the second, and all after that the last. It replaces what was said before for the name.
func (r *Runtime) Script(name string, behaviors ...Behavior) {
	r.node.mu.Lock()
	defer r.node.mu.Unlock()
	r.node.scripts[name] = behaviors
}

// behavior decides what a container will do: the config's Script, the script for its name or its image, its command.
func (n *node) behavior(sandbox *runtimeapi.PodSandboxConfig, config *runtimeapi.ContainerConfig) Behavior {
	if n.cfg.Script != nil {
		if b, ok := n.cfg.Script(clone(sandbox), clone(config)); ok {
			return b
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	names := []string{config.GetMetadata().GetName(), config.GetImage().GetUserSpecifiedImage(), config.GetImage().GetImage()}
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
