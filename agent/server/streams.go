package server

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/proxy"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/klog/v2"
	"k8s.io/streaming/pkg/httpstream/wsstream"

	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/cri"
)

// exec opens a command's streams in a container by SPDY or WebSocket:
// ?command=…&input=1&output=1&error=1&tty=1.
func (s *Server) exec(w http.ResponseWriter, r *http.Request) {
	s.openStream(w, r, func(ctx context.Context, _ *v1.Pod, id string, want wanted) (string, error) {
		cmd := r.URL.Query()["command"]
		if len(cmd) == 0 {
			return "", failure(http.StatusBadRequest, "you must specify at least one command")
		}
		return s.deps.Runtime.Exec(ctx, &runtimeapi.ExecRequest{
			ContainerId: id, Cmd: cmd, Stdin: want.stdin, Stdout: want.stdout, Stderr: want.stderr, Tty: want.tty,
		})
	})
}

// attach opens the streams of a container's own process. The pod says whether the process has a
// terminal, not the caller: if a runtime is asked for the standard error of a terminal, it waits
// for ever for the end of that stream.
func (s *Server) attach(w http.ResponseWriter, r *http.Request) {
	s.openStream(w, r, func(ctx context.Context, pod *v1.Pod, id string, want wanted) (string, error) {
		name := r.PathValue("container")
		tty := api.HasTerminal(pod, name)
		if tty && want.stderr {
			return "", failure(http.StatusBadRequest,
				"tty and stderr cannot both be true: container %q has a terminal, attach to it with one (-it)", name)
		}
		return s.deps.Runtime.Attach(ctx,
			&runtimeapi.AttachRequest{
				ContainerId: id,
				Stdin:       want.stdin,
				Stdout:      want.stdout,
				Stderr:      want.stderr,
				Tty:         tty,
			})
	})
}

// wanted are the streams that a caller asks for.
type wanted struct{ stdin, stdout, stderr, tty bool }

func wantedOf(query url.Values) (wanted, error) {
	on := func(name string) bool { return query.Get(name) == "1" || query.Get(name) == "true" }
	w := wanted{stdin: on("input"), stdout: on("output"), stderr: on("error"), tty: on("tty")}
	w.stderr = w.stderr && !w.tty // a terminal has one output stream
	if !w.stdin && !w.stdout && !w.stderr {
		return w, failure(http.StatusBadRequest,
			"you must specify at least 1 of stdin, stdout, stderr (input=1, output=1, error=1)")
	}
	return w, nil
}

// openStream finds the container, asks the runtime for a stream's URL, and connects the caller with
// it.
func (s *Server) openStream(
	w http.ResponseWriter, r *http.Request,
	open func(ctx context.Context, pod *v1.Pod, id string, want wanted) (string, error),
) {
	want, err := wantedOf(r.URL.Query())
	if err == nil {
		err = upgrading(r)
	}
	var pod *v1.Pod
	var id, target string
	if err == nil {
		pod, id, err = s.running(r)
	}
	if err == nil {
		target, err = open(r.Context(), pod, id, want)
	}
	if err != nil {
		failWith(w, err)
		return
	}
	if !wsstream.IsWebSocketRequestWithStreamCloseProtocol(r) {
		s.connect(w, r, target)
		return
	}
	location, dial, err := streamTarget(target)
	if err != nil {
		failWith(w, err)
		return
	}
	s.translate(w, r, want, location, closeIdle(dial, s.cfg.StreamIdle))
}

// portForward opens connections into a pod's network namespace. SPDY names the ports in its
// streams, a WebSocket in ?port=.
func (s *Server) portForward(w http.ResponseWriter, r *http.Request) {
	ports, err := portsOf(r.URL.Query())
	if err == nil {
		err = upgrading(r)
	}
	var pod *v1.Pod
	if err == nil {
		pod, err = s.podOf(r)
	}
	var sandbox, target string
	if err == nil {
		sandbox, err = s.sandbox(r.Context(), pod)
	}
	if err == nil {
		target, err = s.deps.Runtime.PortForward(r.Context(),
			&runtimeapi.PortForwardRequest{PodSandboxId: sandbox, Port: ports})
	}
	if err != nil {
		failWith(w, err)
		return
	}
	s.connect(w, r, target)
}

func portsOf(query url.Values) ([]int32, error) {
	var ports []int32
	for _, values := range query["port"] {
		for text := range strings.SplitSeq(values, ",") {
			n, err := strconv.ParseUint(text, 10, 16)
			if err != nil || n == 0 {
				return nil, failure(http.StatusBadRequest, "port %q: must be a number from 1 to 65535", text)
			}
			ports = append(ports, int32(n))
		}
	}
	return ports, nil
}

// sandbox returns the id of the pod's running sandbox.
func (s *Server) sandbox(ctx context.Context, pod *v1.Pod) (string, error) {
	list, err := s.deps.Runtime.ListPodSandbox(ctx, &runtimeapi.PodSandboxFilter{
		State:         &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY},
		LabelSelector: map[string]string{cri.LabelPodUID: string(pod.UID)},
	})
	if err != nil {
		return "", err
	}
	if len(list) == 0 {
		return "", failure(http.StatusBadRequest, "pod %q has no sandbox that runs: see \"berth why %s/%s\"", pod.Name,
			pod.Namespace, pod.Name)
	}
	return list[0].Id, nil
}

