package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berthd/berth/client/api"
)

// DefaultSocket is the agent's socket if its config names no other.
const DefaultSocket = "/run/berth/berth.sock"

// callTimeout limits calls that the agent answers at once.
const callTimeout = 30 * time.Second

// maxAnswer limits an answer that is read as a whole, in bytes. A PodList of a thousand pods is
// under 20 MiB.
const maxAnswer = 256 << 20

// NotRunningError is the error of a call if no agent runs.
type NotRunningError struct {
	Socket string
	// Start is the command that starts the agent on this machine, in backquotes.
	Start string
	Err   error
}

// Error says how to start the agent.
func (e *NotRunningError) Error() string {
	return fmt.Sprintf("berth agent is not running (no answer at %s): start it with %s", e.Socket, e.Start)
}

// Unwrap returns the error of the connection.
func (e *NotRunningError) Unwrap() error { return e.Err }

// StatusError is an error in the agent's answer.
type StatusError struct {
	// Code is the HTTP status code.
	Code    int
	Message string
}

// Error returns the agent's message.
func (e *StatusError) Error() string { return e.Message }

// Client calls one agent. Make it with [New].
type Client struct {
	socket string
	http   *http.Client
}

// New returns a client of the agent at the socket: a path, or a URL unix://PATH; empty means
// [DefaultSocket]. It does not connect yet.
func New(socket string) *Client {
	if socket = strings.TrimPrefix(socket, "unix://"); socket == "" {
		socket = DefaultSocket
	}
	c := &Client{socket: socket}
	c.http = &http.Client{
		Transport:     &http.Transport{DialContext: c.dial, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// maxSocket is the longest path of a socket, in bytes (unix(7)).
const maxSocket = 107

// dial connects to the socket; it ignores the address.
func (c *Client) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if len(c.socket) > maxSocket {
		return nil, fmt.Errorf("the path of a socket has at most %d bytes, and this one has %d: %s", maxSocket,
			len(c.socket), c.socket)
	}
	if info, err := os.Stat(c.socket); err == nil && info.Mode()&os.ModeSocket == 0 {
		return nil, fmt.Errorf("%s is not a socket: give the path of the agent's socket", c.socket)
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", c.socket)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ECONNREFUSED):
		return nil, &NotRunningError{Socket: c.socket, Start: startHint(unitDirs()), Err: err}
	case errors.Is(err, fs.ErrPermission):
		return nil, fmt.Errorf(
			"you may not use %s: become root (sudo), or let somebody add you to the socket's group: %w", c.socket, err)
	}
	return conn, err
}

// endpoint makes a URL of a path and a query.
func endpoint(path string, query url.Values) *url.URL {
	return &url.URL{Scheme: "http", Host: "berth", Path: path, RawQuery: query.Encode()}
}

// open sends a request and returns the body of the answer, which the caller closes.
func (c *Client) open(ctx context.Context, u *url.URL) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("asking the agent for %s: %w", u.Path, err)
	}
	// errors come as a Status, also for calls that return no JSON
	req.Header.Set("Accept", "application/json, */*")
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.explain(u, err)
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		return nil, statusError(resp)
	}
	return resp.Body, nil
}

// explain converts a connection error to an error that says what to do.
func (c *Client) explain(u *url.URL, err error) error {
	if gone := (*NotRunningError)(nil); errors.As(err, &gone) {
		return gone
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("the berth agent at %s does not answer: %s: %w", c.socket, logHint(unitDirs()), err)
	}
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	return fmt.Errorf("asking the agent for %s: %w", u.Path, err)
}

// statusError reads the error in the agent's answer.
func statusError(resp *http.Response) error {
	data, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return fmt.Errorf("reading the agent's answer: %w", err)
	}
	var status metav1.Status
	if err := json.Unmarshal(data, &status); err == nil && status.Message != "" {
		return &StatusError{Code: resp.StatusCode, Message: status.Message}
	}
	return &StatusError{
		Code: resp.StatusCode, Message: fmt.Sprintf("%s: %s", resp.Status, strings.TrimSpace(string(data))),
	}
}

