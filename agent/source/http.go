package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/internal/pods"
)

const (
	// DefaultPoll is how often the source reads a URL (the kubelet's httpCheckFrequency).
	DefaultPoll = 20 * time.Second
	// fetchTimeout is the limit for one read of a URL (the kubelet's value).
	fetchTimeout = 10 * time.Second
)

// HTTPConfig is the configuration of an [HTTP].
type HTTPConfig struct {
	// URL is the address of manifests of pods and local objects (staticPodURL). The manifests have
	// the same format as in a file.
	URL string
	// Header is sent with every request (staticPodURLHeader).
	Header http.Header
	// NodeName is the node's name.
	NodeName string
	// Poll is how often the source reads the URL (httpCheckFrequency). 0 means DefaultPoll.
	Poll time.Duration
}

// HTTPDeps are the dependencies of an [HTTP].
type HTTPDeps struct {
	Logger *slog.Logger
	// Client sends the requests. If it is nil, the source makes its own client.
	Client *http.Client
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// LastGood has the same meaning as in [FileDeps].
	LastGood func(url string) []*v1.Pod
}

// HTTP is the source of a manifest URL. It is a [Source]. It keeps the rules of the manifest
// directory: a manifest that turned bad removes nothing, and a URL that cannot be read removes
// nothing.
type HTTP struct {
	cfg  HTTPConfig
	deps HTTPDeps
	// name is the URL without its password, for logs and results.
	name string

	// Run owns all fields below.
	known  *manifests
	items  []Item
	kept   []Item
	etag   string
	dated  string // the Last-Modified of the last response
	ready  bool
	failed string // why the URL cannot be read
	last   *Snapshot
}

// NewHTTP returns a source for a manifest URL. The source does nothing until Run.
func NewHTTP(cfg HTTPConfig, deps HTTPDeps) *HTTP {
	if cfg.Poll <= 0 {
		cfg.Poll = DefaultPoll
	}
	if deps.Client == nil {
		deps.Client = &http.Client{}
	}
	if deps.Now == nil {
		deps.Now = time.Now
	}
	return &HTTP{cfg: cfg, deps: deps, name: configs.WithoutPassword(cfg.URL), known: &manifests{
		decoder: Decoder{NodeName: cfg.NodeName, URL: true}, now: deps.Now, files: map[string]*manifest{},
	}}
}

// Name returns [pods.SourceHTTP].
func (h *HTTP) Name() string { return pods.SourceHTTP }

// Run reads the URL now and once in every poll interval, until ctx ends. The caller calls Run once.
// Run never gives up.
func (h *HTTP) Run(ctx context.Context, out func(Snapshot)) error {
	tick := time.NewTicker(h.cfg.Poll)
	defer tick.Stop()
	for {
		h.read(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if s := h.snapshot(); h.last == nil || !sameSnapshot(h.last, &s) {
			h.last = &s
			out(s)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// errUnchanged means that the content of the URL did not change since the last read.
var errUnchanged = errors.New("not modified")

// read reads the URL and updates the state of the source.
func (h *HTTP) read(ctx context.Context) {
	data, err := h.fetch(ctx)
	switch {
	case errors.Is(err, errUnchanged):
		h.failed = ""
		return
	case err != nil:
		if h.failed == "" && ctx.Err() == nil {
			h.deps.Logger.Warn("manifests of a URL not read; what was read last stays", "url", h.name, "err", err)
		}
		h.failed = err.Error()
		return
	}
	h.failed, h.ready = "", true
	before := append(accepted(h.items), h.kept...)
	if h.last == nil && h.deps.LastGood != nil {
		for _, pod := range h.deps.LastGood(h.name) {
			before = append(before, Item{Pod: pod, Result: Result{
				File: h.name, Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Accepted: true,
			}})
		}
	}
	h.items, h.kept = h.known.decoder.Decode(h.name, data), nil
	for i := range h.items {
		refuseChange(&h.items[i], before)
		reuse(&h.items[i], before)
	}
	if slices.ContainsFunc(h.items, func(i Item) bool { return !i.Result.Accepted }) {
		h.kept = without(before, accepted(h.items))
	}
}

// fetch returns the content of the URL, or errUnchanged.
func (h *HTTP) fetch(ctx context.Context) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, h.cfg.URL, nil)
	if err != nil {
		return nil, err
	}
	for name, values := range h.cfg.Header {
		req.Header[name] = slices.Clone(values)
	}
	if h.etag != "" {
		req.Header.Set("If-None-Match", h.etag)
	} else if h.dated != "" {
		req.Header.Set("If-Modified-Since", h.dated)
	}
	resp, err := h.deps.Client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusNotModified && h.ready:
		return nil, errUnchanged
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%s answers %s", h.name, resp.Status)
	}
	data, err := io.ReadAll(io.LimitReader(resp.Body, MaxManifest+1))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", h.name, err)
	}
	if len(data) > MaxManifest {
		return nil, fmt.Errorf("%s has more than %d bytes", h.name, MaxManifest)
	}
	h.etag, h.dated = resp.Header.Get("ETag"), resp.Header.Get("Last-Modified")
	return data, nil
}

// snapshot returns what the URL wants.
func (h *HTTP) snapshot() Snapshot {
	s := Snapshot{Source: pods.SourceHTTP, Ready: h.ready}
	if h.failed != "" {
		s.Results = append(s.Results, Result{File: h.name, Message: h.failed})
	}
	owners := NewClaims()
	for i, item := range slices.Concat(h.items, h.kept) {
		v := item.Result
		if v.Accepted {
			if conflict := owners.Claim(item, fmt.Sprint(i)); conflict == "" {
				s.add(item)
			} else {
				v.Accepted, v.UID, v.Message = false, "",
					fmt.Sprintf("duplicate: %s %s is in the manifest twice", v.Kind, fullName(v.Namespace, v.Name))
			}
		}
		if i >= len(h.items) {
			v.Kept, v.Warnings = v.Accepted, []string{keptWarning}
		}
		s.Results = append(s.Results, v)
	}
	h.known.date(&s)
	return s
}
