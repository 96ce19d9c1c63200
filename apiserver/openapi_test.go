package apiserver

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	restful "github.com/emicklei/go-restful/v3"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// patience is how long a test waits for what must come.
const patience = time.Minute

// slowClient takes no byte of an answer until the test lets it.
type slowClient struct {
	*httptest.ResponseRecorder
	begun, goOn chan struct{}
}

// Write waits for the test.
func (c *slowClient) Write(p []byte) (int, error) {
	select {
	case c.begun <- struct{}{}:
	default: // not the first part of the answer
	}
	<-c.goOn
	return c.ResponseRecorder.Write(p)
}

// TestSlowClientsOfDocuments shows that a client which does not read its document keeps nobody else
// from one, and that both share it: many such clients take no more memory than one.
func TestSlowClientsOfDocuments(t *testing.T) {
	var made atomic.Int32
	o := &openAPI{config: common.OpenAPIV3Config{
		Info: &spec.Info{},
		GetDefinitions: func(common.ReferenceCallback) map[string]common.OpenAPIDefinition {
			made.Add(1)
			return map[string]common.OpenAPIDefinition{}
		},
		GetDefinitionName: func(name string) (string, spec.Extensions) { return name, nil },
	}}
	for _, path := range []string{"/api/v1", "/apis/batch/v1"} {
		s := new(restful.WebService).Path(path)
		s.Route(s.GET("/things").Operation(path).To(func(*restful.Request, *restful.Response) {}))
		o.services = append(o.services, s)
	}
	get := func(path, accept string) *http.Request {
		r := httptest.NewRequest(http.MethodGet, openAPIPath+path, nil)
		r.Header.Set("Accept", accept)
		return r
	}
	slow := &slowClient{httptest.NewRecorder(), make(chan struct{}, 1), make(chan struct{})}
	ended, others := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		o.serveDocument(slow, get("/api/v1", "application/json"))
	}()
	await(t, slow.begun, "the document begins")
	go func() {
		defer close(others)
		for _, path := range []string{"", "/api/v1", "/apis/batch/v1"} {
			answer := httptest.NewRecorder()
			serve := o.serveDocument
			if path == "" {
				serve = o.serveList
			}
			before := made.Load()
			serve(answer, get(path, "application/json"))
			if answer.Code != http.StatusOK || !strings.Contains(answer.Body.String(), "/api") {
				t.Errorf("GET %s: %d %s", openAPIPath+path, answer.Code, answer.Body)
			}
			if now := made.Load(); path == "/api/v1" && now != before {
				t.Error("a document that another client has is made again")
			}
		}
	}()
	await(t, others, "other clients have an answer")
	close(slow.goOn)
	await(t, ended, "the slow client has its document")
	if body := slow.Body.String(); slow.Code != http.StatusOK || !strings.Contains(body, "/api/v1/things") {
		t.Errorf("the slow client has %d %s", slow.Code, body)
	}
}

// await waits for a channel.
func await(t *testing.T, c <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("waited until %s", what)
	}
}
