package auth

import (
	"net/http"
	"reflect"
	"testing"
)

func TestAttributesOf(t *testing.T) {
	both := func(verb, sub string) []Attributes { return []Attributes{{verb, sub}, {verb, "proxy"}} }
	one := func(verb, sub string) []Attributes { return []Attributes{{verb, sub}} }
	for _, tc := range []struct {
		method, path string
		want         []Attributes
	}{
		// What runs commands or opens streams needs create, by whichever method: WebSockets come
		// with GET.
		{http.MethodGet, "/exec/{namespace}/{pod}/{container}", one("create", "proxy")},
		{http.MethodPost, "/exec/ns/pod/main", one("create", "proxy")},
		{http.MethodGet, "/attach/ns/pod/uid/main", one("create", "proxy")},
		{http.MethodGet, "/portForward/ns/pod", one("create", "proxy")},
		{http.MethodPut, "/run/ns/pod/main", one("create", "proxy")},
		{http.MethodGet, "/exec", one("create", "proxy")},
		{http.MethodHead, "/exec/ns/pod/main", one("create", "proxy")},

		{http.MethodGet, "/pods", both("get", "pods")},
		{http.MethodGet, "/pods/", both("get", "pods")},
		{http.MethodGet, "/runningpods/", both("get", "pods")},
		{http.MethodGet, "/healthz", both("get", "healthz")},
		{http.MethodGet, "/healthz/{check}", both("get", "healthz")},
		{http.MethodGet, "/configz", both("get", "configz")},
		{http.MethodGet, "/flagz", one("get", "configz")},
		{http.MethodGet, "/statusz", one("get", "statusz")},
		{http.MethodGet, "/stats/summary", one("get", "stats")},
		{http.MethodGet, "/metrics", one("get", "metrics")},
		{http.MethodGet, "/metrics/cadvisor", one("get", "metrics")},
		{http.MethodGet, "/logs/syslog", one("get", "log")},
		{http.MethodPost, "/checkpoint/ns/pod/main", one("create", "checkpoint")},

		// Everything else is the proxy's, also what only begins alike.
		{http.MethodGet, "/containerLogs/ns/pod/main", one("get", "proxy")},
		{http.MethodGet, "/debug/pprof/profile", one("get", "proxy")},
		{http.MethodGet, "/", one("get", "proxy")},
		{http.MethodGet, "/metricsandmore", one("get", "proxy")},
		{http.MethodGet, "/podsx", one("get", "proxy")},
		{http.MethodGet, "", one("get", "proxy")},
		{http.MethodGet, "//pods", one("get", "proxy")},
		{http.MethodPut, "/pods", both("update", "pods")},
		{http.MethodPatch, "/x", one("patch", "proxy")},
		{http.MethodDelete, "/x", one("delete", "proxy")},
		{http.MethodHead, "/metrics", one("", "metrics")},
		{"BREW", "/x", one("", "proxy")},
	} {
		if got := AttributesOf(tc.method, tc.path); !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s %s: %v, want %v", tc.method, tc.path, got, tc.want)
		}
	}
}