// get requests a JSON value.
func (c *Client) get(ctx context.Context, u *url.URL, into any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	body, err := c.open(ctx, u)
	if err != nil {
		return err
	}
	defer body.Close()
	if err := json.NewDecoder(io.LimitReader(body, maxAnswer)).Decode(into); err != nil {
		return fmt.Errorf("reading the agent's answer to %s: %w", u.Path, err)
	}
	return nil
}

// Pods returns the node's pods with their statuses.
func (c *Client) Pods(ctx context.Context) ([]v1.Pod, error) {
	var list v1.PodList
	if err := c.get(ctx, endpoint("/pods", nil), &list); err != nil {
		return nil, err
	}
	return list.Items, nil
}

// Summaries returns the summary of each pod.
func (c *Client) Summaries(ctx context.Context) ([]api.PodSummary, error) {
	var list api.PodList
	if err := c.get(ctx, endpoint(api.PathPods, nil), &list); err != nil {
		return nil, err
	}
	return list.Items, nil
}

// Why returns a pod's timeline and what the pod waits for.
func (c *Client) Why(ctx context.Context, namespace, name string) (*api.Why, error) {
	why := &api.Why{}
	if err := c.get(ctx, endpoint(api.PathWhy+namespace+"/"+name, nil), why); err != nil {
		return nil, err
	}
	return why, nil
}

// Manifests returns the validation results of the manifests, and the files that the agent ignores.
func (c *Client) Manifests(ctx context.Context) (*api.ManifestList, error) {
	list := &api.ManifestList{}
	if err := c.get(ctx, endpoint(api.PathManifests, nil), list); err != nil {
		return nil, err
	}
	return list, nil
}

// PreviousWhy returns the timeline of the last life of a pod before the present one. The pod need
// not exist any more.
func (c *Client) PreviousWhy(ctx context.Context, namespace, name string) (*api.Why, error) {
	why := &api.Why{}
	u := endpoint(api.PathWhy+namespace+"/"+name, url.Values{api.Previous: {"true"}})
	if err := c.get(ctx, u, why); err != nil {
		return nil, err
	}
	return why, nil
}

// Events returns the events since a time, the latest one last; those that the agent has in memory
// if the time is zero.
func (c *Client) Events(ctx context.Context, since time.Time) ([]v1.Event, error) {
	query := url.Values{}
	if !since.IsZero() {
		query.Set(api.Since, since.Format(time.RFC3339Nano))
	}
	var list v1.EventList
	if err := c.get(ctx, endpoint(api.PathEvents, query), &list); err != nil {
		return nil, err
	}
	return list.Items, nil
}

// Stats returns the cpu and memory usage of the node and its pods.
func (c *Client) Stats(ctx context.Context) (*statsapi.Summary, error) {
	summary := &statsapi.Summary{}
	if err := c.get(ctx, endpoint("/stats/summary", url.Values{"only_cpu_and_memory": {"true"}}), summary); err != nil {
		return nil, err
	}
	return summary, nil
}

// Images returns the runtime's images and the running pulls.
func (c *Client) Images(ctx context.Context) (*api.Images, error) {
	images := &api.Images{}
	if err := c.get(ctx, endpoint(api.PathImages, nil), images); err != nil {
		return nil, err
	}
	return images, nil
}

// PruneImages makes the agent remove the images that nothing uses, and returns them. With dryRun
// the agent removes none. It takes as long as the removals do.
func (c *Client) PruneImages(ctx context.Context, dryRun bool) (*api.PrunedImages, error) {
	body, err := json.Marshal(api.PruneRequest{DryRun: dryRun})
	if err != nil {
		return nil, fmt.Errorf("asking the agent to remove images: %w", err)
	}
	pruned := &api.PrunedImages{}
	if err := c.send(ctx, http.MethodPost, endpoint(api.PathImagesPrune, nil), body, pruned); err != nil {
		return nil, err
	}
	return pruned, nil
}

