package server

import (
	"cmp"
	"context"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/client/api"
)

// manifests answers with the validation result of each document of each manifest.
func (s *Server) manifests(w http.ResponseWriter, _ *http.Request) {
	list := api.ManifestList{Items: []api.Manifest{}}
	for _, v := range s.backend.Verdicts() {
		list.Items = append(list.Items, ManifestOf(v))
	}
	answer(w, list)
}

// ManifestOf converts a validation result to the API's type.
func ManifestOf(v source.Verdict) api.Manifest {
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

// images answers with the runtime's images and the pulls in progress.
func (s *Server) images(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), plainTimeout/2)
	defer cancel()
	images, err := s.deps.Runtime.ListImages(ctx)
	if err != nil {
		failWith(w, err)
		return
	}
	out := api.Images{Items: make([]api.Image, 0, len(images)), Pulls: s.backend.Pulls(ctx)}
	if out.Pulls == nil {
		out.Pulls = []api.Pull{}
	}
	for _, i := range images {
		out.Items = append(out.Items, imageOf(i))
	}
	slices.SortFunc(out.Items, func(a, b api.Image) int {
		return cmp.Or(strings.Compare(first(a.Tags), first(b.Tags)), strings.Compare(a.ID, b.ID))
	})
	answer(w, out)
}

func imageOf(i *runtimeapi.Image) api.Image {
	tags := slices.Clone(i.RepoTags)
	slices.Sort(tags)
	return api.Image{ID: i.Id, Tags: tags, Digests: i.RepoDigests, Size: i.Size, Pinned: i.Pinned}
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}

// runtimeVersionTimeout bounds the request for the runtime's version: the agent's version must be
// answered even if the runtime hangs.
const runtimeVersionTimeout = 2 * time.Second

// version answers with the agent's and the runtime's versions.
func (s *Server) version(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), runtimeVersionTimeout)
	defer cancel()
	out := api.Version{Version: s.cfg.Version, GoVersion: runtime.Version(), Node: s.cfg.Node}
	if v, err := s.deps.Runtime.Version(ctx); err != nil {
		out.RuntimeError = err.Error()
	} else {
		out.Runtime, out.RuntimeVersion = v.RuntimeName, v.RuntimeVersion
	}
	answer(w, out)
}
