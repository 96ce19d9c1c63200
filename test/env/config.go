package env

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/test/images"
)

// The containerd versions that an environment can have.
const (
	// Containerd24 is the release that test/upstream/containerd pins, built by "make deps".
	Containerd24 = "2.4"
	// ContainerdDebian is what the host has installed, 1.6 on Debian 12.
	ContainerdDebian = "debian"
)

// binaries are a version's programs and the form of its config.
type binaries struct {
	dir      string
	template *template.Template
	// newer is the runc of [NewerHandler].
	newer string
}

// binariesOf returns the programs of a version, for the checkout at root.
func binariesOf(version, root string) (binaries, error) {
	bin := filepath.Join(root, ".cache", "bin")
	b := binaries{dir: bin, template: configV3, newer: filepath.Join(bin, "newer", "runc")}
	if version == ContainerdDebian {
		b = binaries{dir: installed(), template: configV2}
	} else if version != Containerd24 {
		return binaries{}, fmt.Errorf("unknown containerd version %q", version)
	}
	for _, name := range []string{"containerd", "containerd-shim-runc-v2", "ctr"} {
		if _, err := os.Stat(filepath.Join(b.dir, name)); err != nil {
			return binaries{}, fmt.Errorf("find containerd %s (run \"make deps\"): %w", version, err)
		}
	}
	return b, nil
}

// installed returns the folder of the host's containerd, Debian's where none is found.
func installed() string {
	path, err := exec.LookPath("containerd")
	if err != nil {
		return "/usr/bin"
	}
	return filepath.Dir(path)
}

// configV3 is the config of containerd 2. The disabled plugins would share a path with other
// environments.
var configV3 = template.Must(template.New("containerd 2").Parse(`version = 3
root = "{{.Root}}"
state = "{{.State}}"
imports = []
disabled_plugins = [{{.Disabled}}"io.containerd.nri.v1.nri", "io.containerd.internal.v1.opt",
  "io.containerd.image-verifier.v1.bindir"]
[grpc]
  address = "{{.Socket}}"
[ttrpc]
  address = "{{.Socket}}.ttrpc"
[debug]
  level = "info"
[plugins."io.containerd.cri.v1.images"]
  snapshotter = "{{.Snapshotter}}"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "{{.Pause}}"
  [plugins."io.containerd.cri.v1.images".registry]
    config_path = "{{.Registries}}"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  cdi_spec_dirs = ["{{.CDI}}"]
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = [{{.BinDirs}}]
    conf_dir = "{{.ConfDir}}"
  [plugins."io.containerd.cri.v1.runtime".containerd]
    default_runtime_name = "runc"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      Root = "{{.RuncRoot}}"
      SystemdCgroup = false
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.{{.Second}}]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.{{.Second}}.options]
      Root = "{{.RuncRoot}}"
      SystemdCgroup = false
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.{{.Newer}}]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.{{.Newer}}.options]
      Root = "{{.RuncRoot}}"
      BinaryName = "{{.NewerRunc}}"
      SystemdCgroup = false
`))

// SecondHandler is a second runtime handler, for RuntimeClasses. It runs the same runc as the
// default handler.
const SecondHandler = "second"

// NewerHandler is a runtime handler of [Containerd24] with the runc that test/upstream/runc pins.
// This runc has user namespaces; the host's runc may lack them.
const NewerHandler = "newer"

// configV2 is the config of containerd 1.6 and 1.7, which containerd 2 reads, too.
var configV2 = template.Must(template.New("containerd 1").Parse(`version = 2
root = "{{.Root}}"
state = "{{.State}}"
disabled_plugins = [{{.Disabled}}"io.containerd.internal.v1.opt"]
[grpc]
  address = "{{.Socket}}"
[ttrpc]
  address = "{{.Socket}}.ttrpc"
[debug]
  level = "info"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{{.Pause}}"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".registry]
    config_path = "{{.Registries}}"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = {{.BinDir}}
    conf_dir = "{{.ConfDir}}"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{{.Snapshotter}}"
    default_runtime_name = "runc"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      Root = "{{.RuncRoot}}"
      SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.{{.Second}}]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.{{.Second}}.options]
      Root = "{{.RuncRoot}}"
      SystemdCgroup = false
`))

// cniConfig is the pods' network: a bridge on which the node has an address. The pods have a route
// to elsewhere only if the node itself has no way out. Only then do host ports lead to pods,
// because then nobody else uses the node's rules.
const cniConfig = `{
  "cniVersion": "1.0.0",
  "name": %q,
  "plugins": [
    {
      "type": "bridge",
      "bridge": %q,
      "isGateway": true,
      "isDefaultGateway": %t,
      "ipMasq": false,
      "hairpinMode": true,
      "ipam": {"type": "host-local", "dataDir": %q, "ranges": [[{"subnet": %q}]]}
    }%s
  ]
}
`

// portmap is the CNI plugin of host ports.
const portmap = `,
    {"type": "portmap", "capabilities": {"portMappings": true}, "snat": true}`

// writeConfigs writes the configs of containerd and of the network.
func (l Layout) writeConfigs(b binaries, ownNetwork, native bool) error {
	if len(l.CNIBinDirs) == 0 {
		return fmt.Errorf("find the CNI plugins: no bridge plugin in the usual folders (run \"make deps\")")
	}
	quoted := make([]string, len(l.CNIBinDirs))
	for i, dir := range l.CNIBinDirs {
		quoted[i] = fmt.Sprintf("%q", dir)
	}
	disabled := ""
	if native {
		disabled = `"io.containerd.grpc.v1.cri", ` // the packages of Docker disable it, too
	}
	var text strings.Builder
	err := b.template.Execute(&text, map[string]string{
		"Root": filepath.Join(l.Dir, "c"), "State": l.state(), "Socket": l.socket(), "RuncRoot": l.runcRoot(),
		"Snapshotter": snapshotter(l.Dir), "Pause": images.Pause, "Registries": l.registryConfigs(),
		"BinDirs": strings.Join(quoted, ", "), "BinDir": quoted[0], "ConfDir": l.CNIConfDir,
		"Disabled": disabled, "Second": SecondHandler, "Newer": NewerHandler, "NewerRunc": b.newer,
		"CDI": l.CDISpecs(),
	})
	if err != nil {
		return fmt.Errorf("write containerd's config: %w", err)
	}
	if err := os.WriteFile(l.config(), []byte(text.String()), 0o600); err != nil {
		return fmt.Errorf("write containerd's config: %w", err)
	}
	more := ""
	if ownNetwork {
		more = portmap
	}
	cni := fmt.Sprintf(cniConfig, l.Network, l.Bridge, ownNetwork, filepath.Dir(l.leases()), l.PodCIDR, more)
	if err := os.WriteFile(filepath.Join(l.CNIConfDir, "10-"+l.Network+".conflist"), []byte(cni), 0o600); err != nil {
		return fmt.Errorf("write the network's config: %w", err)
	}
	return nil
}

// snapshotter returns native if dir is on an overlay, which cannot carry another overlay, and else
// overlayfs.
func snapshotter(dir string) string {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err == nil && fs.Type == unix.OVERLAYFS_SUPER_MAGIC {
		return "native"
	}
	return "overlayfs"
}
