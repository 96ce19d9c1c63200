package agent

import (
	"github.com/berthd/berth/configs"
)

// setting is one that a running agent can take over: how it goes from one config to another.
type setting func(to, from *configs.Config)

// pullSettings are those of image pulls, logSettings those of container logs; by their paths, as configs.Changed names them.
func pullSettings() map[string]setting {
	return map[string]setting{
		"registryPullQPS":       func(to, from *configs.Config) { to.Kubelet.RegistryPullQPS = from.Kubelet.RegistryPullQPS },
		"registryBurst":         func(to, from *configs.Config) { to.Kubelet.RegistryBurst = from.Kubelet.RegistryBurst },
		"serializeImagePulls":   func(to, from *configs.Config) { to.Kubelet.SerializeImagePulls = from.Kubelet.SerializeImagePulls },
		"maxParallelImagePulls": func(to, from *configs.Config) { to.Kubelet.MaxParallelImagePulls = from.Kubelet.MaxParallelImagePulls },
	}
}

func logSettings() map[string]setting {
	return map[string]setting{
		"containerLogMaxSize":  func(to, from *configs.Config) { to.Kubelet.ContainerLogMaxSize = from.Kubelet.ContainerLogMaxSize },
		"containerLogMaxFiles": func(to, from *configs.Config) { to.Kubelet.ContainerLogMaxFiles = from.Kubelet.ContainerLogMaxFiles },
		"containerLogMaxWorkers": func(to, from *configs.Config) {
			to.Kubelet.ContainerLogMaxWorkers = from.Kubelet.ContainerLogMaxWorkers
		},
		"containerLogMonitorInterval": func(to, from *configs.Config) {
			to.Kubelet.ContainerLogMonitorInterval = from.Kubelet.ContainerLogMonitorInterval
		},
		"berth:logs.maxContainerSize": func(to, from *configs.Config) { to.Berth.Logs.MaxContainerSize = from.Berth.Logs.MaxContainerSize },
		"berth:logs.maxNodeSize":      func(to, from *configs.Config) { to.Berth.Logs.MaxNodeSize = from.Berth.Logs.MaxNodeSize },
	}
}

// Reload takes over what it can of a config that was read anew. running is the config that counts, next the new one, and changed are the paths in which they differ. It
// returns the config that counts now, and the paths of the settings that take a restart of the agent. Neither config is changed.
func (a *Agent) Reload(running, next *configs.Config, changed []string) (now *configs.Config, later []string) {
	out := *running
	pulls, rotation := pullSettings(), logSettings()
	if !a.rotatesBy(next) {
		rotation = nil
	}
	pulled, rotated := false, false
	for _, path := range changed {
		switch {
		case pulls[path] != nil:
			pulls[path](&out, next)
			pulled = true
		case rotation[path] != nil:
			rotation[path](&out, next)
			rotated = true
		case path == "berth:podSecurity":
			out.Berth.PodSecurity = next.Berth.PodSecurity
			a.node.SetPodSecurity(string(next.Berth.PodSecurity))
		default:
			later = append(later, path)
		}
	}
	if pulled {
		a.images.SetLimits(imagesConfig(next))
	}
	if rotated {
		cfg, _ := logsConfig(next) // it can be read: rotatesBy has
		cfg.Root = a.cfg.Kubelet.PodLogsDir
		a.logs.Set(cfg)
	}
	return &out, later
}

// rotatesBy reports whether logs are rotated, and can go on being by another config.
func (a *Agent) rotatesBy(next *configs.Config) bool {
	cfg, err := logsConfig(next)
	return a.logs != nil && err == nil && cfg.MaxSize >= 0
}
