package apiserver

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strconv"
	"sync"
	"time"
	"weak"

	restful "github.com/emicklei/go-restful/v3"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/mux"
	"k8s.io/apiserver/pkg/server/routes"
	"k8s.io/klog/v2"
	"k8s.io/kube-openapi/pkg/common"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

const openAPIPath = "/openapi/v3"

// openAPI serves /openapi/v3 of the API's own groups. kube-apiserver keeps the documents of all
// groups in memory, a fifth of its heap. This makes a group's document when a client asks for it,
// and keeps the list of the documents alone: a client asks for a document once and keeps it.
type openAPI struct {
	services []*restful.WebService
	// config has no definitions of types: they are made for each request.
	config common.OpenAPIV3Config

	// mu has one document at a time made. Nobody holds it while an answer goes to a client.
	mu sync.Mutex
	// list is nil until it is asked for.
	list  []byte
	since time.Time
	// inUse has the documents, by the paths of their groups, that clients are reading: they share
	// them. A document that nobody reads is garbage.
	inUse map[string]weak.Pointer[mux.PathRecorderMux]
}

// withoutDocuments has the API server keep no documents, and returns how they are made. It takes no
// effect on those of CustomResourceDefinitions.
func withoutDocuments(config *app.Config) (v3 *common.OpenAPIV3Config) {
	config.KubeAPIs.ControlPlane.Generic.SkipOpenAPIInstallation = true
	return config.KubeAPIs.ControlPlane.Generic.OpenAPIV3Config
}

// serveDocuments has the API's own server, which is behind the aggregator, serve them.
func serveDocuments(aggregator *genericapiserver.GenericAPIServer, config *common.OpenAPIV3Config) error {
	own, ok := aggregator.NextDelegate().(*genericapiserver.GenericAPIServer)
	if !ok {
		return errors.New("serve " + openAPIPath + ": the aggregator does not say who is behind it")
	}
	made := *config
	made.Definitions = nil
	o := &openAPI{services: own.Handler.GoRestfulContainer.RegisteredWebServices(), config: made}
	own.Handler.NonGoRestfulMux.HandleFunc(openAPIPath, o.serveList)
	own.Handler.NonGoRestfulMux.HandlePrefix(openAPIPath+"/", http.HandlerFunc(o.serveDocument))
	return nil
}

// forgetDefinitions gives the definitions of all types up, from which every server has made what it
// needs. Upstream's list of what ends with the server holds on to schemas that share the properties
// of these definitions: 5 MB that nobody reads. Where there are CustomResourceDefinitions, their
// server reads them.
func forgetDefinitions(config *common.OpenAPIV3Config, crds bool) {
	if !crds {
		for _, d := range config.Definitions {
			clear(d.Schema.Properties)
		}
	}
	config.Definitions = nil
}

// serveDocument answers with the document of one group and version.
func (o *openAPI) serveDocument(w http.ResponseWriter, r *http.Request) {
	for _, s := range o.services {
		if r.URL.Path == openAPIPath+s.RootPath() {
			document := o.document(s, r)
			document.ServeHTTP(w, r)
			runtime.KeepAlive(document)
			return
		}
	}
	http.NotFound(w, r)
}

// document returns the handler of the document of one group and version, which has made everything
// that the request asks for.
func (o *openAPI) document(s *restful.WebService, r *http.Request) *mux.PathRecorderMux {
	o.mu.Lock()
	defer o.mu.Unlock()
	document := o.inUse[s.RootPath()].Value()
	if document == nil {
		document = documents(s, o.defined())
		if o.inUse == nil {
			o.inUse = map[string]weak.Pointer[mux.PathRecorderMux]{}
		}
		o.inUse[s.RootPath()] = weak.Make(document)
	}
	// Upstream makes a form of the document, JSON or protobuf, when the first request asks for it.
	ask := r.Clone(r.Context())
	ask.Method = http.MethodHead
	document.ServeHTTP(&kept{header: http.Header{}}, ask)
	return document
}

// defined returns the config with the definitions of all types.
func (o *openAPI) defined() *common.OpenAPIV3Config {
	config := o.config
	config.Definitions = config.GetDefinitions(func(name string) spec.Ref {
		name, _ = config.GetDefinitionName(name)
		return spec.MustCreateRef("#/components/schemas/" + common.EscapeJsonPointer(name))
	})
	return &config
}

// documents returns upstream's handler with the document of one group and version, and the list of
// it alone.
func documents(s *restful.WebService, config *common.OpenAPIV3Config) *mux.PathRecorderMux {
	paths := mux.NewPathRecorderMux("openapi")
	routes.OpenAPI{V3Config: config}.InstallV3(restful.NewContainer().Add(s), paths)
	return paths
}

// serveList answers with the list of the documents and their hashes.
func (o *openAPI) serveList(w http.ResponseWriter, r *http.Request) {
	list, since, err := o.listed(r)
	if err != nil {
		klog.ErrorS(err, "The list of OpenAPI documents could not be made")
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Etag", strconv.Quote(fmt.Sprintf("%X", sha256.Sum256(list))))
	w.Header().Set("Content-Type", "application/json")
	http.ServeContent(w, r, openAPIPath, since, bytes.NewReader(list))
}

// listed returns the list, and makes it for the first request: the groups that are served do not
// change while the server runs.
func (o *openAPI) listed(r *http.Request) (list []byte, since time.Time, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.list != nil {
		return o.list, o.since, nil
	}
	all := handler3.OpenAPIV3Discovery{Paths: map[string]handler3.OpenAPIV3DiscoveryGroupVersion{}}
	config := o.defined()
	for _, s := range o.services {
		ask, err := http.NewRequestWithContext(r.Context(), http.MethodGet, openAPIPath, nil)
		if err != nil {
			return nil, o.since, fmt.Errorf("ask for the document of %s: %w", s.RootPath(), err)
		}
		answer := kept{header: http.Header{}}
		documents(s, config).ServeHTTP(&answer, ask)
		// What is listed is added to what is there.
		if err := json.Unmarshal(answer.body.Bytes(), &all); err != nil {
			return nil, o.since, fmt.Errorf("read the list with the document of %s: %w", s.RootPath(), err)
		}
	}
	if o.list, err = json.Marshal(all); err != nil {
		return nil, o.since, fmt.Errorf("write the list of documents: %w", err)
	}
	o.since = time.Now()
	return o.list, o.since, nil
}

// kept is an answer that goes nowhere.
type kept struct {
	header http.Header
	body   bytes.Buffer
}

// Header returns the answer's header.
func (k *kept) Header() http.Header { return k.header }

// Write adds to the answer's body.
func (k *kept) Write(p []byte) (int, error) { return k.body.Write(p) }

// WriteHeader does nothing: a body that is no list cannot be read.
func (*kept) WriteHeader(int) {}
