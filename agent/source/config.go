package source

import (
	"log/slog"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/configs"
)

// ConfigDeps are the dependencies of [FromConfig].
type ConfigDeps struct {
	NodeName string
	// LastGood returns the pods that a manifest held before it turned bad.
	LastGood func(file string) []*v1.Pod
	Logger   *slog.Logger
}

// FromConfig returns the sources of static pods that a config names: the manifest directory and the
// URL.
func FromConfig(cfg *configs.Config, deps ConfigDeps) []Source {
	var out []Source
	k := &cfg.Kubelet
	if k.StaticPodPath != "" {
		out = append(out, NewFile(
			FileConfig{
				Path: k.StaticPodPath, NodeName: deps.NodeName, Rescan: k.FileCheckFrequency.Duration,
				Insecure: cfg.Berth.InsecureManifests,
			},
			FileDeps{Logger: deps.Logger, LastGood: deps.LastGood},
		))
	}
	if k.StaticPodURL != "" {
		out = append(out, NewHTTP(
			HTTPConfig{
				URL:      k.StaticPodURL,
				Header:   k.StaticPodURLHeader,
				NodeName: deps.NodeName,
				Poll:     k.HTTPCheckFrequency.Duration,
			},
			HTTPDeps{Logger: deps.Logger, LastGood: deps.LastGood},
		))
	}
	return out
}