// Version returns the agent's and the runtime's versions.
func (c *Client) Version(ctx context.Context) (*api.Version, error) {
	version := &api.Version{}
	if err := c.get(ctx, endpoint(api.PathVersion, nil), version); err != nil {
		return nil, err
	}
	return version, nil
}

// Settings are the parts of the agent's configuration that decide how manifests become pods.
type Settings struct {
	// ManifestPath is the manifest directory, or the only manifest file (staticPodPath); empty if
	// there is none.
	ManifestPath string
	// Resizes says that a static pod is resized, and not replaced, if only cpu and memory change in
	// its manifest (resizeStaticPods).
	Resizes bool
}

// Settings requests the agent's settings.
func (c *Client) Settings(ctx context.Context) (Settings, error) {
	var config struct {
		Kubelet struct {
			StaticPodPath string `json:"staticPodPath"`
		} `json:"kubeletconfig"`
		Berth struct {
			ResizeStaticPods *bool `json:"resizeStaticPods"`
		} `json:"berth"`
	}
	if err := c.get(ctx, endpoint("/configz", nil), &config); err != nil {
		return Settings{}, err
	}
	resizes := config.Berth.ResizeStaticPods
	return Settings{ManifestPath: config.Kubelet.StaticPodPath, Resizes: resizes != nil && *resizes}, nil
}

// WatchPods calls each with all pods as ADDED, and then with every change. It returns when ctx
// ends, when the agent closes the stream (with nil), or when each returns an error (with that
// error).
func (c *Client) WatchPods(ctx context.Context, each func(api.Change) error) error {
	return watch(ctx, c, endpoint(api.PathPods, url.Values{"watch": {"true"}}), each)
}

// WatchEvents calls each with the kept events and then with new ones. It returns as WatchPods does.
func (c *Client) WatchEvents(ctx context.Context, each func(v1.Event) error) error {
	return watch(ctx, c, endpoint(api.PathEvents, url.Values{"watch": {"true"}}), each)
}

// ErrStreamEnded is the error of a watch that the agent ended, because it stopped or restarted.
var ErrStreamEnded = errors.New("the berth agent ended the stream: it stopped, or is being restarted")

// watch reads server-sent events.
func watch[T any](ctx context.Context, c *Client, u *url.URL, each func(T) error) error {
	body, err := c.open(ctx, u)
	if err != nil {
		return err
	}
	defer body.Close()
	lines := bufio.NewReader(body)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return ErrStreamEnded
		}
		data, ok := strings.CutPrefix(string(line), "data: ")
		if !ok {
			continue
		}
		var value T
		if err := json.Unmarshal([]byte(data), &value); err != nil {
			return fmt.Errorf("reading the agent's answer to %s: %w", u.Path, err)
		}
		if err := each(value); err != nil {
			return err
		}
	}
}

// LogOptions select a part of a container's log.
type LogOptions struct {
	Follow, Previous, Timestamps   bool
	Tail, SinceSeconds, LimitBytes *int64
	Since                          time.Time
}

func (o LogOptions) query() url.Values {
	q := url.Values{}
	for name, on := range map[string]bool{"follow": o.Follow, "previous": o.Previous, "timestamps": o.Timestamps} {
		if on {
			q.Set(name, "true")
		}
	}
	for name, n := range map[string]*int64{
		"tailLines":    o.Tail,
		"sinceSeconds": o.SinceSeconds,
		"limitBytes":   o.LimitBytes,
	} {
		if n != nil {
			q.Set(name, fmt.Sprint(*n))
		}
	}
	if !o.Since.IsZero() {
		q.Set("sinceTime", o.Since.Format(time.RFC3339Nano))
	}
	return q
}

// Logs opens a container's log. The caller closes it.
func (c *Client) Logs(ctx context.Context, namespace, pod, container string, opts LogOptions) (io.ReadCloser, error) {
	return c.open(ctx, endpoint("/containerLogs/"+namespace+"/"+pod+"/"+container, opts.query()))
}
