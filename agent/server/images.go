package server

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/berthd/berth/agent/images/garbage"
	"github.com/berthd/berth/client/api"
)

// images answers with the runtime's images and the pulls in progress.
func (s *Server) images(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), plainTimeout/2)
	defer cancel()
	images, err := s.backend.Images(ctx)
	if err != nil {
		failWith(w, err)
		return
	}
	out := api.Images{Items: sorted(images), Pulls: s.backend.Pulls(ctx), Archives: s.backend.Archives()}
	if out.Pulls == nil {
		out.Pulls = []api.Pull{}
	}
	answer(w, out)
}

// pruneImages removes the images that nothing uses. Failures of single images do not hide what was
// removed.
func (s *Server) pruneImages(w http.ResponseWriter, r *http.Request) {
	var req api.PruneRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil && !errors.Is(err, io.EOF) {
		failWith(w, failure(http.StatusBadRequest, "reading the request to remove images: %v", err))
		return
	}
	images, err := s.backend.PruneImages(r.Context(), req.DryRun)
	if err != nil && len(images) == 0 {
		failWith(w, err)
		return
	}
	out := api.PrunedImages{Items: sorted(images)}
	if err != nil {
		out.Error = err.Error()
	}
	answer(w, out)
}

// pullImage pulls an image, and answers when it is there. A caller that goes away gives up the
// pull.
func (s *Server) pullImage(w http.ResponseWriter, r *http.Request) {
	var req api.PullRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		fail(w, http.StatusBadRequest, "reading the request to pull an image: it must name an image: %v", err)
		return
	}
	if req.Image == "" {
		fail(w, http.StatusBadRequest, "reading the request to pull an image: it must name an image")
		return
	}
	id, err := s.backend.PullImage(r.Context(), req.Image)
	if err != nil {
		failWith(w, err)
		return
	}
	answer(w, api.Image{ID: id, Tags: []string{req.Image}})
}

// removeImage removes the image that the parameter name names.
func (s *Server) removeImage(w http.ResponseWriter, r *http.Request) {
	image, err := s.backend.RemoveImage(r.Context(), r.URL.Query().Get(api.ImageName))
	switch {
	case errors.Is(err, garbage.ErrNoImage):
		fail(w, http.StatusNotFound, "%v", err)
	case errors.Is(err, garbage.ErrNeeded):
		fail(w, http.StatusConflict, "%v", err)
	case err != nil:
		failWith(w, err)
	default:
		answer(w, image)
	}
}

// sorted returns images by their first tag, never nil.
func sorted(images []api.Image) []api.Image {
	out := append([]api.Image{}, images...)
	slices.SortFunc(out, func(a, b api.Image) int {
		return cmp.Or(strings.Compare(first(a.Tags), first(b.Tags)), strings.Compare(a.ID, b.ID))
	})
	return out
}

func first(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[0]
}
