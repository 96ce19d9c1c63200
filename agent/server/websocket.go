package server

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	constants "k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/berthd/berth/client/streams"
	"github.com/berthd/berth/internal/streamguard"
)

// The channels of a WebSocket with a command's streams. The numbers are those of the protocol.
const (
	stdinChannel = iota
	stdoutChannel
	stderrChannel
	errorChannel
	resizeChannel
	channelCount
)

// translate serves the streams of a command or container on a WebSocket of protocol v5, which can
// report the end of the input. To the runtime, it uses SPDY, because runtimes support WebSockets of
// v4 only. It returns when the command has ended, or when one side has left.
func (s *Server) translate(w http.ResponseWriter, r *http.Request, want wanted, location *url.URL, dial dialFunc) {
	conn := wsstream.NewConn(map[string]wsstream.ChannelProtocolConfig{
		constants.StreamProtocolV5Name: {Binary: true, Channels: want.channels()},
	})
	// The library logs every end of a connection as an error.
	r = r.WithContext(klog.NewContext(r.Context(), klog.Logger{}))
	// The library keeps each message whole.
	guarded := streamguard.Writer(w, func(from io.Reader, _ func()) io.Reader { return streamguard.Messages(from, true) })
	_, ends, err := conn.Open(guarded, r)
	if err != nil {
		// The caller already has an answer.
		s.log.Debug("WebSocket not opened", "path", r.URL.Path, "err", err)
		return
	}
	defer conn.Close() //nolint:errcheck // nothing is to be written any more
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	sizes := newSizes(ctx)
	resized := make(chan struct{})
	go func() {
		defer close(resized)
		sizes.read(ends[resizeChannel])
		cancel() // this stream does not end before the connection
	}()
	err = streams.Run(ctx, dial, location, want.options(ends, sizes))
	// A caller who has left does not receive this.
	_ = json.NewEncoder(ends[errorChannel]).Encode(statusOf(err))
	_ = conn.Close()
	<-resized
}

// channels returns the channels that a caller gets. The server ignores the channels that the caller
// did not ask for.
func (w wanted) channels() []wsstream.ChannelType {
	channels := make([]wsstream.ChannelType, channelCount)
	for channel, on := range map[int]bool{stdinChannel: w.stdin, resizeChannel: true} {
		if on {
			channels[channel] = wsstream.ReadChannel
		}
	}
	for channel, on := range map[int]bool{stdoutChannel: w.stdout, stderrChannel: w.stderr, errorChannel: true} {
		if on {
			channels[channel] = wsstream.WriteChannel
		}
	}
	return channels
}

// options returns the ends of the streams towards the runtime.
func (w wanted) options(ends []io.ReadWriteCloser, sizes *sizes) remotecommand.StreamOptions {
	opts := remotecommand.StreamOptions{Tty: w.tty}
	if w.stdin {
		opts.Stdin = ends[stdinChannel]
	}
	if w.stdout {
		opts.Stdout = ends[stdoutChannel]
	}
	if w.stderr {
		opts.Stderr = ends[stderrChannel]
	}
	if w.tty {
		opts.TerminalSizeQueue = sizes
	}
	return opts
}

// statusOf returns how a command ended, in the form that clients of the protocol expect.
func statusOf(err error) metav1.Status {
	var code exec.CodeExitError
	switch {
	case err == nil:
		return metav1.Status{Status: metav1.StatusSuccess}
	case errors.As(err, &code):
		return metav1.Status{
			Status: metav1.StatusFailure, Reason: constants.NonZeroExitCodeReason, Message: err.Error(),
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{
				Type: constants.ExitCodeCauseType, Message: strconv.Itoa(code.Code),
			}}},
		}
	}
	return metav1.Status{
		Status:  metav1.StatusFailure,
		Reason:  metav1.StatusReasonInternalError,
		Code:    http.StatusInternalServerError,
		Message: err.Error(),
	}
}

// sizes passes on the sizes of the caller's terminal.
type sizes struct {
	ctx  context.Context //nolint:containedctx // the queue that asks has none
	next chan remotecommand.TerminalSize
}

func newSizes(ctx context.Context) *sizes {
	return &sizes{ctx: ctx, next: make(chan remotecommand.TerminalSize)}
}

// maxSize bounds one size of a terminal in bytes.
const maxSize = 1 << 10

// read reads sizes until the stream ends, or sends what is too long for a size. Without a terminal,
// nobody reads them.
func (q *sizes) read(stream io.Reader) {
	limited := &io.LimitedReader{R: stream}
	in := json.NewDecoder(limited)
	for {
		var size remotecommand.TerminalSize
		if limited.N = maxSize; in.Decode(&size) != nil {
			return
		}
		select {
		case q.next <- size:
		case <-q.ctx.Done():
			return
		}
	}
}

// Next waits for the next size; nil at the end.
func (q *sizes) Next() *remotecommand.TerminalSize {
	select {
	case size := <-q.next:
		return &size
	case <-q.ctx.Done():
		return nil
	}
}
