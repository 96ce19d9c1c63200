package apiserver

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/cluster-bootstrap/token/api"
	"k8s.io/cluster-bootstrap/token/util"
)

// defaultTTL is how long a token is valid, as one of kubeadm.
const defaultTTL = 24 * time.Hour

// tokenOptions are the settings of "berth-apiserver token create".
type tokenOptions struct {
	dir, server string
	ttl         time.Duration
}

// newTokenCommand returns "berth-apiserver token".
func newTokenCommand() *cobra.Command {
	o := tokenOptions{dir: DefaultDataDir}
	cmd := &cobra.Command{Use: "token", Short: "Let other machines join as nodes", Args: cobra.NoArgs}
	create := &cobra.Command{
		Use: "create", Short: "Print a kubeconfig with which a machine joins, until it expires", Args: cobra.NoArgs,
		Long: `Print a kubeconfig with which another machine's agent asks for a certificate of its own, until the token in it
expires. It lets its holder become a node: keep it as you keep a key.`,
		Example: `  berth-apiserver token create --ttl 1h --server https://192.0.2.1:6443 > join.kubeconfig
  berth agent --bootstrap-kubeconfig join.kubeconfig --kubeconfig /var/lib/kubelet/kubeconfig   # on the other machine`,
		RunE: func(cmd *cobra.Command, _ []string) error { return o.create(cmd.Context(), cmd.OutOrStdout()) },
	}
	create.Flags().StringVar(&o.dir, "data-dir", o.dir, "The data directory of the server, which runs.")
	create.Flags().DurationVar(&o.ttl, "ttl", defaultTTL, "How long the token is valid.")
	create.Flags().StringVar(&o.server, "server", "",
		"The URL under which the machine reaches the server (default: that of admin.kubeconfig).")
	cmd.AddCommand(create)
	return cmd
}

// create makes a token and writes the kubeconfig.
func (o *tokenOptions) create(ctx context.Context, out io.Writer) error {
	if o.ttl <= 0 {
		return usageErrorf("make a token: --ttl must be more than 0")
	}
	if u, err := url.Parse(o.server); o.server != "" && (err != nil || u.Scheme != "https" || u.Hostname() == "") {
		return usageErrorf("--server %q is no URL such as https://192.0.2.1:6443", o.server)
	}
	config, err := adminConfig(o.dir)
	if err != nil {
		return err
	}
	if o.server == "" {
		if o.server = config.Host; onlyHere(o.server) {
			return fmt.Errorf("no other machine reaches %s: start berth-apiserver with --bind-address, and say with --server "+
				"under which URL others reach it", o.server)
		}
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	token, err := util.GenerateBootstrapToken()
	if err != nil {
		return fmt.Errorf("make a token: %w", err)
	}
	id, key, _ := strings.Cut(token, ".")
	_, err = client.CoreV1().Secrets(metav1.NamespaceSystem).Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: util.BootstrapTokenSecretName(id)},
		Type:       api.SecretTypeBootstrapToken,
		StringData: map[string]string{
			api.BootstrapTokenIDKey: id, api.BootstrapTokenSecretKey: key,
			api.BootstrapTokenExpirationKey:       time.Now().Add(o.ttl).UTC().Format(time.RFC3339),
			api.BootstrapTokenUsageAuthentication: "true",
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return unreachable(config.Host, fmt.Errorf("store the token: %w", err))
	}
	text, err := clientcmd.Write(kubeconfigWithToken(o.server, config.CAData, token))
	if err != nil {
		return fmt.Errorf("make the kubeconfig of the token: %w", err)
	}
	_, err = out.Write(text)
	return err
}

// kubeconfigWithToken returns the kubeconfig of whoever has the token.
func kubeconfigWithToken(server string, authority []byte, token string) clientcmdapi.Config {
	const name = "berth"
	return clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: server, CertificateAuthorityData: authority}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {Token: token}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	}
}

// onlyHere says whether a URL has a loopback address.
func onlyHere(server string) bool {
	u, err := url.Parse(server)
	return err == nil && (u.Hostname() == "localhost" || net.ParseIP(u.Hostname()).IsLoopback())
}
