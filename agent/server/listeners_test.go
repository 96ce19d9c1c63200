package server

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/telemetry/metrics"
	"github.com/berthd/berth/client/api"
)

// Each listener has its own places: with those of the read-only port all taken, the socket and the
// API's port answer as before.
func TestListenersTakeNothingOfEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, m := &fixture{pods: []*v1.Pod{webPod()}}, &measured{done: make(chan struct{})}
		s, err := New(Config{Handlers: Handlers{Debugging: true}}, f, Deps{
			Runtime: f,
			Stats:   m,
			Guard:   &doorkeeper{},
			Metrics: metrics.New("node", "v1"),
			Logger:  slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		readOnly := s.readOnlyRoutes()
		ask := func(h http.Handler, path string) int {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
			return w.Code
		}
		for range maxSlow - reserved[slow] { // none of these requests is the first of its connection
			go func() {
				if code := ask(readOnly, "/stats/summary"); code != http.StatusOK {
					t.Errorf("a request with a place: %d", code)
				}
			}()
		}
		synctest.Wait()
		if code := ask(readOnly, "/stats/summary"); code != http.StatusTooManyRequests {
			t.Errorf("one too many: %d", code)
		}
		for name, h := range map[string]http.Handler{"socket": s.socketRoutes(), "API": s.apiRoutes()} {
			for range maxSlow {
				if code := ask(h, "/runningpods/"); code != http.StatusOK {
					t.Errorf("%s: %d", name, code)
				}
			}
		}
		if code := ask(s.socketRoutes(), api.PathImages); code != http.StatusOK {
			t.Errorf("the images on the socket: %d", code)
		}
		close(m.done)
		synctest.Wait()
	})
}

// What a request wants is read from its URL. A form in its body sets nothing, whatever its type.
func TestFormsSetNothing(t *testing.T) {
	r := start(t, &fixture{})
	const form = "only_cpu_and_memory=true"
	for contentType, body := range map[string]string{
		"application/x-www-form-urlencoded": form,
		"multipart/form-data; boundary=b": "--b\r\nContent-Disposition: form-data; name=only_cpu_and_memory\r\n\r\n" +
			"true\r\n--b--\r\n",
	} {
		for query, whole := range map[string]bool{"": true, "?" + form: false} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://berth/stats/summary"+query,
				strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Content-Type", contentType)
			resp, err := r.http.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			var text strings.Builder
			if err := resp.Write(&text); err != nil {
				t.Fatal(err)
			}
			if resp.StatusCode != http.StatusOK || strings.Contains(text.String(), `"rlimit"`) != whole {
				t.Errorf("a form of type %s and the query %q: %s", contentType, query, &text)
			}
		}
	}
}
