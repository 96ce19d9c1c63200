package server

import (
	"net/http"

	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/client/api"
)

// manifests answers with the validation result of each document of each manifest.
func (s *Server) manifests(w http.ResponseWriter, _ *http.Request) {
	list := api.ManifestList{Items: []api.Manifest{}}
	for _, v := range s.backend.Validated() {
		list.Items = append(list.Items, ManifestOf(v))
	}
	for _, i := range source.IgnoredIn(s.cfg.Manifests) {
		list.Ignored = append(list.Ignored, api.IgnoredFile{File: i.Path, Why: i.Why})
	}
	answer(w, list)
}

// ManifestOf converts a validation result to the API's type.
func ManifestOf(v source.Result) api.Manifest {
	out := api.Manifest{
		File:      v.File,
		Document:  v.Document,
		Line:      v.Line,
		Kind:      v.Kind,
		Namespace: v.Namespace,
		Name:      v.Name,
		UID:       v.UID,
		Accepted:  v.Accepted,
		Kept:      v.Kept,
		Field:     v.Field,
		Message:   v.Message,
		Warnings:  v.Warnings,
		Since:     v.Since,
	}
	for _, f := range v.Faults {
		out.Errors = append(out.Errors, api.ManifestError(f))
	}
	return out
}
