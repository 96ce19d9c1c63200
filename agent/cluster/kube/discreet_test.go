package kube

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
)

// The errors of requests about secrets do not quote a server's answer, whatever its form. They
// quote the API server's own words, and errors about other objects quote their answers.
func TestErrorsQuoteNoSecret(t *testing.T) {
	const secret = "hunter2"
	var code int
	var contentType, body string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(code)
		_, _ = fmt.Fprint(w, body)
	}))
	defer server.Close()
	conn, err := New(&rest.Config{Host: server.URL}, Config{QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.CloseConnections()
	core, err := conn.Group(v1.SchemeGroupVersion)
	if err != nil {
		t.Fatal(err)
	}
	reviews, err := conn.Group(authenticationv1.SchemeGroupVersion)
	if err != nil {
		t.Fatal(err)
	}
	ask := map[string]func() error{
		"list": func() error {
			return core.Get().Namespace("n").Resource("secrets").Do(t.Context()).Into(&v1.SecretList{})
		},
		"watch": func() error {
			_, err := core.Get().Namespace("n").Resource("secrets").Param("watch", "true").Watch(t.Context())
			return err
		},
		"get": func() error {
			return core.Get().Namespace("n").Resource("secrets").Name("s").Do(t.Context()).Into(&v1.Secret{})
		},
		"token": func() error {
			return core.Post().Namespace("n").Resource("serviceaccounts").Name("a").SubResource("token").
				Body(&authenticationv1.TokenRequest{}).Do(t.Context()).
				Into(&authenticationv1.TokenRequest{})
		},
		"review": func() error {
			return reviews.Post().Resource("tokenreviews").Body(&authenticationv1.TokenReview{}).Do(t.Context()).
				Into(&authenticationv1.TokenReview{})
		},
	}
	for _, tc := range []struct {
		code              int
		contentType, body string
	}{
		{500, "text/plain", "broken: " + secret},
		{502, "text/html; charset=utf-8", "<p>" + secret + "</p>"},
		{403, "", secret},
		{500, "application/json", `{"kind":"Secret","apiVersion":"v1","data":{"k":"` + secret + `"}}`},
		{200, "application/json", `{"kind":"Secret","apiVersion":"v1","data":{"k":["` + secret + `"]}}`},
		{200, "application/json", `{"kind":"Secret","apiVersion":"v1","data":{"k":"` + secret + `!"}}`},
		{200, "application/json", `{"kind":"Secret","data":{"k":"` + secret},
		{200, "text/plain", secret},
	} {
		code, contentType, body = tc.code, tc.contentType, tc.body
		for what, do := range ask {
			err := do()
			if err == nil && code != 200 {
				t.Errorf("%s %+v: no error", what, tc)
			}
			if err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("%s %+v: %v", what, tc, err)
			}
			if code >= 400 && what != "watch" && apierrors.ReasonForError(err) == "" {
				t.Errorf("%s %+v: %v is no error of the API", what, tc, err)
			}
		}
	}

	code, contentType, body = 403, "application/json",
		`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Forbidden","code":403,"message":"no `+
			`relationship found"}`
	if err := ask["get"](); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "no relationship found") {
		t.Errorf("the API's own words: %v", err)
	}
	code, contentType, body = 502, "text/plain", "the proxy is tired"
	if err := core.Get().Namespace("n").Resource("configmaps").Name("c").Do(t.Context()).
		Into(&v1.ConfigMap{}); err == nil || !strings.Contains(err.Error(), "tired") {
		t.Errorf("about other objects: %v", err)
	}
}
