package server

import (
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// component is the component that the kubelet's pages name, because their readers look for it.
const component = "kubelet"

// zpageHead begins a page that is a text, as the pages of Kubernetes' components do.
const zpageHead = `
%s %s
Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.
`

// zpage is one of the pages in which components of Kubernetes describe themselves. It is a text, or
// an object if the caller accepts one.
type zpage struct {
	name, kind string
	text       func(w io.Writer)
	// fields returns the object's fields besides kind, version and name.
	fields func() map[string]any
}

// zpageGroup is the API group of the pages' objects, in the versions of kubelet 1.36.
const zpageGroup = "config.k8s.io"

func (s *Server) zpage(p zpage) endpoint {
	return s.quick(p.name, func(w http.ResponseWriter, r *http.Request) {
		form, version := accepted(r.Header.Values("Accept"), p.kind)
		switch form {
		case "text/plain":
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
			w.Header().Set("X-Content-Type-Options", "nosniff")
			fmt.Fprintf(w, zpageHead, component, p.name)
			p.text(w)
			return
		case "":
			fail(w, http.StatusNotAcceptable,
				"only the following media types are accepted: text/plain, application/json;g=%s;v=v1beta1;as=%s and "+
					"application/yaml likewise", zpageGroup, p.kind)
			return
		}
		if version == "v1alpha1" {
			w.Header().Set("Warning",
				fmt.Sprintf(`299 - "This version of the %s endpoint is deprecated. Please use a newer version."`,
					p.name))
		}
		object := p.fields()
		object["kind"], object["apiVersion"], object["metadata"] = p.kind, zpageGroup+"/"+version,
			map[string]any{"name": component}
		if form == "application/json" {
			answer(w, object)
			return
		}
		data, err := yaml.Marshal(object)
		if err != nil {
			fail(w, http.StatusInternalServerError, "encoding the answer: %v", err)
			return
		}
		w.Header().Set("Content-Type", form)
		_, _ = w.Write(data)
	})
}

// accepted returns the form of a page according to the request's Accept headers: text/plain, or
// JSON or YAML if the caller names the object's group, version and kind. It is empty if the page
// has none of the accepted forms.
func accepted(headers []string, kind string) (form, version string) {
	asked := false
	for _, header := range headers {
		for one := range strings.SplitSeq(header, ",") {
			if strings.TrimSpace(one) == "" {
				continue
			}
			asked = true
			media, params, err := mime.ParseMediaType(one)
			switch {
			case err != nil:
			case (media == "text/plain" || media == "text/*" || media == "*/*") && params["as"] == "":
				return "text/plain", ""
			case (media == "application/json" || media == "application/yaml") && params["g"] == zpageGroup &&
				params["as"] == kind &&
				(params["v"] == "v1beta1" || params["v"] == "v1alpha1"):
				return media, params["v"]
			}
		}
	}
	if asked {
		return "", ""
	}
	return "text/plain", ""
}

// flagz shows the flags that the agent was started with.
func (s *Server) flagz() endpoint {
	return s.zpage(zpage{name: "flagz", kind: "Flagz", text: func(w io.Writer) {
		for _, name := range slices.Sorted(maps.Keys(s.cfg.Flags)) {
			fmt.Fprintf(w, "%s=%s\n", name, s.cfg.Flags[name])
		}
	}, fields: func() map[string]any { return map[string]any{"flags": s.cfg.Flags} }})
}

// statusz shows when the agent was started, its version, and its paths on this port.
func (s *Server) statusz(paths func() []string) endpoint {
	return s.zpage(zpage{name: "statusz", kind: "Statusz", text: func(w io.Writer) {
		up := int64(time.Since(s.began).Seconds())
		fmt.Fprintf(w,
			"\nStarted: %s\nUp: %d hr %02d min %02d sec\nGo version: %s\nBinary version: %s\nEmulation version: %s\n"+
				"Paths: %s\n",
			s.began.Format(time.UnixDate), up/3600, up/60%60, up%60, runtime.Version(), s.cfg.Version, s.cfg.Kubernetes,
			strings.Join(paths(), " "))
	}, fields: func() map[string]any {
		return map[string]any{
			"startTime":        metav1.NewTime(s.began),
			"uptimeSeconds":    int64(time.Since(s.began).Seconds()),
			"goVersion":        runtime.Version(),
			"binaryVersion":    s.cfg.Version,
			"emulationVersion": s.cfg.Kubernetes,
			"paths":            paths(),
		}
	}})
}
