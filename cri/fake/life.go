package fake

import (
	"os"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri"
)

// The exit codes and reasons of containerd.
const (
	startErrorCode   = 128
	killedCode       = 137
	lostCode         = 255 // the exit code is not known
	startErrorReason = "StartError"
	completedReason  = "Completed"
	errorReason      = "Error"
	oomReason        = "OOMKilled"
)

// maxLogLine is how many bytes of output go into one line of a log file. It is containerd's
// default.
const maxLogLine = 16 << 10

// stderrPrefix marks the output that goes to stderr.
const stderrPrefix = "stderr: "

func (c *container) state() runtimeapi.ContainerState {
	switch {
	case !c.finished.IsZero():
		return runtimeapi.ContainerState_CONTAINER_EXITED
	case !c.started.IsZero():
		return runtimeapi.ContainerState_CONTAINER_RUNNING
	}
	return runtimeapi.ContainerState_CONTAINER_CREATED
}

func (c *container) running() bool {
	return c.state() == runtimeapi.ContainerState_CONTAINER_RUNNING
}

// run makes a container running and schedules its end. The caller holds the lock.
func (n *node) run(c *container) {
	c.started = time.Now()
	n.sawStart(c, n.store)
	n.emit(cri.ContainerStarted, c.id, c.pod)
	e := c.behavior.Exit
	if e == nil {
		return
	}
	end := func() {
		if e.OOM {
			n.exit(c, killedCode, oomReason)
			return
		}
		n.exit(c, e.Code, "")
	}
	n.after(e.After, end)
}

// term gives a container its stop signal. The caller holds the lock.
func (n *node) term(c *container) {
	if t := c.behavior.Term; !t.Ignore {
		n.after(t.After, func() { n.exit(c, t.Code, "") })
	}
}

// after calls f after d with the lock held. The caller holds the lock.
func (n *node) after(d time.Duration, f func()) {
	time.AfterFunc(d, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		f()
	})
}

// exit ends a running container. A second call does nothing. If reason is empty, it follows from
// the code. The caller holds the lock.
func (n *node) exit(c *container, code int32, reason string) {
	if !c.running() {
		return
	}
	if e := c.behavior.Exit; e != nil && e.Message != "" {
		c.writeTerminationLog(e.Message)
	}
	c.finish(code, reason, "")
	n.emit(cri.ContainerStopped, c.id, c.pod)
}

func (c *container) finish(code int32, reason, message string) {
	if reason == "" {
		reason = errorReason
		if code == 0 {
			reason = completedReason
		}
	}
	c.finished, c.exitCode, c.reason, c.message = time.Now(), code, reason, message
	close(c.ended)
}

func (n *node) containerStatus(c *container) *runtimeapi.ContainerStatus {
	config := clone(c.config)
	status := &runtimeapi.ContainerStatus{
		Id: c.id, Metadata: config.GetMetadata(), State: c.state(), CreatedAt: c.created.UnixNano(),
		Image: config.GetImage(), ImageRef: c.imageRef, ImageId: c.imageRef, ExitCode: c.exitCode, Reason: c.reason,
		Message: c.message,
		Labels:  config.GetLabels(), Annotations: config.GetAnnotations(), Mounts: config.GetMounts(),
		LogPath:   c.logPath,
		Resources: clone(c.resources), User: &runtimeapi.ContainerUser{Linux: &runtimeapi.LinuxContainerUser{}},
		StopSignal: config.GetStopSignal(),
	}
	if status.StopSignal == runtimeapi.Signal_RUNTIME_DEFAULT {
		status.StopSignal = runtimeapi.Signal_SIGTERM
	}
	if !c.started.IsZero() {
		status.StartedAt = c.started.UnixNano()
	}
	if !c.finished.IsZero() {
		status.FinishedAt = c.finished.UnixNano()
	}
	if i := n.imageOf(c.imageRef); i != nil && i.Present {
		status.Image = &runtimeapi.ImageSpec{Image: i.ref}
		status.ImageRef = i.repoDigest()
	}
	return status
}

func (c *container) item() *runtimeapi.Container {
	config := clone(c.config)
	return &runtimeapi.Container{
		Id: c.id, PodSandboxId: c.sandboxID, Metadata: config.GetMetadata(), Image: config.GetImage(),
		ImageRef: c.imageRef, ImageId: c.imageRef,
		State: c.state(), CreatedAt: c.created.UnixNano(), Labels: config.GetLabels(),
		Annotations: config.GetAnnotations(),
	}
}

// mergeResources returns old with the fields that update sets. As in containerd, a zero field of
// update keeps the old value.
func mergeResources(old, update *runtimeapi.ContainerResources) *runtimeapi.ContainerResources {
	merged := &runtimeapi.ContainerResources{Linux: &runtimeapi.LinuxContainerResources{}}
	proto.Merge(merged, old)
	if update != nil {
		proto.Merge(merged, update)
	}
	return merged
}

// writeLog appends lines to a container's log file, and makes the file if there is none.
func (n *node) writeLog(c *container, lines ...string) (err error) {
	if !n.cfg.WriteLogs || c.logPath == "" {
		return nil
	}
	f, err := os.OpenFile(c.logPath, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o640)
	if err != nil {
		return unknown("failed to create containerd task: failed to create container loggers: " + err.Error())
	}
	defer func() {
		if closeErr := f.Close(); err == nil {
			err = closeErr
		}
	}()
	for _, line := range lines {
		name := "stdout"
		if text, isErr := strings.CutPrefix(line, stderrPrefix); isErr {
			name, line = "stderr", text
		}
		if _, err := f.WriteString(logLines(time.Now(), name, line)); err != nil {
			return err
		}
	}
	return nil
}

// logLines writes a line in the CRI's log format. It splits a long line into parts.
func logLines(now time.Time, stream, line string) string {
	var b strings.Builder
	for tag := "P"; tag != "F"; {
		part := line[:min(len(line), maxLogLine)]
		if line = line[len(part):]; line == "" {
			tag = "F"
		}
		b.WriteString(now.Format(time.RFC3339Nano) + " " + stream + " " + tag + " " + part + "\n")
	}
	return b.String()
}

// writeTerminationLog writes a container's last message to its termination log, if that file is
// mounted from the host.
func (c *container) writeTerminationLog(message string) {
	path := c.config.GetAnnotations()[cri.AnnotationTerminationMessagePath]
	for _, m := range c.config.GetMounts() {
		if path != "" && m.GetContainerPath() == path {
			// A real process does not check for an error here either.
			_ = os.WriteFile(m.GetHostPath(), []byte(message), 0o644)
		}
	}
}
