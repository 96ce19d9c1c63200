package server

import (
	"maps"
	"net/http"

	"github.com/berthd/berth/configs"
)

// masked is shown in the place of what is secret, as the kubelet's log does.
const masked = "<masked>"

// configz shows the agent's configuration.
func (s *Server) configz(w http.ResponseWriter, _ *http.Request) { answer(w, s.cfg.Configz) }

// configzOf is what /configz shows of a config, by component. The headers that manifests are asked for with may hold a password or a token: only their names are told, and the URL is told without its password.
func configzOf(cfg *configs.Config) map[string]any {
	kubelet := cfg.Kubelet
	kubelet.StaticPodURL = configs.WithoutPassword(kubelet.StaticPodURL)
	kubelet.StaticPodURLHeader = maps.Clone(kubelet.StaticPodURLHeader)
	for name := range kubelet.StaticPodURLHeader {
		kubelet.StaticPodURLHeader[name] = []string{masked}
	}
	return map[string]any{"kubeletconfig": kubelet, "berth": cfg.Berth}
}
