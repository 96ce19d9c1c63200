package volumes

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"strings"

	v1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
)

// payload is what a volume must have: the content of each file, by its slash-separated path.
type payload map[string]content

// content is a file's data and permission bits, and its owner; nil is root.
type content struct {
	data  []byte
	mode  fs.FileMode
	owner *int64
}

// validate refuses a path that leads out of the volume, a path that has one of the writer's own
// names, and a path that is a file and a directory at once.
func (p payload) validate() error {
	for name := range p {
		if err := validatePath(name); err != nil {
			return err
		}
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			if _, ok := p[dir]; ok {
				return fmt.Errorf("invalid path: %s is both a file and a directory", dir)
			}
		}
	}
	return nil
}

// validatePath allows only clean relative paths. No part may be too long, and the first part must
// not begin with "..".
func validatePath(name string) error {
	switch {
	case name == "" || name == ".":
		return fmt.Errorf("invalid path: must not be empty: %q", name)
	case path.IsAbs(name):
		return fmt.Errorf("invalid path: must be relative path: %s", name)
	case len(name) > maxPathLength:
		return fmt.Errorf("invalid path: must be less than or equal to %d characters", maxPathLength)
	case strings.ContainsRune(name, 0):
		return fmt.Errorf("invalid path: must not contain NUL: %q", name)
	}
	for part := range strings.SplitSeq(name, "/") {
		if part == ".." {
			return fmt.Errorf("invalid path: must not contain '..': %s", name)
		}
		if len(part) > maxNameLength {
			return fmt.Errorf("invalid path: filenames must be less than or equal to %d characters", maxNameLength)
		}
	}
	if strings.HasPrefix(name, "..") {
		return fmt.Errorf("invalid path: must not start with '..': %s", name)
	}
	if path.Clean(name) != name {
		return fmt.Errorf("invalid path: must be clean: %s", name)
	}
	return nil
}

// add adds a file at a path as the user wrote it. The path may still be invalid: validate reports
// that.
func (p payload) add(name string, c content) {
	if name != "" {
		name = path.Clean(name)
	}
	p[name] = c
}

// maxContent is how many bytes the files of all volumes of one pod can have. A pod can project one
// key to any number of paths: what that takes is the node's memory or disk, and not the pod's.
const maxContent = 64 << 20

// collect returns what the volume must have now. The errors are the kubelet's. If a volume has
// several sources, there is one error for each source that fails.
func (b *bringUp) collect(i int, source *v1.VolumeSource) (payload, error) {
	files, err := b.sourceFiles(i, source)
	if err == nil && source.Projected == nil {
		err = b.take(files)
	}
	return files, err
}

// take adds files to what the pod's volumes have, unless that gets too much.
func (b *bringUp) take(files payload) error {
	for _, file := range files {
		b.content += len(file.data)
	}
	if b.content > maxContent {
		return fmt.Errorf("the files of the pod's volumes are larger than %d MiB together", maxContent>>20)
	}
	return nil
}

// sourceFiles returns the files of a volume's source.
func (b *bringUp) sourceFiles(i int, source *v1.VolumeSource) (payload, error) {
	switch {
	case source.ConfigMap != nil:
		ref := source.ConfigMap
		return b.configMap(ref.Name, ref.Items, mode(ref.DefaultMode), isTrue(ref.Optional))
	case source.Secret != nil:
		ref := source.Secret
		return b.secret(ref.SecretName, ref.Items, mode(ref.DefaultMode), isTrue(ref.Optional))
	case source.DownwardAPI != nil:
		return b.downwardAPI(source.DownwardAPI.Items, mode(source.DownwardAPI.DefaultMode))
	}
	return b.projected(i, source.Projected)
}

