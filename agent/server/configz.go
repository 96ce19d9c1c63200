package server

import (
	"maps"
	"net/http"

	"github.com/berthd/berth/configs"
)

// masked replaces secrets, as in the kubelet's log.
const masked = "<masked>"

// configz shows the agent's configuration.
func (s *Server) configz(w http.ResponseWriter, _ *http.Request) { answer(w, s.cfg.Configz) }

// configzOf is what /configz shows of a config, by component. The headers of requests for manifests
// may contain a password or a token, so only their names are shown. The URL is shown without its
// password.
func configzOf(cfg *configs.Config) map[string]any {
	kubelet := cfg.Kubelet
	kubelet.StaticPodURL = configs.WithoutPassword(kubelet.StaticPodURL)
	kubelet.StaticPodURLHeader = maps.Clone(kubelet.StaticPodURLHeader)
	for name := range kubelet.StaticPodURLHeader {
		kubelet.StaticPodURLHeader[name] = []string{masked}
	}
	return map[string]any{"kubeletconfig": kubelet, "berth": cfg.Berth}
}
