package native

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/pkg/cio"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// containerIO carries a container's output from its pipes to its log and to whoever is attached,
// and input to the container. The shim holds the other ends of the pipes, so a restart of berth
// loses nothing: the container waits when a pipe is full, until somebody reads it again.
type containerIO struct {
	dir    string
	config *runtimeapi.ContainerConfig
	log    *logger
	stdin  *input // nil without one

	mu       sync.Mutex
	attached map[*attached]bool
	copying  cio.IO // nil before the start
	closed   bool
}

// attached is somebody who gets the output from now on.
type attached struct{ stdout, stderr io.Writer }

// input is what a container reads. It outlives those who write to it.
type input struct {
	*io.PipeReader
	writer *io.PipeWriter
}

// openIO opens the log and makes the directory of the pipes.
func openIO(dir, logPath string, config *runtimeapi.ContainerConfig) (*containerIO, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the directory of its pipes: %w", err)
	}
	log, err := openLogger(logPath)
	if err != nil {
		return nil, err
	}
	c := &containerIO{dir: dir, config: config, log: log, attached: map[*attached]bool{}}
	if config.GetStdin() {
		reader, writer := io.Pipe()
		c.stdin = &input{reader, writer}
	}
	return c, nil
}

// create makes the pipes and copies what comes out of them ([cio.Creator]).
func (c *containerIO) create(string) (cio.IO, error) {
	pipes := cio.Config{Terminal: c.config.GetTty(), Stdout: filepath.Join(c.dir, "stdout")}
	if c.config.GetStdin() {
		pipes.Stdin = filepath.Join(c.dir, "stdin")
	}
	if !c.config.GetTty() {
		pipes.Stderr = filepath.Join(c.dir, "stderr")
	}
	return c.attach(cio.NewFIFOSet(pipes, nil))
}

// attach copies what comes out of pipes.
func (c *containerIO) attach(set *cio.FIFOSet) (cio.IO, error) {
	var stdin io.Reader
	if c.stdin != nil {
		stdin = c.stdin
	}
	copying, err := cio.NewAttach(cio.WithStreams(stdin, c.output(stdoutStream), c.output(stderrStream)))(set)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.copying = copying
	return copying, nil
}

// output returns the writer of a stream.
func (c *containerIO) output(stream string) io.Writer {
	return writerFunc(func(p []byte) (int, error) {
		c.log.write(stream, p)
		c.mu.Lock()
		var to []*attached
		for a := range c.attached {
			to = append(to, a)
		}
		c.mu.Unlock()
		for _, a := range to {
			w := a.stdout
			if stream == stderrStream {
				w = a.stderr
			}
			if w == nil {
				continue
			}
			if _, err := w.Write(p); err != nil {
				c.leave(a) // it is gone
			}
		}
		return len(p), nil
	})
}

type writerFunc func([]byte) (int, error)

// Write implements [io.Writer].
func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// join adds somebody who gets the output from now on. A slow reader slows the container down.
func (c *containerIO) join(a *attached) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.attached[a] = true
}

func (c *containerIO) leave(a *attached) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.attached, a)
}

// drain waits until everything that an ended container has written is in the log, but not longer
// than the limit, and closes the log.
func (c *containerIO) drain(limit time.Duration) {
	c.mu.Lock()
	copying := c.copying
	c.mu.Unlock()
	if copying != nil {
		waitIO(copying, limit)
	}
	c.close(fullTag)
}

// waitIO waits until all output is copied, and stops the copying at the limit.
func waitIO(copying cio.IO, limit time.Duration) {
	stop := time.AfterFunc(limit, copying.Cancel)
	defer stop.Stop()
	copying.Wait()
}

// close ends the copying and closes the log. The last line, if it has no end, gets the tag. Closing
// twice is allowed.
func (c *containerIO) close(tag string) {
	c.mu.Lock()
	copying, closed := c.copying, c.closed
	c.closed = true
	c.mu.Unlock()
	if closed {
		return
	}
	if c.stdin != nil {
		_ = c.stdin.Close()
	}
	if copying != nil {
		copying.Cancel()
		copying.Wait()
		_ = copying.Close()
	}
	c.log.close(tag)
}
