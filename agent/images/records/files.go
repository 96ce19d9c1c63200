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
)

const (
	// filePrefix and tmpSuffix are the kubelet's: files are named by the hash of what they are about.
	filePrefix, tmpSuffix = "sha256-", ".tmp"
	// The kinds of the files.
	kindIntent, kindRecord = "ImagePullIntent", "ImagePulledRecord"
)

func fileName(about string) string {
	return fmt.Sprintf("%s%x", filePrefix, sha256.Sum256([]byte(about)))
}

// typeOf is the kind in the version that kubelet 1.36 writes.
func typeOf(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{Kind: kind, APIVersion: kubeletconfigv1beta1.SchemeGroupVersion.String()}
}

func intentOf(image string) *kubeletconfigv1beta1.ImagePullIntent {
	return &kubeletconfigv1beta1.ImagePullIntent{TypeMeta: typeOf(kindIntent), Image: image}
}

// record reads the record of an image by the runtime's id; nil where there is none.
func (s *Store) record(id string) (*kubeletconfigv1beta1.ImagePulledRecord, error) {
	var r kubeletconfigv1beta1.ImagePulledRecord
	switch err := read(filepath.Join(s.pulled, fileName(id)), kindRecord, &r, &r.TypeMeta); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case r.ImageRef != id:
		return nil, nil // of another image: the kubelet takes no notice, either
	}
	return &r, nil
}

// readIntents returns the images that an intent is there for. Files that cannot be read are told and left.
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
		if !strings.HasPrefix(e.Name(), filePrefix) || strings.HasSuffix(e.Name(), tmpSuffix) {
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

// write replaces a file at once, and has it on the disk when it returns: a record that a power cut takes away would make an image everybody's.
func write(dir, name string, content any) error {
	data, err := json.Marshal(content)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	path := filepath.Join(dir, name)
	if err := writeSynced(path+tmpSuffix, append(data, '\n')); err != nil {
		_ = os.Remove(path + tmpSuffix)
		return err
	}
	if err := os.Rename(path+tmpSuffix, path); err != nil {
		return err
	}
	return syncDir(dir)
}

func writeSynced(path string, data []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	return errors.Join(err, file.Sync(), file.Close())
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// remove removes a file; one that is gone is removed.
func remove(dir, name string) error {
	if err := os.Remove(filepath.Join(dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
