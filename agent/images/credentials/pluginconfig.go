package credentials

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletconfigv1 "k8s.io/kubelet/config/v1"
	kubeletconfigv1alpha1 "k8s.io/kubelet/config/v1alpha1"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
	credentialproviderv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"
	credentialproviderv1alpha1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1alpha1"
	credentialproviderv1beta1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1beta1"
	"sigs.k8s.io/yaml"
)

// kindPluginConfig is the kind of a plugin config's document.
const kindPluginConfig = "CredentialProviderConfig"

// readPlugins reads and checks the providers of a config file, or of all *.json, *.yaml and *.yml
// in a directory, sorted by name. Every error is a mistake in the config.
func readPlugins(configPath string) ([]kubeletconfigv1.CredentialProvider, error) {
	files, err := pluginFiles(configPath)
	if err != nil {
		return nil, err
	}
	var all []kubeletconfigv1.CredentialProvider
	var errs []error
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		providers, err := parsePlugins(data)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", file, err))
		}
		for i, p := range providers {
			at := fmt.Sprintf("%s: providers[%d]", file, i)
			if slices.ContainsFunc(all, func(o kubeletconfigv1.CredentialProvider) bool { return o.Name == p.Name }) {
				errs = append(errs, fmt.Errorf("%s.name: another provider is called %q", at, p.Name))
			}
			for _, err := range checkPlugin(p) {
				errs = append(errs, fmt.Errorf("%s.%w", at, err))
			}
			all = append(all, p)
		}
	}
	if len(all) == 0 && len(errs) == 0 {
		errs = append(errs, fmt.Errorf("%s: providers: at least one is required", configPath))
	}
	return all, errors.Join(errs...)
}

// pluginFiles returns the config's files.
func pluginFiles(configPath string) ([]string, error) {
	info, err := os.Stat(configPath)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{configPath}, nil
	}
	entries, err := os.ReadDir(configPath) // sorted by name
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); !e.IsDir() && (ext == ".json" || ext == ".yaml" || ext == ".yml") {
			files = append(files, filepath.Join(configPath, e.Name()))
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s: the directory has no *.json, *.yaml or *.yml", configPath)
	}
	return files, nil
}

// parsePlugins decodes one document strictly. The three versions have the same fields, except
// tokenAttributes, which only v1 has.
func parsePlugins(data []byte) ([]kubeletconfigv1.CredentialProvider, error) {
	var meta metav1.TypeMeta
	if err := yaml.Unmarshal(data, &meta); err != nil {
		return nil, errors.New("it is neither YAML nor JSON of an object")
	}
	versions := []string{
		kubeletconfigv1.SchemeGroupVersion.String(), kubeletconfigv1beta1.SchemeGroupVersion.String(),
		kubeletconfigv1alpha1.SchemeGroupVersion.String(),
	}
	if meta.Kind != kindPluginConfig || !slices.Contains(versions, meta.APIVersion) {
		return nil, fmt.Errorf("it is %q of %q: want kind %s of apiVersion %s", meta.Kind, meta.APIVersion,
			kindPluginConfig, strings.Join(versions, ", "))
	}
	var config kubeletconfigv1.CredentialProviderConfig
	if err := yaml.UnmarshalStrict(data, &config); err != nil {
		return nil, err
	}
	return config.Providers, nil
}

// protocolVersions are the versions of the plugins' protocol.
func protocolVersions() []string {
	return []string{
		credentialproviderv1.SchemeGroupVersion.String(), credentialproviderv1beta1.SchemeGroupVersion.String(),
		credentialproviderv1alpha1.SchemeGroupVersion.String(),
	}
}

// checkPlugin returns what is wrong with a provider; each error is "FIELD: what".
func checkPlugin(p kubeletconfigv1.CredentialProvider) (errs []error) {
	if p.Name == "" || p.Name == "." || p.Name == ".." || strings.ContainsAny(p.Name, "/ ") {
		errs = append(errs, fmt.Errorf("name: %q cannot be a program's name in the plugins' directory", p.Name))
	}
	if !slices.Contains(protocolVersions(), p.APIVersion) {
		errs = append(errs,
			fmt.Errorf("apiVersion: %q is not supported: use one of %s", p.APIVersion,
				strings.Join(protocolVersions(), ", ")))
	}
	if len(p.MatchImages) == 0 {
		errs = append(errs, errors.New("matchImages: at least one is required"))
	}
	for i, pattern := range p.MatchImages {
		host, _, _ := strings.Cut(pattern, "/")
		if _, err := path.Match(host, ""); host == "" || err != nil || strings.Contains(pattern, "://") {
			errs = append(errs,
				fmt.Errorf("matchImages[%d]: %q is not HOST[:PORT][/PATH] with globs in HOST", i, pattern))
		}
	}
	switch d := p.DefaultCacheDuration; {
	case d == nil:
		errs = append(errs, errors.New("defaultCacheDuration: is required"))
	case d.Duration < 0:
		errs = append(errs, fmt.Errorf("defaultCacheDuration: %s is below 0", d.Duration))
	}
	return append(errs, checkAttributes(p)...)
}
