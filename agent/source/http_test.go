package source

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/internal/pods"
)

// roundTripper answers requests without a network.
type roundTripper func(*http.Request) (int, http.Header, string)

func (r roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	code, header, body := r(req)
	if code == 0 {
		return nil, fmt.Errorf("connection refused")
	}
	rec := httptest.NewRecorder()
	for k, v := range header {
		rec.Header()[k] = v
	}
	rec.WriteHeader(code)
	rec.WriteString(body)
	return rec.Result(), nil
}

const urlPod = `{apiVersion: v1, kind: Pod, metadata: {name: %s}, spec: {containers: [{name: c, image: i}]}}`

// names are the snapshot's pods, and its bad results.
func names(s *Snapshot) string {
	var out []string
	for _, p := range s.Pods {
		out = append(out, p.Name)
	}
	for _, v := range s.Results {
		if !v.Accepted {
			out = append(out, "refused")
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// The password in a URL is used, and told to nobody.
func TestURLPasswordIsNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		logged := slog.New(slog.NewTextHandler(&log, nil))
		code := http.StatusOK
		client := &http.Client{Transport: roundTripper(func(r *http.Request) (int, http.Header, string) {
			if user, password, ok := r.BasicAuth(); !ok || user != "me" || password != "hunter2" {
				t.Errorf("asked as %s, %s", user, password)
			}
			return code, nil, fmt.Sprintf(urlPod, "a") + "\n---\n{kind: Wrong}\n"
		})}
		h := NewHTTP(HTTPConfig{URL: "http://me:hunter2@x/pods", NodeName: "node"},
			HTTPDeps{Client: client, Logger: logged})
		for _, code = range []int{http.StatusOK, http.StatusForbidden, 0} {
			h.read(t.Context())
			h.last = nil
			s := h.snapshot()
			if told := fmt.Sprintf("%+v %+v %s", s.Results, s.Pods, log.String()); strings.Contains(told, "hunter2") {
				t.Errorf("answer %d: %s", code, told)
			}
		}
	})
}

func TestURL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var code int
		var body string
		var asked []*http.Request
		etag := ""
		client := &http.Client{Transport: roundTripper(func(r *http.Request) (int, http.Header, string) {
			mu.Lock()
			defer mu.Unlock()
			asked = append(asked, r)
			if etag != "" && r.Header.Get("If-None-Match") == etag {
				return http.StatusNotModified, nil, ""
			}
			return code, http.Header{"Etag": {etag}}, body
		})}
		h := NewHTTP(HTTPConfig{URL: "http://x/pods", Header: http.Header{"X-Key": {"secret"}}, NodeName: "node"},
			HTTPDeps{Client: client, Logger: slog.New(slog.DiscardHandler)})
		var last *Snapshot
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			done <- h.Run(ctx, func(s Snapshot) {
				mu.Lock()
				defer mu.Unlock()
				last = &s
			})
		}()
		step := func(what string, c int, b, want string, ready bool) {
			t.Helper()
			mu.Lock()
			code, body = c, b
			mu.Unlock()
			time.Sleep(DefaultPoll)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if last == nil || names(last) != want || last.Ready != ready {
				t.Errorf("%s: %+v, want %q, ready %v", what, last, want, ready)
			}
		}
		pod := func(name string) string { return fmt.Sprintf(urlPod, name) }
		list := `{apiVersion: v1, kind: PodList, items: [` + pod("a") + "," + pod("b") + `]}`
		step("not there", 0, "", "refused", false)
		step("an error", 500, pod("a"), "refused", false)
		step("a pod", 200, pod("a"), "a-node", true)
		if p := last.Pods[0]; len(p.Spec.Tolerations) != 0 || p.Annotations[pods.AnnotationHash] != string(p.UID) {
			t.Errorf("%+v", p)
		}
		first := last.Pods[0]
		step("a list", 200, list, "a-node b-node", true)
		if last.Pods[0].UID != first.UID {
			t.Error("the same pod of the same URL has another UID in a list")
		}
		step("unreadable", 503, "", "a-node b-node refused", true)
		step("bad", 200, "x: [", "a-node b-node refused", true)
		step("half bad", 200, pod("a")+"\n---\n{apiVersion: v1, kind: Pod}", "a-node b-node refused", true)
		step("empty", 200, "", "a-node b-node refused", true)
		step("good again", 200, pod("b"), "b-node", true)
		step("twice the same", 200, pod("c")+"\n---\n"+pod("c"), "c-node refused", true)
		mu.Lock()
		etag = `"1"`
		mu.Unlock()
		step("with a tag", 200, pod("d"), "d-node", true)
		snapshot := last
		step("not modified", 200, "x: [", "d-node", true)
		if last != snapshot {
			t.Error("nothing changed and it was told")
		}
		for _, r := range asked {
			if r.Header.Get("X-Key") != "secret" {
				t.Error("asked without the header")
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A URL that is bad when the agent starts keeps the pods of before.
func TestURLThatIsBadAtTheStartKeepsItsPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &http.Client{Transport: roundTripper(func(*http.Request) (int, http.Header, string) {
			return 200, nil, "x: ["
		})}
		kept := &v1.Pod{}
		kept.Name, kept.UID = "kept", "u"
		h := NewHTTP(HTTPConfig{URL: "http://x/pods"},
			HTTPDeps{Client: client, Logger: slog.New(slog.DiscardHandler), LastGood: func(url string) []*v1.Pod {
				if url != "http://x/pods" {
					t.Errorf("asked about %q", url)
				}
				return []*v1.Pod{kept}
			}})
		ctx, cancel := context.WithCancel(t.Context())
		var last Snapshot
		done := make(chan error)
		go func() { done <- h.Run(ctx, func(s Snapshot) { last = s }) }()
		synctest.Wait()
		if !last.Ready || len(last.Pods) != 1 || last.Pods[0] != kept {
			t.Errorf("%+v", last)
		}
		cancel()
		<-done
	})
}

// UIDs of a URL's pods are a contract with the kubelet: they depend on the URL and not on the node.
func TestURLPodUIDs(t *testing.T) {
	uid := func(node, url string, isURL bool) string {
		return string(Decoder{NodeName: node, URL: isURL}.Decode(url, []byte(fmt.Sprintf(urlPod, "a")))[0].Pod.UID)
	}
	one := uid("n1", "http://x", true)
	if one != uid("n2", "http://x", true) || one == uid("n1", "http://y", true) || one == uid("n1", "http://x", false) {
		t.Error("a UID depends on something else")
	}
}
