package fake

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// target is what a request is about.
type target struct {
	gv                              schema.GroupVersion
	resource, namespace, name, part string
}

// parse reads a path such as /api/v1/namespaces/NS/pods/NAME/status.
func parse(path string) (target, bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	var t target
	switch {
	case len(parts) > 2 && parts[0] == "api":
		t.gv, parts = schema.GroupVersion{Version: parts[1]}, parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		t.gv, parts = schema.GroupVersion{Group: parts[1], Version: parts[2]}, parts[3:]
	default:
		return t, false
	}
	if len(parts) > 2 && parts[0] == "namespaces" {
		t.namespace, parts = parts[1], parts[2:]
	}
	for i, to := range []*string{&t.resource, &t.name, &t.part} {
		if i < len(parts) {
			*to = parts[i]
		}
	}
	return t, t.resource != ""
}

// serve answers a request, or fails as the test wants.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	s.mu.Lock()
	s.requests = append(s.requests, Request{
		Method: r.Method,
		Path:   r.URL.Path,
		Query:  r.URL.RawQuery,
		Body:   string(body),
	})
	fault := s.fault
	s.mu.Unlock()
	var f *Fault
	if fault != nil {
		f = fault(r)
	}
	if f != nil && s.failed(w, r, f) {
		return
	}
	t, ok := parse(r.URL.Path)
	if !ok {
		s.refuse(w, r, apierrors.NewNotFound(schema.GroupResource{}, r.URL.Path))
		return
	}
	if r.URL.Query().Get("watch") == "true" {
		s.watch(w, r, t)
		return
	}
	out, err := s.carryOut(r, t, body)
	if f != nil && f.Drop {
		panic(http.ErrAbortHandler)
	}
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	gv := t.gv
	if _, ok := out.(*authenticationv1.TokenRequest); ok {
		gv = authenticationv1.SchemeGroupVersion // its group differs from the path's
	}
	s.write(w, r, http.StatusOK, gv, out)
}

// failed carries out a fault, and reports whether the request is over.
func (s *Server) failed(w http.ResponseWriter, r *http.Request, f *Fault) bool {
	if f.Delay > 0 {
		select {
		case <-time.After(f.Delay):
		case <-s.closed:
		case <-r.Context().Done():
		}
	}
	if f.Drop && !f.After {
		panic(http.ErrAbortHandler)
	}
	if f.Code == 0 {
		return false
	}
	if f.RetryAfter > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(f.RetryAfter))
	}
	s.refuse(w, r,
		apierrors.NewGenericServerResponse(f.Code, r.Method, schema.GroupResource{}, "", "told to fail",
			f.RetryAfter, true))
	return true
}

// carryOut does what a request asks for.
func (s *Server) carryOut(r *http.Request, t target, body []byte) (runtime.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := t.key()
	switch r.Method {
	case http.MethodGet:
		if t.name == "" {
			return s.list(t, r.URL.Query().Get("fieldSelector"))
		}
		return s.store.get(k)
	case http.MethodPost, http.MethodPut:
		obj, _, err := s.codecs.UniversalDeserializer().Decode(body, nil, nil)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		if t.resource == "serviceaccounts" && t.part == "token" {
			return s.issue(t, obj)
		}
		if r.Method == http.MethodPost {
			return s.create(t, obj)
		}
		return s.update(k, obj)
	case http.MethodPatch:
		return s.patch(k, t.part, body)
	case http.MethodDelete:
		opts := &metav1.DeleteOptions{}
		if len(body) > 0 {
			if _, _, err := s.codecs.UniversalDeserializer().Decode(body, nil, opts); err != nil {
				return nil, apierrors.NewBadRequest(err.Error())
			}
		}
		return s.remove(k, opts)
	}
	return nil, apierrors.NewMethodNotSupported(t.group(), r.Method)
}

// refuse answers with an error.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	status := apierrors.NewInternalError(err).Status()
	if known, ok := err.(apierrors.APIStatus); ok {
		status = known.Status()
	}
	status.Kind, status.APIVersion = "Status", "v1"
	s.write(w, r, int(status.Code), schema.GroupVersion{Version: "v1"}, &status)
}

// write answers in the encoding that the client prefers.
func (s *Server) write(w http.ResponseWriter, r *http.Request, code int, gv schema.GroupVersion, obj runtime.Object) {
	info := s.encoding(r)
	var out bytes.Buffer
	if err := s.codecs.EncoderForVersion(info.Serializer, gv).Encode(obj.DeepCopyObject(),
		&out); err != nil { // encoding modifies the object
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", info.MediaType)
	w.WriteHeader(code)
	_, _ = w.Write(out.Bytes())
}

// encoding is the one that a client prefers.
func (s *Server) encoding(r *http.Request) runtime.SerializerInfo {
	media := runtime.ContentTypeJSON
	if strings.HasPrefix(r.Header.Get("Accept"), runtime.ContentTypeProtobuf) {
		media = runtime.ContentTypeProtobuf
	}
	info, _ := runtime.SerializerInfoForMediaType(s.codecs.SupportedMediaTypes(), media)
	return info
}

// asJSON returns an object's JSON. API types always have one.
func asJSON(obj any) []byte {
	out, _ := json.Marshal(obj)
	return out
}
