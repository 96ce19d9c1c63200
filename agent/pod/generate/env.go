package generate

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Objects returns the ConfigMaps and Secrets that a pod refers to. It answers from memory. Callers
// do not change what it returns.
type Objects interface {
	// ConfigMap returns the pod's ConfigMap, nil if there is none. The error says why it cannot be
	// known now.
	ConfigMap(pod *v1.Pod, name string) (*v1.ConfigMap, error)
	// Secret is ConfigMap for Secrets.
	Secret(pod *v1.Pod, name string) (*v1.Secret, error)
}

// EnvFile reads one key of an environment file in a mounted volume, for fileKeyRef. ok is false if
// the file has no such key. [ParseEnvFile] understands the format. The implementation must open the
// file without leaving the volume.
type EnvFile func(volume, path, key string) (value string, ok bool, err error)

// EnvInput is what a container's environment is made of.
type EnvInput struct {
	Pod       *v1.Pod
	Container *v1.Container
	// Objects may be nil. Then no object exists.
	Objects Objects
	// Addresses are for fieldRef.
	Addresses Addresses
	// Allocatable is the node's, for resourceFieldRef.
	Allocatable v1.ResourceList
	// Services are those of the cluster, of any namespace, with or without a cluster IP. It is
	// empty on a node without a cluster.
	Services []*v1.Service
	// EnvFile may be nil. Then fileKeyRef is refused.
	EnvFile EnvFile
}

