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
)

// The channels of a WebSocket that carries a command's streams, by their numbers in the protocol.
const (
	stdinChannel = iota
	stdoutChannel
	stderrChannel
	errorChannel
	resizeChannel
	channelCount
)

// translate serves a command's or container's streams on a WebSocket of protocol v5, which can say that the input has ended, and carries them to the runtime by
// SPDY: runtimes know WebSockets of v4 only. It returns when the command has ended, or one of the two sides has gone.
func (s *Server) translate(w http.ResponseWriter, r *http.Request, want wanted, location *url.URL, dial dialFunc) {
	conn := wsstream.NewConn(map[string]wsstream.ChannelProtocolConfig{
		constants.StreamProtocolV5Name: {Binary: true, Channels: want.channels()},
	})
	r = r.WithContext(klog.NewContext(r.Context(), klog.Logger{})) // the library logs every end as an error
	_, ends, err := conn.Open(w, r)
	if err != nil {
		s.log.Debug("WebSocket not opened", "path", r.URL.Path, "err", err) // the caller was answered
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
		cancel() // nobody ends this stream before the connection does
	}()
	err = streams.Run(ctx, dial, location, want.options(ends, sizes))
	_ = json.NewEncoder(ends[errorChannel]).Encode(statusOf(err)) // a caller who has gone does not hear it
	_ = conn.Close()
	<-resized
}

// channels are those that a caller gets: what it did not ask for is ignored.
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

// options are the ends of the streams towards the runtime.
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

// statusOf says how a command ended, as clients of the protocol expect it.
func statusOf(err error) metav1.Status {
	var code exec.CodeExitError
	switch {
	case err == nil:
		return metav1.Status{Status: metav1.StatusSuccess}
	case errors.As(err, &code):
		return metav1.Status{
			Status: metav1.StatusFailure, Reason: constants.NonZeroExitCodeReason, Message: err.Error(),
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: constants.ExitCodeCauseType, Message: strconv.Itoa(code.Code)}}},
		}
	}
	return metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError, Code: http.StatusInternalServerError, Message: err.Error()}
}

// sizes hands the sizes of the caller's terminal on.
type sizes struct {
	ctx  context.Context //nolint:containedctx // the queue that asks has none
	next chan remotecommand.TerminalSize
}

func newSizes(ctx context.Context) *sizes {
	return &sizes{ctx: ctx, next: make(chan remotecommand.TerminalSize)}
}

// read reads sizes until the stream ends. Without a terminal nobody asks for them.
func (q *sizes) read(stream io.Reader) {
	in := json.NewDecoder(stream)
	for {
		var size remotecommand.TerminalSize
		if in.Decode(&size) != nil {
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
