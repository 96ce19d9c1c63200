package server

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/client/api"
)

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
