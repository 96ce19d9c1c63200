package apiserver

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/berthd/berth/apiserver/services"
	"github.com/berthd/berth/apiserver/store"
)

// newServicesCommand returns "berth-apiserver services".
func newServicesCommand() *cobra.Command {
	dir, o := DefaultDataDir, services.Defaults()
	cmd := &cobra.Command{
		Use:   "services",
		Short: "Print the manifests of kube-proxy and CoreDNS, for Services and their names",
		Args:  cobra.NoArgs,
		Long: `Print the manifests of kube-proxy, which brings packets to Services, and of CoreDNS, which answers for their names.
The server runs with --workloads and with a --bind-address that pods reach. The agents of the nodes need the address of
the DNS server as clusterDNS: the command says it on standard error.`,
		Example: `  berth-apiserver services | kubectl --kubeconfig /var/lib/berth-apiserver/admin.kubeconfig apply -f -`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := adminConfig(dir)
			if err != nil {
				return err
			}
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				return fmt.Errorf("make a client: %w", err)
			}
			text, dns, err := services.Manifests(cmd.Context(), client, o)
			if err != nil {
				return unreachable(config.Host, err)
			}
			fmt.Fprintf(cmd.ErrOrStderr(),
				"agents need this in their KubeletConfiguration: clusterDNS: [%s], clusterDomain: %s\n", dns, o.Domain)
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&dir, "data-dir", dir, "The data directory of the server, which runs.")
	flags.StringVar(&o.Server, "server", o.Server,
		"The URL under which the nodes reach the server (default: the address that the server advertises).")
	flags.StringVar(&o.DNS, "cluster-dns", o.DNS,
		"The address of the Service kube-dns, in the range of Services (default: its tenth).")
	flags.StringVar(&o.Domain, "cluster-domain", o.Domain, "The domain of the cluster.")
	flags.StringVar(&o.ProxyImage, "kube-proxy-image", o.ProxyImage, "The image of kube-proxy.")
	flags.StringVar(&o.DNSImage, "coredns-image", o.DNSImage, "The image of CoreDNS.")
	return cmd
}

// adminConfig returns how the administrator reaches the server with that data directory.
func adminConfig(dir string) (*rest.Config, error) {
	path := filepath.Join(dir, "admin.kubeconfig")
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrPermission) {
		return nil, store.MayNot(dir, err)
	}
	var config *rest.Config
	if err == nil {
		config, err = clientcmd.RESTConfigFromKubeConfig(text)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s (start berth-apiserver first, or set --data-dir): %w", path, err)
	}
	return config, nil
}

// unreachable adds to an error what to do, if the error is that no server listens.
func unreachable(server string, err error) error {
	var network *net.OpError
	if !errors.As(err, &network) || network.Op != "dial" {
		return err
	}
	return fmt.Errorf("no server answers at %s (start berth-apiserver first, or set --data-dir): %w", server, err)
}
