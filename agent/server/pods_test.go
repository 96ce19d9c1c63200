package server

import (
	"crypto/tls"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/telemetry/metrics"
	"github.com/berthd/berth/internal/pods"
)

// Of a static pod and one of the API server that have the same name, root means the static pod, and
// who comes from the API server means the pod of the API server.
func TestPodsWithOneName(t *testing.T) {
	now := metav1.Now()
	of := func(source string, ends *metav1.Time) *v1.Pod {
		pod := webPod()
		pod.UID, pod.DeletionTimestamp = types.UID(source), ends
		pod.Annotations = map[string]string{pods.AnnotationSource: source}
		pod.Status.ContainerStatuses[0].Name, pod.Spec.Containers[0].Name = source, source
		return pod
	}
	for name, tc := range map[string]struct {
		pods      []*v1.Pod
		root, api string // the pod that each of them gets
	}{
		"both":           {[]*v1.Pod{of(pods.SourceFile, nil), of(pods.SourceAPI, nil)}, pods.SourceFile, pods.SourceAPI},
		"of a URL":       {[]*v1.Pod{of(pods.SourceHTTP, nil), of(pods.SourceAPI, nil)}, pods.SourceHTTP, pods.SourceAPI},
		"both, ending":   {[]*v1.Pod{of(pods.SourceFile, &now), of(pods.SourceAPI, &now)}, pods.SourceFile, pods.SourceAPI},
		"a static one":   {[]*v1.Pod{of(pods.SourceFile, nil)}, pods.SourceFile, pods.SourceFile},
		"one of the API": {[]*v1.Pod{of(pods.SourceAPI, nil)}, pods.SourceAPI, pods.SourceAPI},
		"a successor":    {[]*v1.Pod{of(pods.SourceFile, &now), of(pods.SourceHTTP, nil)}, pods.SourceHTTP, pods.SourceHTTP},
	} {
		for range 2 {
			slices.Reverse(tc.pods)
			f := &fixture{pods: tc.pods}
			s, err := New(Config{Handlers: Handlers{Debugging: true}}, f, Deps{
				Runtime: f, Stats: f, Metrics: metrics.New("node", "v1"), Guard: &doorkeeper{}, TLS: &tls.Config{},
				Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
			})
			if err != nil {
				t.Fatal(err)
			}
			runs := func(h http.Handler, base, container string) bool {
				w := httptest.NewRecorder()
				h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost,
					base+"/run/default/web-node/"+container+"?cmd=id", nil))
				return w.Code == http.StatusOK
			}
			if !runs(s.socketRoutes(), "http://berth", tc.root) {
				t.Errorf("%s: root does not get the pod of source %s", name, tc.root)
			}
			if !runs(s.apiRoutes(), "https://node", tc.api) {
				t.Errorf("%s: the API server does not get the pod of source %s", name, tc.api)
			}
		}
	}
}
