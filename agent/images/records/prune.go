package records

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/berthd/berth/internal/atomicfile"
)

// Prune removes the records of images that no longer exist. images are those that the runtime had
// at the time at; records that were written since are kept, and so is every file that cannot be
// read. Prune does nothing if the runtime lists no image at all, which may be an error: an image
// without its record counts as preloaded.
func (s *Store) Prune(images []*runtimeapi.Image, at time.Time) {
	if len(images) == 0 {
		return
	}
	there := map[string]bool{}
	for _, i := range images {
		for _, name := range slices.Concat([]string{i.Id}, i.RepoTags, i.RepoDigests) {
			there[fileName(name)] = true
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	entries, err := os.ReadDir(s.pulled)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			s.log.Warn("Could not read which images were pulled", "err", err)
		}
		return
	}
	for _, e := range entries {
		if there[e.Name()] || !strings.HasPrefix(e.Name(), filePrefix) ||
			strings.HasSuffix(e.Name(), atomicfile.Unfinished) {
			continue
		}
		var r kubeletconfigv1beta1.ImagePulledRecord
		if err := read(filepath.Join(s.pulled, e.Name()), kindRecord, &r, &r.TypeMeta); err != nil ||
			fileName(r.ImageRef) != e.Name() {
			continue
		}
		if !r.LastUpdatedTime.Time.Before(at.Truncate(time.Second)) { // the file has whole seconds
			continue
		}
		if err := remove(s.pulled, e.Name()); err != nil {
			s.log.Warn("Could not remove the record of an image that is gone", "image", r.ImageRef, "err", err)
		}
	}
}
