package configs

import (
	"net/netip"
	"path/filepath"
	"time"

	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// The default paths.
const (
	// DefaultFile is the config file if --config is not given; it need not exist.
	DefaultFile = "/etc/berth/config.yaml"
	// DefaultDropInDir is the drop-in directory if --config-dir is not given; it need not exist.
	DefaultDropInDir = "/etc/berth/config.d"
	// DefaultRootDir is the directory of pods, volumes and checkpoints (the kubelet's default).
	DefaultRootDir = "/var/lib/kubelet"
	// DefaultStaticPodPath is the manifest directory. The kubelet has no default; this is kubeadm's
	// directory.
	DefaultStaticPodPath = "/etc/kubernetes/manifests"
)

// Config is the whole configuration of an agent: defaulted, merged and valid. Nobody changes it
// after [Load].
type Config struct {
	// Kubelet is the stock configuration with all defaults, so no pointer of a field that berth
	// uses is nil.
	Kubelet kubeletconfigv1beta1.KubeletConfiguration
	// Berth is berth's own configuration with all defaults.
	Berth BerthConfiguration
	// Flags are the settings that, as in the kubelet, only the command line has.
	Flags

	origins origins
	flagz   map[string]string
}

// Flags are the settings that only the command line has.
type Flags struct {
	// RootDir has everything that the agent keeps about pods (--root-dir), absolute.
	RootDir string
	// Kubeconfig is the file with the connection to the API server (--kubeconfig), absolute; empty
	// for a node without a cluster.
	Kubeconfig string
	// BootstrapKubeconfig is the file with the credentials to request the first client certificate
	// (--bootstrap-kubeconfig), absolute; empty for none.
	BootstrapKubeconfig string
	// CertDir has the serving and client certificates (--cert-dir), absolute.
	CertDir string
	// HostnameOverride replaces the host's name as the node's name (--hostname-override); use
	// [NodeName].
	HostnameOverride string
	// NodeIPs are the addresses that the node reports (--node-ip): none, one, or one of each
	// family. An unspecified address (0.0.0.0 or ::) means the default address of that family.
	NodeIPs []netip.Addr
	// NodeLabels are put on the node object (--node-labels).
	NodeLabels map[string]string
	// CloudProvider is empty or "external" (--cloud-provider).
	CloudProvider string
	// Lock is the single-instance lock.
	Lock LockOptions
	// ContainerGC limits the dead containers that are kept.
	ContainerGC ContainerGCOptions
	// Credentials are the image credential provider plugins.
	Credentials CredentialProviderOptions
	// RuntimeCgroups is the runtime's cgroup (--runtime-cgroups), for statistics.
	RuntimeCgroups string
}

// LockOptions say how the agent prevents a second agent on the same node.
type LockOptions struct {
	// File is locked while the agent runs (--lock-file); empty means no lock.
	File string
	// ExitOnContention ends the agent when another process opens the lock file
	// (--exit-on-lock-contention).
	ExitOnContention bool
}

// ContainerGCOptions limit the dead containers that are kept for their logs.
type ContainerGCOptions struct {
	// MinAge is the least age of a dead container that may be removed
	// (--minimum-container-ttl-duration).
	MinAge time.Duration
	// MaxPerContainer is how many dead instances of one container are kept
	// (--maximum-dead-containers-per-container); below 0 means no limit, and 0 the newest one.
	MaxPerContainer int
	// MaxTotal is how many dead containers are kept on the node (--maximum-dead-containers); below
	// 0 means no limit.
	MaxTotal int
}

// CredentialProviderOptions name the image credential provider plugins.
type CredentialProviderOptions struct {
	// ConfigPath is the plugins' config file or directory (--image-credential-provider-config).
	ConfigPath string
	// BinDir has the plugins' programs (--image-credential-provider-bin-dir).
	BinDir string
}

// SeccompRoot returns the directory of Localhost seccomp profiles.
func (c *Config) SeccompRoot() string { return filepath.Join(c.RootDir, "seccomp") }

// Origin returns where a field's value comes from: "FILE:LINE" or "--FLAG", and "" for a default.
// path is the field's JSON path in its document, for example "cgroupDriver" or
// "authentication.x509.clientCAFile". berth's own fields have the prefix "berth:", for example
// "berth:cni.confDir".
func (c *Config) Origin(path string) string {
	doc, p := kubeletDoc, path
	if len(path) > len(berthPrefix) && path[:len(berthPrefix)] == berthPrefix {
		doc, p = berthDoc, path[len(berthPrefix):]
	}
	return c.origins.at(doc, p)
}

// IsSet reports whether the user set the field, by file or by flag, to any value. path is as in
// [Config.Origin].
func (c *Config) IsSet(path string) bool { return c.Origin(path) != "" }
