package credentials

import (
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
)

// FromSecrets returns the keyring of a pod's pull secrets, in their order. The error names each
// Secret that has no login or is partly invalid, and quotes nothing of it; the other logins are
// used all the same.
func FromSecrets(secrets []*v1.Secret) (*Keyring, error) {
	k := &Keyring{}
	var errs []error
	for _, s := range secrets {
		config, err := ofSecret(s)
		if err != nil {
			errs = append(errs, fmt.Errorf("Secret %s/%s: %w", s.Namespace, s.Name, err))
		}
		k.Add(Source{UID: string(s.UID), Namespace: s.Namespace, Name: s.Name}, config)
	}
	return k, errors.Join(errs...)
}

// ofSecret parses the login of a Secret that has the type of a login.
func ofSecret(s *v1.Secret) (Config, error) {
	key, parse := v1.DockerConfigJsonKey, ParseConfigJSON
	switch s.Type {
	case v1.SecretTypeDockerConfigJson:
	case v1.SecretTypeDockercfg:
		key, parse = v1.DockerConfigKey, ParseDockercfg
	default:
		return nil, fmt.Errorf("its type is %q: a pull secret's is %s or %s", s.Type, v1.SecretTypeDockerConfigJson,
			v1.SecretTypeDockercfg)
	}
	data := s.Data[key]
	if len(data) == 0 {
		return nil, fmt.Errorf("it has no %s", key)
	}
	config, err := parse(data)
	if err != nil {
		return config, fmt.Errorf("%s: %w", key, err)
	}
	return config, nil
}