// running returns the pod and the container id of a request. The container must run.
func (s *Server) running(r *http.Request) (*v1.Pod, string, error) {
	pod, err := s.podOf(r)
	if err != nil {
		return nil, "", err
	}
	name := r.PathValue("container")
	if err := hasContainer(pod, name); err != nil {
		return nil, "", err
	}
	status := containerStatus(pod, name)
	if !started(status) {
		// Scripts look for the first words, which are the kubelet's.
		return nil, "", failure(http.StatusBadRequest,
			"container not found (%q): it does not run in pod %q (%s): see \"berth why %s/%s\"",
			name, pod.Name, stateWord(status), pod.Namespace, pod.Name)
	}
	return pod, rawID(status.ContainerID), nil
}

// started reports whether a container may run. A container whose postStart hook has not ended is
// waiting in the pod's status, but people want to look into hooks that hang.
func started(s *v1.ContainerStatus) bool {
	if s == nil || s.State.Waiting == nil {
		return s != nil && s.State.Running != nil
	}
	last := s.LastTerminationState.Terminated
	return s.ContainerID != "" && (last == nil || last.ContainerID != s.ContainerID)
}

func stateWord(status *v1.ContainerStatus) string {
	switch {
	case status == nil:
		return "not created yet"
	case status.State.Waiting != nil && status.State.Waiting.Reason != "":
		return status.State.Waiting.Reason
	case status.State.Terminated != nil:
		return "ended with exit code " + strconv.Itoa(int(status.State.Terminated.ExitCode))
	}
	return "waiting"
}

// upgrading refuses requests without an upgrade before anything is started for them.
func upgrading(r *http.Request) error {
	for _, value := range r.Header.Values("Connection") {
		for token := range strings.SplitSeq(value, ",") {
			if strings.EqualFold(strings.TrimSpace(token), "upgrade") && r.Header.Get("Upgrade") != "" {
				return nil
			}
		}
	}
	return failure(http.StatusBadRequest, "Upgrade request required: use SPDY/3.1 or a WebSocket")
}

// connect connects the caller with the runtime's streaming server until one side ends the
// connection. It follows no redirect.
func (s *Server) connect(w http.ResponseWriter, r *http.Request, target string) {
	location, dial, err := streamTarget(target)
	if err != nil {
		failWith(w, err)
		return
	}
	transport := &http.Transport{DialContext: closeIdle(dial, s.cfg.StreamIdle), DisableKeepAlives: true, Proxy: nil}
	handler := proxy.NewUpgradeAwareHandler(location, transport, false, true, responder{s})
	handler.UpgradeTransport = proxy.NewUpgradeRequestRoundTripper(transport, proxy.MirrorRequest)
	handler.UseLocationHost = true
	handler.RejectForwardingRedirects = true
	// The library logs the end of every connection as an error.
	handler.ServeHTTP(w, r.WithContext(klog.NewContext(r.Context(), klog.Logger{})))
}

type dialFunc = func(ctx context.Context, network, address string) (net.Conn, error)

// streamTarget checks the target of a stream's URL: http to a loopback address, or
// unix:///SOCKET:/PATH. Through any other target, the caller could reach what it cannot reach
// itself.
func streamTarget(target string) (*url.URL, dialFunc, error) {
	u, err := url.Parse(target)
	if err != nil {
		return nil, nil, failure(http.StatusBadGateway, "the runtime gave the stream's URL %q: %v", target, err)
	}
	var dialer net.Dialer
	switch u.Scheme {
	case "unix":
		socket, path, ok := strings.Cut(u.Path, ":")
		if !ok || u.Host != "" || !strings.HasPrefix(path, "/") {
			break
		}
		location := &url.URL{Scheme: "http", Host: "localhost", Path: path, RawQuery: u.RawQuery}
		return location, func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", socket)
		}, nil
	case "http":
		if u.User == nil && loopback(u.Hostname()) {
			return u, func(ctx context.Context, network, address string) (net.Conn, error) {
				return dialer.DialContext(ctx, network, address)
			}, nil
		}
	}
	return nil, nil, failure(http.StatusBadGateway,
		"the runtime wants streams to go to %s://%s, but only loopback addresses and unix sockets are allowed: set "+
			"its stream server's address to 127.0.0.1", u.Scheme, u.Host)
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsLoopback()
}

// responder answers when a stream cannot be opened.
type responder struct{ s *Server }

// Error answers with what went wrong.
func (p responder) Error(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, context.Canceled) {
		return
	}
	p.s.log.Warn("stream not opened", "path", r.URL.Path, "err", err)
	fail(w, http.StatusBadGateway, "opening the stream at the runtime: %v", err)
}

// run runs a command (?cmd=WORDS SEPARATED BY SPACES) and answers with its output. An exit code
// other than 0 is an error.
func (s *Server) run(w http.ResponseWriter, r *http.Request) {
	cmd := strings.Fields(r.URL.Query().Get("cmd"))
	if len(cmd) == 0 {
		fail(w, http.StatusBadRequest, "you must specify a command: ?cmd=")
		return
	}
	_, id, err := s.running(r)
	if err != nil {
		failWith(w, err)
		return
	}
	resp, err := s.deps.Runtime.ExecSync(r.Context(), id, cmd, 0)
	sendWithin(w, plainTimeout)
	if err != nil {
		failWith(w, err)
		return
	}
	output := append(resp.Stdout, resp.Stderr...)
	if resp.ExitCode != 0 {
		fail(w, http.StatusInternalServerError, "command '%s' exited with %d: %s", strings.Join(cmd, " "),
			resp.ExitCode, output)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(output)
}
