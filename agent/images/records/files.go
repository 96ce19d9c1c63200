package records

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfigv1alpha1 "k8s.io/kubelet/config/v1alpha1"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/berthd/berth/internal/atomicfile"
)

const (
	// filePrefix is the kubelet's: files are named by the hash of the image or of its id.
	filePrefix = "sha256-"
	// The kinds of the files.
	kindIntent, kindRecord = "ImagePullIntent", "ImagePulledRecord"
)

func fileName(about string) string {
	return fmt.Sprintf("%s%x", filePrefix, sha256.Sum256([]byte(about)))
}

// typeOf returns the kind in the version that kubelet 1.36 writes.
func typeOf(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{Kind: kind, APIVersion: kubeletconfigv1beta1.SchemeGroupVersion.String()}
}

func intentOf(image string) *kubeletconfigv1beta1.ImagePullIntent {
	return &kubeletconfigv1beta1.ImagePullIntent{TypeMeta: typeOf(kindIntent), Image: image}
}

// record reads the record of an image by the runtime's id; nil if there is none.
func (s *Store) record(id string) (*kubeletconfigv1beta1.ImagePulledRecord, error) {
	var r kubeletconfigv1beta1.ImagePulledRecord
	switch err := read(filepath.Join(s.pulled, fileName(id)), kindRecord, &r, &r.TypeMeta); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case r.ImageRef != id:
		return nil, nil // of another image: the kubelet ignores such a record, too
	}
	return &r, nil
}

// readIntents returns the images that have an intent. It logs files that cannot be read, and leaves
// them.
func (s *Store) readIntents() []string {
	entries, err := os.ReadDir(s.pulling)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			s.log.Warn("Could not read which pulls were under way", "err", err)
		}
		return nil
	}
	var out []string
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), filePrefix) || strings.HasSuffix(e.Name(), atomicfile.Unfinished) {
			continue
		}
		var intent kubeletconfigv1beta1.ImagePullIntent
		if err := read(filepath.Join(s.pulling, e.Name()), kindIntent, &intent, &intent.TypeMeta); err != nil {
			s.log.Warn("Could not read the note of a pull", "err", err)
			continue
		}
		out = append(out, intent.Image)
	}
	return out
}

// read decodes a file of the kind. The two versions have the same fields.
func read(path, kind string, into any, meta *metav1.TypeMeta) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(data, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	beta, alpha := kubeletconfigv1beta1.SchemeGroupVersion.String(), kubeletconfigv1alpha1.SchemeGroupVersion.String()
	if meta.Kind != kind || meta.APIVersion != beta && meta.APIVersion != alpha {
		return fmt.Errorf("%s: it is %q of %q, want %s of %s", path, meta.Kind, meta.APIVersion, kind, beta)
	}
	return nil
}

// write replaces a file. The file must outlive a power loss: an image whose record is lost would be
// open to every pod.
func write(dir, name string, content any) error {
	data, err := json.Marshal(content)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	return atomicfile.Write(filepath.Join(dir, name), append(data, '\n'), 0o600, atomicfile.OverPowerLoss)
}

// remove removes a file; a missing file is no error. The removal need not outlive a power loss: a
// file that comes back can only make the check of credentials stricter, until it is removed again.
func remove(dir, name string) error {
	return atomicfile.Remove(filepath.Join(dir, name), atomicfile.OverCrash)
}
