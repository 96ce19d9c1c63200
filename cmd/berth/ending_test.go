package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/client/api"
)

// serveEnding serves the API of the agent at dir/s at dir/e, too. But its watches begin with the
// current state, report one pod that changes and is removed, and then end.
func serveEnding(dir string) (stop func(), err error) {
	l, err := net.Listen("unix", filepath.Join(dir, "e"))
	if err != nil {
		return nil, err
	}
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: "berth"})
	proxy.Transport = &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", filepath.Join(dir, "s"))
		},
	}
	f := &fakeAgent{dir: dir, began: time.Now()}
	s := &http.Server{
		ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch watched := r.URL.Query().Get("watch") != ""; {
			case watched && r.URL.Path == api.PathPods:
				f.endingPods(w)
			case watched && r.URL.Path == api.PathEvents:
				f.endingEvents(w)
			default:
				proxy.ServeHTTP(w, r)
			}
		}),
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Serve(l)
	}()
	return func() {
		s.Close()
		<-ended
	}, nil
}

func tell(w http.ResponseWriter, value any) {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	fmt.Fprintf(w, "data: %s\n\n", data)
}

func (f *fakeAgent) endingPods(w http.ResponseWriter) {
	var web api.PodSummary
	for _, p := range f.Pods() {
		tell(w, api.Change{Type: api.Added, Pod: api.Summarize(p)})
		if p.Name == "web-node" {
			web = api.Summarize(p)
		}
	}
	web.Ready = 1
	tell(w, api.Change{Type: api.Modified, Pod: web})
	tell(w, api.Change{Type: api.Deleted, Pod: web})
}

func (f *fakeAgent) endingEvents(w http.ResponseWriter) {
	events := f.Events()
	for i := range events {
		tell(w, &events[i])
	}
	killing := *events[2].DeepCopy()
	killing.Type, killing.Reason, killing.Message = v1.EventTypeNormal, "Killing", "Stopping container main"
	tell(w, &killing)
}
