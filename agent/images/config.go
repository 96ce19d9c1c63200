package images

import (
	"os"
	"os/user"
	"path/filepath"

	"github.com/berthd/berth/agent/images/credentials"
	"github.com/berthd/berth/agent/images/records"
	"github.com/berthd/berth/configs"
)

// defaultParallelPulls is how many images are pulled at once if the config sets no limit.
const defaultParallelPulls = 4

// gateSecretPulled is the kubelet's feature gate that refuses an image to a pod if it was pulled
// with other pods' credentials.
const gateSecretPulled = "KubeletEnsureSecretPulledImages"

// ConfigFrom returns the manager's part of the config. With serializeImagePulls, one image is
// pulled at a time.
func ConfigFrom(cfg *configs.Config) Config {
	k := &cfg.Kubelet
	out := Config{
		MaxParallelPulls: defaultParallelPulls,
		StallTimeout:     cfg.Berth.ImagePullStallTimeout.Duration,
		PullBurst:        int(k.RegistryBurst),
		ImagesDir:        cfg.Berth.ImagesDir,
		StateFile:        filepath.Join(cfg.RootDir, "berth", "archives.json"),
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

// Open makes the image manager for a config, with the node's credentials and the service accounts
// of its pods. Open sets Node and Records of deps. Its errors are mistakes in the config.
func Open(cfg *configs.Config, accounts credentials.Accounts, deps Deps) (*Manager, error) {
	plugins, err := credentials.OpenPlugins(cfg.Credentials.ConfigPath, cfg.Credentials.BinDir, accounts, deps.Logger)
	if err != nil {
		return nil, err
	}
	policy, err := records.NewPolicy(cfg.Kubelet.ImagePullCredentialsVerificationPolicy,
		cfg.Kubelet.PreloadedImagesVerificationAllowlist)
	if err != nil {
		return nil, err
	}
	config := ConfigFrom(cfg)
	if config.Pins, err = NewPins(cfg.Berth.PinnedImages); err != nil {
		return nil, err
	}
	deps.Node = credentials.Node{Files: credentials.NewFiles(cfg.RootDir, home(), deps.Logger), Plugins: plugins}
	if cfg.GateEnabled(gateSecretPulled) {
		deps.Records = records.New(cfg.RootDir, policy, deps.Logger)
	}
	return New(config, deps), nil
}

// home returns the user's home directory, also if a service manager sets no $HOME. It is empty if
// there is none.
func home() string {
	if dir, err := os.UserHomeDir(); err == nil {
		return dir
	}
	if u, err := user.Current(); err == nil {
		return u.HomeDir
	}
	return ""
}
