package native

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/containerd/containerd/v2/pkg/cio"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri/native/output"
)

// containerIO carries a container's output from its pipes to its log and to whoever is attached,
// and input to the container. The shim holds the other ends of the pipes.
type containerIO struct {
	*output.Output
	dir    string
	config *runtimeapi.ContainerConfig
	stdin  *input // nil without one
}

// openIO opens the log and makes the directory of the pipes.
func (r *Runtime) openIO(c *container) (*containerIO, error) {
	dir := r.containerDir(c.id)
	out, err := output.Open(output.Config{
		Dir: dir, LogPath: c.snapshot().LogPath, Terminal: c.config.GetTty(), Logger: r.cfg.Logger,
	})
	if err != nil {
		return nil, err
	}
	streams := &containerIO{Output: out, dir: dir, config: c.config}
	if c.config.GetStdin() {
		streams.stdin = newInput()
	}
	return streams, nil
}

// create makes the pipes and carries what comes out of them ([cio.Creator]).
func (c *containerIO) create(string) (cio.IO, error) {
	if err := c.Begin(); err != nil {
		return nil, err
	}
	return c.taskIO()
}

// resume carries what comes out of the pipes of a container that was made ([cio.Attach]).
func (c *containerIO) resume(*cio.FIFOSet) (cio.IO, error) {
	if err := c.Resume(); err != nil {
		return nil, err
	}
	return c.taskIO()
}

// taskIO copies the input, and returns the pipes in containerd's form.
func (c *containerIO) taskIO() (cio.IO, error) {
	pipes := taskIO{config: cio.Config{
		Terminal: c.config.GetTty(), Stdout: c.Pipe(output.Stdout), Stderr: c.Pipe(output.Stderr),
	}}
	if c.stdin == nil {
		return pipes, nil
	}
	pipes.config.Stdin = filepath.Join(c.dir, "stdin")
	set := cio.NewFIFOSet(cio.Config{Stdin: pipes.config.Stdin}, nil)
	copying, err := cio.NewAttach(cio.WithStreams(c.stdin, nil, nil))(set)
	if err != nil {
		return nil, fmt.Errorf("open a container's input: %w", err)
	}
	c.stdin.mu.Lock()
	defer c.stdin.mu.Unlock()
	c.stdin.copying = copying
	return pipes, nil
}

// taskIO are the pipes of a container, as containerd's client sees them. Its output is read as long
// as the container is watched, whatever the client does with its task, so only the paths count.
type taskIO struct{ config cio.Config }

// Config implements [cio.IO], as do the other methods.
func (t taskIO) Config() cio.Config { return t.config }

// Cancel does nothing.
func (taskIO) Cancel() {}

// Wait does nothing.
func (taskIO) Wait() {}

// Close does nothing.
func (taskIO) Close() error { return nil }

// finish ends the input of an ended container, and waits until its output is in its log.
func (c *containerIO) finish(limit time.Duration) error {
	c.stdin.close()
	return c.Finish(limit)
}

// close ends the copying. A later process of berth goes on with it.
func (c *containerIO) close() {
	c.stdin.close()
	c.Close()
}

// waitIO waits until all output of a command is copied, and stops the copying at the limit.
func waitIO(copying cio.IO, limit time.Duration) {
	stop := time.AfterFunc(limit, copying.Cancel)
	defer stop.Stop()
	copying.Wait()
}
