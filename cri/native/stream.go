package native

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"k8s.io/utils/exec"

	"github.com/berthd/berth/cri/native/output"
)

// headerTimeout bounds the time in which a client must send its request, and maxHeader the bytes
// that net/http keeps of it. Any process of the machine can connect.
const (
	headerTimeout = 10 * time.Second
	maxHeader     = 16 << 10
)

// start serves streams at an address. Each URL has a token that works once, for a minute.
func (s *streamServer) start(r *Runtime, address string) error {
	l, err := (&net.ListenConfig{}).Listen(r.closing, "tcp", address)
	if err != nil {
		return fmt.Errorf("serve streams: %w", err)
	}
	config := streaming.DefaultConfig
	config.BaseURL = &url.URL{Scheme: "http", Host: l.Addr().String()}
	if s.streaming, err = streaming.NewServer(config, &streamRuntime{r}); err != nil {
		return errors.Join(fmt.Errorf("serve streams: %w", err), l.Close())
	}
	s.serve(r.closing, l, guardStreams(s.streaming))
	return nil
}

// serve answers on a listener until stop.
func (s *streamServer) serve(life context.Context, l net.Listener, handler http.Handler) {
	bounded := &streamListener{Listener: l}
	s.http = &http.Server{
		Handler: handler, ReadHeaderTimeout: headerTimeout, IdleTimeout: headerTimeout,
		MaxHeaderBytes: maxHeader,
		BaseContext:    func(net.Listener) context.Context { return life },
		ConnContext:    lasting, ConnState: bounded.changed,
	}
	s.serving.Go(func() { _ = s.http.Serve(bounded) }) // ends with stop
}

// stop ends all streams.
func (s *streamServer) stop() {
	if s.http != nil {
		_ = s.http.Close()
	}
	s.serving.Wait()
}

// Exec implements [cri.StreamRuntime].
func (r *Runtime) Exec(_ context.Context, req *runtimeapi.ExecRequest) (string, error) {
	c, err := r.store.container(req.GetContainerId())
	if err != nil {
		return "", err
	}
	if _, err := c.running(); err != nil {
		return "", err
	}
	resp, err := r.stream.streaming.GetExec(req)
	if err != nil {
		return "", err
	}
	return withStreams(resp.GetUrl(), req.GetStdin(), req.GetStdout(), req.GetStderr(), req.GetTty()), nil
}

// Attach implements [cri.StreamRuntime].
func (r *Runtime) Attach(_ context.Context, req *runtimeapi.AttachRequest) (string, error) {
	c, err := r.store.container(req.GetContainerId())
	if err != nil {
		return "", err
	}
	if _, err := c.running(); err != nil {
		return "", err
	}
	resp, err := r.stream.streaming.GetAttach(req)
	if err != nil {
		return "", err
	}
	return withStreams(resp.GetUrl(), req.GetStdin(), req.GetStdout(), req.GetStderr(), req.GetTty()), nil
}

// PortForward implements [cri.StreamRuntime].
func (r *Runtime) PortForward(_ context.Context, req *runtimeapi.PortForwardRequest) (string, error) {
	if _, err := r.store.sandbox(req.GetPodSandboxId()); err != nil {
		return "", err
	}
	resp, err := r.stream.streaming.GetPortForward(req)
	return resp.GetUrl(), err
}

// streamRuntime does what the streams are for.
type streamRuntime struct{ *Runtime }

var _ streaming.Runtime = (*streamRuntime)(nil)

// Exec implements [streaming.Runtime]. The command may outlast its client; see [leftCommands].
func (s *streamRuntime) Exec(
	ctx context.Context, id string, args []string, in io.Reader, out, errOut io.WriteCloser, tty bool,
	resize <-chan remotecommand.TerminalSize,
) error {
	c, err := s.store.container(id)
	if err != nil {
		return err
	}
	cmd := command{args: args, tty: tty, stdin: in, resize: resize}
	if out != nil {
		cmd.stdout = out
	}
	if errOut != nil {
		cmd.stderr = errOut
	}
	ctx, ended := s.stream.left.outlive(ctx, s.closing, id)
	defer ended()
	code, err := s.exec(ctx, c, cmd)
	if err != nil {
		return err
	}
	if code != 0 {
		return &exec.CodeExitError{Err: fmt.Errorf("the command ended with exit code %d", code), Code: int(code)}
	}
	return nil
}

// Attach implements [streaming.Runtime]. It lasts until the container or the client ends.
func (s *streamRuntime) Attach(
	ctx context.Context, id string, in io.Reader, out, errOut io.WriteCloser, tty bool,
	resize <-chan remotecommand.TerminalSize,
) error {
	c, err := s.store.container(id)
	if err != nil {
		return err
	}
	task, err := c.running()
	if err != nil {
		return err
	}
	ctx = namespaces.WithNamespace(ctx, s.cfg.Namespace)
	c.mu.Lock()
	streams, ended := c.io, c.ended
	c.mu.Unlock()
	who := &output.Attached{}
	if out != nil {
		who.Stdout = out
	}
	if errOut != nil {
		who.Stderr = errOut
	}
	streams.Join(who)
	defer streams.Leave(who)
	if in != nil && streams.stdin != nil {
		// It ends with the input, or with the client's connection, which is closed when this returns.
		// Then the container has some time to read what has come already.
		feeding, cancel := context.WithCancel(s.closing)
		defer func() { time.AfterFunc(drainTime, cancel) }()
		if err := s.groups.Go(func() { s.feed(feeding, streams, task, in) }); err != nil {
			return err
		}
	}
	for {
		select {
		case size, ok := <-resize:
			if !ok {
				resize = nil
			} else {
				_ = task.Resize(ctx, uint32(size.Width), uint32(size.Height)) // the next size comes soon
			}
		case <-ended:
			return nil
		case <-ctx.Done():
			return nil
		}
	}
}

// feed copies a client's input to a container. With stdin_once, the first client's end is the end
// of the container's input.
func (s *streamRuntime) feed(ctx context.Context, streams *containerIO, task client.Task, in io.Reader) {
	streams.stdin.feed(ctx, in)
	if streams.config.GetStdinOnce() {
		streams.stdin.end()
		_ = task.CloseIO(s.closing, client.WithStdinCloser)
	}
}

// removeAll removes files that may be gone; an empty name is none.
func removeAll(paths ...string) error {
	var errs []error
	for _, p := range paths {
		if p == "" {
			continue
		}
		if err := os.Remove(p); err != nil && !os.IsNotExist(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// ReopenContainerLog implements [cri.ContainerRuntime].
func (r *Runtime) ReopenContainerLog(_ context.Context, id string) error {
	c, err := r.store.container(id)
	if err != nil {
		return err
	}
	if _, err := c.running(); err != nil {
		return fmt.Errorf("reopen its log: %w", err)
	}
	c.mu.Lock()
	streams := c.io
	c.mu.Unlock()
	if err := streams.Reopen(); err != nil {
		return fmt.Errorf("reopen the log of container %s: %w", id, err)
	}
	return nil
}
