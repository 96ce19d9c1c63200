package agent

import (
	"github.com/berthd/berth/agent/images"
	"github.com/berthd/berth/agent/node/logs"
	"github.com/berthd/berth/configs"
)

// setting copies, from one config to another, a setting that a running agent can take over.
type setting func(to, from *configs.Config)

// pullSettings are the settings of image pulls, and logSettings the settings of container logs. The
// keys are the settings' paths, as configs.Changed names them.
func pullSettings() map[string]setting {
	return map[string]setting{
		"registryPullQPS": func(to, from *configs.Config) {
			to.Kubelet.RegistryPullQPS = from.Kubelet.RegistryPullQPS
		},
		"registryBurst": func(to, from *configs.Config) {
			to.Kubelet.RegistryBurst = from.Kubelet.RegistryBurst
		},
		"serializeImagePulls": func(to, from *configs.Config) {
			to.Kubelet.SerializeImagePulls = from.Kubelet.SerializeImagePulls
		},
		"maxParallelImagePulls": func(to, from *configs.Config) {
			to.Kubelet.MaxParallelImagePulls = from.Kubelet.MaxParallelImagePulls
		},
	}
}

func logSettings() map[string]setting {
	return map[string]setting{
		"containerLogMaxSize": func(to, from *configs.Config) {
			to.Kubelet.ContainerLogMaxSize = from.Kubelet.ContainerLogMaxSize
		},
		"containerLogMaxFiles": func(to, from *configs.Config) {
			to.Kubelet.ContainerLogMaxFiles = from.Kubelet.ContainerLogMaxFiles
		},
		"containerLogMaxWorkers": func(to, from *configs.Config) {
			to.Kubelet.ContainerLogMaxWorkers = from.Kubelet.ContainerLogMaxWorkers
		},
		"containerLogMonitorInterval": func(to, from *configs.Config) {
			to.Kubelet.ContainerLogMonitorInterval = from.Kubelet.ContainerLogMonitorInterval
		},
		"berth:logs.maxContainerSize": func(to, from *configs.Config) {
			to.Berth.Logs.MaxContainerSize = from.Berth.Logs.MaxContainerSize
		},
		"berth:logs.maxNodeSize": func(to, from *configs.Config) {
			to.Berth.Logs.MaxNodeSize = from.Berth.Logs.MaxNodeSize
		},
	}
}

// Reload takes over the settings of a new config that a running agent can take over. running is the
// config in force, next is the new config, and changed has the paths in which the two differ.
// Reload returns the config that is in force now, and the paths of the settings that need a restart
// of the agent. Reload changes neither config.
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
			a.deps.Node.SetPodSecurity(string(next.Berth.PodSecurity))
		default:
			later = append(later, path)
		}
	}
	if pulled {
		a.images.SetLimits(images.ConfigFrom(next))
	}
	if rotated {
		cfg, _ := logs.ConfigFrom(next) // no error: rotatesBy has read it already
		cfg.Root = a.cfg.Kubelet.PodLogsDir
		a.logs.Set(cfg)
	}
	return &out, later
}

// rotatesBy reports whether the agent rotates logs, and can go on with the other config.
func (a *Agent) rotatesBy(next *configs.Config) bool {
	cfg, err := logs.ConfigFrom(next)
	return a.logs.Rotates() && err == nil && cfg.MaxSize >= 0
}

// NoteConfig notes the config that a start would read now, or the error with which it would end. It
// reports whether that is news.
func (a *Agent) NoteConfig(running, read *configs.Config, err error) bool {
	return a.config.Note(running, read, err)
}
