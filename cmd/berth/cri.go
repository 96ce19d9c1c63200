package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/cgroups"
	"github.com/berthd/berth/cni"
	"github.com/berthd/berth/cri/native"
	"github.com/berthd/berth/cri/native/images"
	"github.com/berthd/berth/cri/native/nri"
	criserve "github.com/berthd/berth/cri/serve"
)

// unixScheme begins the address of a socket, as in a kubelet's --container-runtime-endpoint.
const unixScheme = "unix://"

func newCRI() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "cri",
		Short:   "Serve the CRI on containerd, without containerd's CRI plugin",
		Example: `  berth cri serve`,
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newCRIServe())
	return cmd
}

// criOptions are the flags of cri serve.
type criOptions struct {
	listen, containerd string
	pullFrom, ociBin   string
	network            cni.Config
	runtime            native.Config
	nri                bool
	plugins            nri.Config
}

func newCRIServe() *cobra.Command {
	var o criOptions
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve berth's own CRI runtime on a socket, for crictl and other CRI clients",
		Long: `Serve berth's own CRI runtime on a socket, for crictl and other CRI clients, such as a kubelet. It needs root.

It needs a containerd 2 whose CRI plugin may be off, and the plugins of a CNI network. What it makes is in a namespace
of containerd of its own, so it can run beside Docker and beside containerd's CRI plugin. When it ends, containers run
on, and the next start finds them.

It does not do everything yet: checkpoints of containers are refused.`,
		Example: `  berth cri serve
  berth cri serve --listen unix:///run/cri.sock --namespace lab --root-dir /var/lib/lab --state-dir /run/lab`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path, ok := strings.CutPrefix(o.listen, unixScheme)
			if !ok || !filepath.IsAbs(path) {
				return wrongly("--listen is %q, and must be %s and an absolute path", o.listen, unixScheme)
			}
			if err := needRoot("the CRI runtime", os.Geteuid()); err != nil {
				return err
			}
			return o.serve(cmd.Context(), path, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.listen, "listen", "unix:///run/berth/cri.sock", "the socket to serve on")
	f.StringVar(&o.containerd, "containerd", "/run/containerd/containerd.sock", "the socket of containerd")
	f.StringVar(&o.runtime.Namespace, "namespace", "berth", "the namespace of containerd; nobody else may use it")
	f.StringVar(&o.runtime.RootDir, "root-dir", "/var/lib/berth/cri", "where records are kept over a restart")
	f.StringVar(&o.runtime.StateDir, "state-dir", "/run/berth/cri", "where files, pipes and mounts of pods are")
	f.StringVar((*string)(&o.runtime.Pause), "pause", string(native.PauseAuto),
		"which pod sandboxes have a pause process: auto (those that need one), always, never")
	f.StringVar(&o.runtime.PauseImage, "pause-image", "registry.k8s.io/pause:3.10", "the image of pause processes")
	f.StringVar(&o.network.ConfDir, "cni-conf-dir", cni.DefaultConfDir, "where network configurations are")
	f.StringSliceVar(&o.network.BinDirs, "cni-bin-dir", cni.DefaultBinDirs(), "where CNI plugins are, in order")
	f.StringVar(&o.pullFrom, "registry-dir", images.DefaultRegistryDir, "a folder with a hosts.toml for each registry")
	f.StringVar(&o.ociBin, "oci-runtime", "", "the program that runs containers (default: runc)")
	f.BoolVar(&o.runtime.SystemdCgroups, "systemd-cgroup", false, "let systemd make the cgroups")
	f.BoolVar(&o.nri, "nri", false, "let NRI plugins change containers")
	f.StringVar(&o.plugins.Socket, "nri-socket", "/run/berth/nri.sock", "where NRI plugins connect")
	f.StringVar(&o.plugins.PluginDir, "nri-plugin-dir", "/etc/berth/nri/plugins", "the NRI plugins that are started")
	f.StringVar(&o.plugins.ConfigDir, "nri-config-dir", "/etc/nri/conf.d", "the configurations of NRI plugins")
	f.StringVar(&o.runtime.StreamAddress, "stream-address", "127.0.0.1:0", "where exec, attach, port-forward are served")
	return cmd
}

// serve serves on the socket at a path until ctx ends.
func (o *criOptions) serve(ctx context.Context, path string, out, errOut io.Writer) error {
	o.network.StateDir = filepath.Join(o.runtime.RootDir, "cni")
	network, err := cni.New(o.network)
	if err != nil {
		return err
	}
	o.runtime.Network, o.runtime.Containerd = network, strings.TrimPrefix(o.containerd, unixScheme)
	o.runtime.Images = images.Config{RegistryDir: o.pullFrom}
	if o.nri {
		o.runtime.NRI, o.runtime.NoSwapLimits = &o.plugins, !cgroups.SwapAccounting()
	}
	o.runtime.Handlers = map[string]native.Handler{"": {Binary: o.ociBin}}
	o.runtime.Version, o.runtime.Logger = version, slog.New(slog.NewTextHandler(errOut, nil))
	runtime, err := native.New(ctx, o.runtime)
	if err != nil {
		return err
	}
	defer runtime.Close()
	stop, err := criserve.Start(ctx, path, runtime)
	if err != nil {
		return err
	}
	defer stop()
	fmt.Fprintf(out, "the CRI is served on %s\n", o.listen)
	<-ctx.Done()
	return nil
}
