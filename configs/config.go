package configs

import (
	"net/netip"
	"path/filepath"
	"time"

	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// Paths used where neither file nor flag says otherwise.
const (
	// DefaultFile is the config file read when --config is not given; it may be missing.
	DefaultFile = "/etc/berth/config.yaml"
	// DefaultDropInDir is the drop-in directory read when --config-dir is not given; it may be missing.
	DefaultDropInDir = "/etc/berth/config.d"
	// DefaultRootDir is the directory of pods, volumes and checkpoints, the kubelet's own.
	DefaultRootDir = "/var/lib/kubelet"
	// DefaultStaticPodPath is the manifest directory. The kubelet has none by default; berth has kubeadm's.
	DefaultStaticPodPath = "/etc/kubernetes/manifests"
)

// Config is the whole configuration of an agent: defaulted, merged and valid. Read-only after [Load].
type Config struct {
	// Kubelet is the stock configuration with every default applied, so none of the pointers of honoured fields is nil.
	Kubelet kubeletconfigv1beta1.KubeletConfiguration
	// Berth is berth's own configuration with every default applied.
	Berth BerthConfiguration
	// Flags are the settings that, as in the kubelet, exist on the command line only.
	Flags

	origins origins
	flagz   map[string]string
}

// Flags are the settings that only the command line has.
type Flags struct {
	// RootDir holds everything the agent keeps about pods (--root-dir), absolute.
	RootDir string
	// Kubeconfig says how to reach the API server (--kubeconfig), absolute; empty for a node without a cluster.
	Kubeconfig string
	// BootstrapKubeconfig is with what to ask for a first client certificate (--bootstrap-kubeconfig), absolute; empty for none.
	BootstrapKubeconfig string
	// CertDir holds the serving and client certificates (--cert-dir), absolute.
	CertDir string
	// HostnameOverride replaces the host's name as node name (--hostname-override); use [NodeName].
	HostnameOverride string
	// NodeIPs are the addresses the node reports (--node-ip): none, one, or one of each family. An unspecified address
	// (0.0.0.0 or ::) means "the default address of this family".
	NodeIPs []netip.Addr
	// NodeLabels are put on the node object (--node-labels).
	NodeLabels map[string]string
	// CloudProvider is empty or "external" (--cloud-provider).
	CloudProvider string
	// Lock is the single-instance lock.
	Lock LockOptions
	// ContainerGC bounds the dead containers that are kept.
	ContainerGC ContainerGCOptions
	// Credentials are the image credential provider plugins.
	Credentials CredentialProviderOptions
	// RuntimeCgroups is the cgroup the runtime runs in (--runtime-cgroups), for statistics.
	RuntimeCgroups string
}

// LockOptions say how a second agent on the same node is kept out.
type LockOptions struct {
	// File is locked while the agent runs (--lock-file); empty takes no lock.
	File string
	// ExitOnContention ends the agent when somebody else opens the lock file (--exit-on-lock-contention).
	ExitOnContention bool
}

// ContainerGCOptions bound the dead containers that are kept for their logs.
type ContainerGCOptions struct {
	// MinAge is the age below which a dead container is never removed (--minimum-container-ttl-duration).
	MinAge time.Duration
	// MaxPerContainer is how many dead instances of one container are kept (--maximum-dead-containers-per-container);
	// below 0 means no bound.
	MaxPerContainer int
	// MaxTotal is how many dead containers are kept on the node (--maximum-dead-containers); below 0 means no bound.
	MaxTotal int
}

// CredentialProviderOptions name the image credential provider plugins.
type CredentialProviderOptions struct {
	// ConfigPath is the plugins' config file or directory (--image-credential-provider-config).
	ConfigPath string
	// BinDir holds the plugins' programs (--image-credential-provider-bin-dir).
	BinDir string
}

// SeccompRoot returns the directory in which Localhost seccomp profiles are looked up.
func (c *Config) SeccompRoot() string { return filepath.Join(c.RootDir, "seccomp") }

// Origin returns where a field's value comes from: "FILE:LINE" or "--FLAG", and "" for a default. path is the field's
// JSON path in its document, for example "cgroupDriver" or "authentication.x509.clientCAFile"; berth's own fields have
// the prefix "berth:", for example "berth:cni.confDir".
func (c *Config) Origin(path string) string {
	doc, p := kubeletDoc, path
	if len(path) > len(berthPrefix) && path[:len(berthPrefix)] == berthPrefix {
		doc, p = berthDoc, path[len(berthPrefix):]
	}
	return c.origins.at(doc, p)
}

// IsSet tells whether the user set the field, by file or by flag, to whatever value. path is as in [Config.Origin].
func (c *Config) IsSet(path string) bool { return c.Origin(path) != "" }
