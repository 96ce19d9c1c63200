package agent

import (
	"context"
	"os"
	"os/user"

	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/credentials"
	"github.com/berthd/berth/agent/images"
	"github.com/berthd/berth/agent/images/records"
	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/configs"
)

// defaultParallelPulls is how many images are pulled at once where the config sets no limit (D6).
const defaultParallelPulls = 4

// gateSecretPulled is the feature gate of the kubelet that keeps pods from images that were pulled with others' credentials. It is on by default.
const gateSecretPulled = "KubeletEnsureSecretPulledImages"

// imagesConfig reads the config's part about images. A config that says serializeImagePulls gets one pull at a time.
func imagesConfig(cfg *configs.Config) images.Config {
	k := &cfg.Kubelet
	out := images.Config{
		MaxParallelPulls: defaultParallelPulls, StallTimeout: cfg.Berth.ImagePullStallTimeout.Duration, PullBurst: int(k.RegistryBurst), ImagesDir: cfg.Berth.ImagesDir,
	}
	switch {
	case k.SerializeImagePulls != nil && *k.SerializeImagePulls && cfg.IsSet("serializeImagePulls"):
		out.MaxParallelPulls = 1
	case k.MaxParallelImagePulls != nil:
		out.MaxParallelPulls = int(*k.MaxParallelImagePulls)
	}
	if k.RegistryPullQPS != nil {
		out.PullsPerSecond = float64(*k.RegistryPullQPS)
	}
	return out
}

// imageManager makes the manager of images with the node's credentials. Its errors are the config's.
func (a *Agent) imageManager() (*images.Manager, error) {
	plugins, err := credentials.OpenPlugins(a.cfg.Credentials.ConfigPath, a.cfg.Credentials.BinDir, a.log)
	if err != nil {
		return nil, err
	}
	policy, err := records.NewPolicy(a.cfg.Kubelet.ImagePullCredentialsVerificationPolicy, a.cfg.Kubelet.PreloadedImagesVerificationAllowlist)
	if err != nil {
		return nil, err
	}
	config := imagesConfig(a.cfg)
	if config.Pins, err = images.NewPins(a.cfg.Berth.PinnedImages); err != nil {
		return nil, err
	}
	deps := images.Deps{
		Runtime: a.deps.Runtime, Importer: a.deps.Importer, Pin: a.deps.Pin, Progress: a.deps.Progress, Secret: a.podObjects.pullSecret,
		Node:   credentials.Node{Files: credentials.NewFiles(a.cfg.RootDir, home(), a.log), Plugins: plugins},
		Events: a.events.Pod, Wake: func(uid types.UID) { a.workers.Wake(uid) }, Pulled: a.metrics.ImagePulled, Logger: a.log,
	}
	if on, set := a.cfg.Kubelet.FeatureGates[gateSecretPulled]; on || !set {
		deps.Records = records.New(a.cfg.RootDir, policy, a.log)
	}
	return images.New(config, deps), nil
}

// home returns the user's home directory, also where a service manager sets no $HOME; empty where there is none.
func home() string {
	if dir, err := os.UserHomeDir(); err == nil {
		return dir
	}
	if u, err := user.Current(); err == nil {
		return u.HomeDir
	}
	return ""
}

// Pulls returns the images that are being fetched, or were and failed. It asks the runtime how far the pulls under way are.
func (a *Agent) Pulls(ctx context.Context) []api.Pull {
	progress := a.images.Progress(ctx)
	out := make([]api.Pull, 0, len(progress))
	for _, p := range progress {
		pull := api.Pull{Image: p.Image, State: string(p.State), Since: p.Since, Done: p.Done, Total: p.Total, Message: p.Error, Waiters: len(p.Pods)}
		if !p.RetryAt.IsZero() {
			at := p.RetryAt
			pull.RetryAt = &at
		}
		out = append(out, pull)
	}
	return out
}
