package control

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2/ktesting"
)

const impersonateUser, impersonateGroup = "Impersonate-User", "Impersonate-Group"

// TestClientsActAsTheirOwnUsers shows whom the server sees behind each client, and that no client
// of a controller comes without impersonation or with a limit of its own.
func TestClientsActAsTheirOwnUsers(t *testing.T) {
	var seen http.Header
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = r.Header.Clone()
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"kind":"Pod","apiVersion":"v1"}`)
	}))
	defer server.Close()
	loopback := &rest.Config{Host: server.URL, BearerToken: "loopback", QPS: 50, Burst: 100}
	clients := controllerClients{loopback: loopback}
	account := func(name string) (string, []string) {
		return "system:serviceaccount:kube-system:" + name,
			[]string{"system:serviceaccounts", "system:serviceaccounts:kube-system", "system:authenticated"}
	}
	check := func(what, name string, groups []string) {
		t.Helper()
		if got := seen.Get(impersonateUser); got != name {
			t.Errorf("%s acts as %q, want %s", what, got, name)
		}
		if got := seen.Values(impersonateGroup); !slices.Equal(got, groups) {
			t.Errorf("%s acts with the groups %q, want %q", what, got, groups)
		}
		if got := seen.Get("Authorization"); got != "Bearer loopback" {
			t.Errorf("%s has the credentials %q", what, got)
		}
		seen = nil
	}

	ask := func(config *rest.Config) {
		t.Helper()
		client, err := rest.HTTPClientFor(config)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Get(server.URL)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
	}

	name, groups := account("job-controller")
	config, err := clients.Config("job-controller")
	if err != nil {
		t.Fatal(err)
	}
	for _, config := range []*rest.Config{config, clients.ConfigOrDie("job-controller")} {
		if config.QPS >= 0 {
			t.Errorf("the client's own limit is %v requests in a second", config.QPS)
		}
		ask(config)
		check("a config", name, groups)
		if agent := config.UserAgent; !strings.Contains(agent, "job-controller") {
			t.Errorf("the client's user agent is %q", agent)
		}
	}
	client, err := clients.Client("job-controller")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.CoreV1().Pods("default").Get(t.Context(), "p", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	check("a client", name, groups)
	kinds, err := clients.DiscoveryClient("job-controller")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kinds.ServerVersion(); err != nil {
		t.Fatal(err)
	}
	check("a discovery client", name, groups)
	for _, u := range []user.Info{managerUser, schedulerUser} {
		ask(actingAs(loopback, u))
		check(u.GetName(), u.GetName(), []string{"system:authenticated"})
	}
	if loopback.Impersonate.UserName != "" || loopback.WrapTransport != nil || loopback.QPS != 50 {
		t.Errorf("the loopback connection itself is changed: %+v", loopback)
	}
}

// TestMissingRightsAreLogged shows that a request that RBAC refuses is in the log, that one that
// admission refuses is not, and that the client reads the whole answer in either case.
func TestMissingRightsAreLogged(t *testing.T) {
	const name = "system:serviceaccount:kube-system:job-controller"
	long := strings.Repeat("x", refusalLimit)
	for _, c := range []struct {
		name, body string
		code       int
		logged     bool
	}{
		{"a missing right", `jobs is forbidden: User "` + name + `" cannot list resource "jobs"` + long, 403, true},
		{"a quota", `pods "p" is forbidden: exceeded quota: q` + long, 403, false},
		{"an answer", `User "` + name + `" cannot`, 200, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(c.code)
				_, _ = io.WriteString(w, c.body)
			}))
			defer server.Close()
			log := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
			client := http.Client{Transport: refusals{next: http.DefaultTransport, user: name, log: log}}
			answer, err := client.Get(server.URL + "/apis/batch/v1/jobs")
			if err != nil {
				t.Fatal(err)
			}
			defer answer.Body.Close()
			if text, err := io.ReadAll(answer.Body); err != nil || string(text) != c.body {
				t.Errorf("the client reads %d bytes of %d, %v", len(text), len(c.body), err)
			}
			sink, ok := log.GetSink().(ktesting.Underlier)
			if !ok {
				t.Fatal("the log cannot be read")
			}
			text := sink.GetBuffer().String()
			if got := strings.Contains(text, name) && strings.Contains(text, "/apis/batch/v1/jobs"); got != c.logged {
				t.Errorf("the log has %q", text)
			}
		})
	}
}