// projected merges all sources. If two sources have a file at one path, the later source wins.
func (b *bringUp) projected(i int, source *v1.ProjectedVolumeSource) (payload, error) {
	files := payload{}
	var errs []error
	for j := range source.Sources {
		more, err := b.projection(i, j, &source.Sources[j], mode(source.DefaultMode))
		if err == nil {
			err = b.take(more)
		}
		if b.content > maxContent {
			return nil, err // it would take no end of memory to read them all
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		maps.Copy(files, more)
	}
	return files, utilerrors.NewAggregate(errs)
}

// projection returns the files of source j of the pod's volume i.
func (b *bringUp) projection(i, j int, source *v1.VolumeProjection, mode fs.FileMode) (payload, error) {
	field := fmt.Sprintf("spec.volumes[%d].projected.sources[%d]", i, j)
	switch {
	case source.ConfigMap != nil:
		return b.configMap(source.ConfigMap.Name, source.ConfigMap.Items, mode, isTrue(source.ConfigMap.Optional))
	case source.Secret != nil:
		return b.secret(source.Secret.Name, source.Secret.Items, mode, isTrue(source.Secret.Optional))
	case source.DownwardAPI != nil:
		return b.downwardAPI(source.DownwardAPI.Items, mode)
	case source.ServiceAccountToken != nil && b.m.deps.Tokens != nil:
		return b.token(source.ServiceAccountToken, mode)
	case source.ServiceAccountToken != nil:
		return nil, unsupported("%s.serviceAccountToken: tokens need an API server, and static pods may not use them",
			field)
	case source.ClusterTrustBundle != nil && b.m.deps.TrustBundles != nil:
		return b.trustBundle(field, source.ClusterTrustBundle, mode)
	case source.ClusterTrustBundle != nil:
		return nil, unsupported("%s.clusterTrustBundle: trust bundles need an API server and the feature gate "+
			"ClusterTrustBundleProjection, and static pods may not use them", field)
	case source.PodCertificate != nil && b.m.deps.Certificates != nil:
		return b.certificate(b.pod.Spec.Volumes[i].Name, j, source.PodCertificate, mode)
	case source.PodCertificate != nil:
		return nil, unsupported("%s.podCertificate: pod certificates need an API server and the feature gate "+
			"PodCertificateRequest, and static pods may not use them", field)
	}
	return nil, unsupported("%s: projections of this kind are not supported", field)
}

func (b *bringUp) configMap(name string, items []v1.KeyToPath, mode fs.FileMode, optional bool) (payload, error) {
	object, err := b.m.deps.Objects.ConfigMap(b.pod, name)
	if err != nil {
		return nil, err
	}
	if object == nil {
		if optional {
			return payload{}, nil
		}
		return nil, notFound("configmap %q not found", name)
	}
	data := b.configMaps[name] // a pod can have an object's keys as files without end
	if data == nil {
		data = make(map[string][]byte, len(object.Data)+len(object.BinaryData))
		maps.Copy(data, object.BinaryData)
		for key, value := range object.Data {
			data[key] = []byte(value)
		}
		if err := checkSize("configmap", name, data); err != nil {
			return nil, err
		}
		if b.configMaps == nil {
			b.configMaps = map[string]map[string][]byte{}
		}
		b.configMaps[name] = data
	}
	return project(data, items, mode, func(key string) error {
		if optional {
			return nil
		}
		return notFound("configmap references non-existent config key: %s", key)
	})
}

func (b *bringUp) secret(name string, items []v1.KeyToPath, mode fs.FileMode, optional bool) (payload, error) {
	object, err := b.m.deps.Objects.Secret(b.pod, name)
	if err != nil {
		return nil, err
	}
	if object == nil {
		if optional {
			return payload{}, nil
		}
		return nil, notFound("secret %q not found", name)
	}
	if err := checkSize("secret", name, object.Data); err != nil {
		return nil, err
	}
	return project(object.Data, items, mode, func(key string) error {
		if optional {
			return nil
		}
		return notFound("references non-existent secret key: %s", key)
	})
}

// checkSize refuses an object that is larger than the API allows, wherever it came from.
func checkSize(kind, name string, data map[string][]byte) error {
	size := 0
	for _, value := range data {
		size += len(value)
	}
	if size > v1.MaxSecretSize {
		return fmt.Errorf("%s %q holds %d bytes, more than the %d that are allowed", kind, name, size, v1.MaxSecretSize)
	}
	return nil
}

// project returns all keys as files, or the keys in items, each at its path. missing is called for
// a key that is not there. If missing returns no error, the item is left out.
func project(
	data map[string][]byte, items []v1.KeyToPath, mode fs.FileMode, missing func(key string) error,
) (payload, error) {
	files := make(payload, len(data))
	if len(items) == 0 {
		for key, value := range data {
			files.add(key, content{data: value, mode: mode})
		}
		return files, nil
	}
	for _, item := range items {
		value, ok := data[item.Key]
		if !ok {
			if err := missing(item.Key); err != nil {
				return nil, err
			}
			continue
		}
		files.add(item.Path, content{data: value, mode: modeOr(item.Mode, mode)})
	}
	return files, nil
}

func (b *bringUp) downwardAPI(items []v1.DownwardAPIVolumeFile, mode fs.FileMode) (payload, error) {
	files := make(payload, len(items))
	made := 0
	var errs []error
	for i := range items {
		value, err := b.downwardValue(&items[i])
		if err != nil {
			errs = append(errs, err)
			continue
		}
		// each value takes memory of its own, so not all are made before they are counted
		if made += len(value); b.content+made > maxContent {
			b.content += made
			return nil, b.take(nil)
		}
		files.add(items[i].Path, content{data: []byte(value), mode: modeOr(items[i].Mode, mode)})
	}
	return files, utilerrors.NewAggregate(errs)
}

func (b *bringUp) downwardValue(item *v1.DownwardAPIVolumeFile) (string, error) {
	switch {
	case item.FieldRef != nil && b.m.deps.FieldValue != nil:
		return b.m.deps.FieldValue(b.pod, item.FieldRef, b.dynamic)
	case item.ResourceFieldRef != nil && b.m.deps.ResourceValue != nil:
		return b.m.deps.ResourceValue(b.pod, item.ResourceFieldRef)
	}
	return "", errors.New("downwardAPI item selects no field: " + item.Path)
}

// defaultFileMode is the API's default mode of files in ConfigMap, Secret, downward API and
// projected volumes.
const defaultFileMode = v1.ConfigMapVolumeSourceDefaultMode

// mode returns permission bits as the API writes them. nil is the API's default.
func mode(bits *int32) fs.FileMode { return modeOr(bits, fs.FileMode(defaultFileMode)) }

func modeOr(bits *int32, otherwise fs.FileMode) fs.FileMode {
	if bits == nil {
		return otherwise
	}
	return fs.FileMode(*bits) & fs.ModePerm
}

func isTrue(b *bool) bool { return b != nil && *b }