// Env returns the environment of a container. First come the variables of envFrom, in order, with
// each source's keys sorted. Then come those of env, in order; a variable takes the place of one of
// the same name. Then come the services' variables, sorted, if the name is free. $(NAME) in a value
// is replaced by a variable before it, or by a service's. All values together have at most
// [maxArguments] bytes, those that others took the place of, too. The error is a [ConfigError].
func Env(in EnvInput) ([]*runtimeapi.KeyValue, error) {
	b := envBuilder{
		in: in, index: map[string]int{}, services: serviceEnv(in.Pod, in.Services),
		budget: budget{what: "the container's environment"},
	}
	for i := range in.Container.EnvFrom {
		if err := b.addFrom(&in.Container.EnvFrom[i]); err != nil {
			return nil, withReason(ReasonContainer, err)
		}
	}
	for i := range in.Container.Env {
		if err := b.add(&in.Container.Env[i]); err != nil {
			return nil, withReason(ReasonContainer, err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b.services)) {
		if _, taken := b.index[name]; !taken {
			if err := b.set(name, b.services[name]); err != nil {
				return nil, err
			}
		}
	}
	return b.vars, b.check()
}

// envBuilder collects variables in order. index says where each name is in vars.
type envBuilder struct {
	in       EnvInput
	vars     []*runtimeapi.KeyValue
	index    map[string]int
	services map[string]string
	budget   budget
}

// set sets a variable, unless its value is too large beside those before it.
func (b *envBuilder) set(name, value string) error {
	if err := b.budget.take(len(name) + len(value)); err != nil {
		return err
	}
	if i, ok := b.index[name]; ok {
		b.vars[i].Value = []byte(value)
		return nil
	}
	b.index[name] = len(b.vars)
	b.vars = append(b.vars, &runtimeapi.KeyValue{Key: name, Value: []byte(value)})
	return nil
}

func (b *envBuilder) lookup(name string) (string, bool) {
	if i, ok := b.index[name]; ok {
		return string(b.vars[i].Value), true
	}
	value, ok := b.services[name]
	return value, ok
}

// check refuses variables that no process can have in its environment. The kernel would cut the
// value, or the runtime would fail without saying where.
func (b *envBuilder) check() error {
	for _, kv := range b.vars {
		if kv.Key == "" || strings.ContainsAny(kv.Key, "=\x00") {
			return containerError("environment variable name %q is not valid", kv.Key)
		}
		if slices.Contains(kv.Value, 0) {
			return containerError("the value of environment variable %q contains a NUL byte", kv.Key)
		}
	}
	return nil
}

// addFrom adds every key of a ConfigMap or a Secret.
func (b *envBuilder) addFrom(from *v1.EnvFromSource) error {
	switch {
	case from.ConfigMapRef != nil:
		object, err := b.configMap(from.ConfigMapRef.Name, isTrue(from.ConfigMapRef.Optional))
		if err != nil || object == nil {
			return err
		}
		for _, key := range slices.Sorted(maps.Keys(object.Data)) {
			if err := b.set(from.Prefix+key, object.Data[key]); err != nil {
				return err
			}
		}
	case from.SecretRef != nil:
		object, err := b.secret(from.SecretRef.Name, isTrue(from.SecretRef.Optional))
		if err != nil || object == nil {
			return err
		}
		for _, key := range slices.Sorted(maps.Keys(object.Data)) {
			if err := b.set(from.Prefix+key, string(object.Data[key])); err != nil {
				return err
			}
		}
	}
	return nil
}

// add adds one variable. It adds none if the variable's source is optional and missing.
func (b *envBuilder) add(env *v1.EnvVar) error {
	if env.Value != "" || env.ValueFrom == nil {
		room := b.budget // what is expanded counts once, as the variable's value
		value, err := expand(env.Value, b.lookup, room.take)
		if err != nil {
			return err
		}
		return b.set(env.Name, value)
	}
	value, ok, err := b.resolve(env.ValueFrom)
	if err != nil || !ok {
		return err
	}
	return b.set(env.Name, value)
}

// resolve returns a source's value. ok is false if the source is optional and missing.
func (b *envBuilder) resolve(source *v1.EnvVarSource) (value string, ok bool, err error) {
	switch {
	case source.FieldRef != nil:
		value, err = FieldValue(b.in.Pod, source.FieldRef, b.in.Addresses)
		return value, err == nil, err
	case source.ResourceFieldRef != nil:
		value, err = ResourceValue(b.in.Pod, b.in.Container, source.ResourceFieldRef, b.in.Allocatable)
		return value, err == nil, err
	case source.ConfigMapKeyRef != nil:
		return b.configMapKey(source.ConfigMapKeyRef)
	case source.SecretKeyRef != nil:
		return b.secretKey(source.SecretKeyRef)
	case source.FileKeyRef != nil:
		return b.fileKey(source.FileKeyRef)
	}
	return "", true, nil
}

func (b *envBuilder) configMapKey(ref *v1.ConfigMapKeySelector) (string, bool, error) {
	optional := isTrue(ref.Optional)
	object, err := b.configMap(ref.Name, optional)
	if err != nil || object == nil {
		return "", false, err
	}
	value, ok := object.Data[ref.Key]
	if !ok && !optional {
		return "", false, fmt.Errorf("couldn't find key %v in ConfigMap %v/%v", ref.Key, b.in.Pod.Namespace, ref.Name)
	}
	return value, ok, nil
}

func (b *envBuilder) secretKey(ref *v1.SecretKeySelector) (string, bool, error) {
	optional := isTrue(ref.Optional)
	object, err := b.secret(ref.Name, optional)
	if err != nil || object == nil {
		return "", false, err
	}
	value, ok := object.Data[ref.Key]
	if !ok && !optional {
		return "", false, fmt.Errorf("couldn't find key %v in Secret %v/%v", ref.Key, b.in.Pod.Namespace, ref.Name)
	}
	return string(value), ok, nil
}

func (b *envBuilder) fileKey(ref *v1.FileKeySelector) (string, bool, error) {
	if b.in.EnvFile == nil {
		return "", false, fmt.Errorf("fileKeyRef is not supported on this node (volume %q)", ref.VolumeName)
	}
	value, ok, err := b.in.EnvFile(ref.VolumeName, ref.Path, ref.Key)
	if err != nil {
		message := fmt.Sprintf("couldn't parse env file %q of volume %q", ref.Path, ref.VolumeName)
		// all other errors may name paths of the host
		if line, ok := errors.AsType[lineError](err); ok {
			message += ": " + line.Error()
		}
		return "", false, &ConfigError{
			Message: message,
			Err:     fmt.Errorf("read env file for pod %s: %w", podName(b.in.Pod), err),
		}
	}
	// An empty value counts as a missing key, as in the kubelet.
	ok = ok && value != ""
	if !ok && !isTrue(ref.Optional) {
		return "", false, fmt.Errorf("environment variable key %q not found in file %q of volume %q", ref.Key, ref.Path,
			ref.VolumeName)
	}
	return value, ok, nil
}

// configMap returns the ConfigMap, nil if it is optional and missing, or the error that names it.
func (b *envBuilder) configMap(name string, optional bool) (*v1.ConfigMap, error) {
	if b.in.Objects != nil {
		if object, err := b.in.Objects.ConfigMap(b.in.Pod, name); err != nil || object != nil {
			return object, err
		}
	}
	if optional {
		return nil, nil
	}
	return nil, fmt.Errorf("configmap %q not found", name)
}

// secret is configMap for Secrets.
func (b *envBuilder) secret(name string, optional bool) (*v1.Secret, error) {
	if b.in.Objects != nil {
		if object, err := b.in.Objects.Secret(b.in.Pod, name); err != nil || object != nil {
			return object, err
		}
	}
	if optional {
		return nil, nil
	}
	return nil, fmt.Errorf("secret %q not found", name)
}
