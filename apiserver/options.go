package apiserver

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/server/flagz"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	cp "k8s.io/kubernetes/pkg/controlplane/apiserver/options"
	"k8s.io/kubernetes/pkg/kubeapiserver/authorizer/modes"

	"github.com/berthd/berth/apiserver/pki"
	"github.com/berthd/berth/apiserver/store"
)

// DefaultDataDir is where everything is that the server keeps.
const DefaultDataDir = "/var/lib/berth-apiserver"

const (
	// issuer is in each token of a ServiceAccount. It is the one that kubeadm sets.
	issuer = "https://kubernetes.default.svc.cluster.local"
	// serviceRange has the addresses of Services. Its first one is the API server's.
	serviceRange = "10.96.0.0/16"
	// watchesEnd is how long the server, when it stops, waits for watches that end by themselves.
	watchesEnd = time.Second
)

// Options are the settings of [Run].
type Options struct {
	// DataDir has the content, the keys and the kubeconfigs.
	DataDir string
	// NodeName is the node for whose agent a kubeconfig is made.
	NodeName string
	// TLSSANs are more names and addresses under which clients reach the server.
	TLSSANs []string
	// OpenAPIV2 has the server serve /openapi/v2, too.
	OpenAPIV2 bool
	// CRDs has the server serve CustomResourceDefinitions and the kinds that they define.
	CRDs bool
	// Controllers, Scheduler and Workloads switch on what control.Options says.
	Controllers, Scheduler, Workloads bool
	// Server has kube-apiserver's own settings.
	Server *options.ServerRunOptions

	// compaction is how often the store in this process drops old revisions.
	compaction time.Duration
	// flags are those of the command line.
	flags cliflag.NamedFlagSets
}

// NewOptions returns the defaults. They differ from kube-apiserver's where a machine of its own
// needs others.
func NewOptions() *Options {
	withoutPeers()
	o := &Options{DataDir: DefaultDataDir, Controllers: true, Scheduler: true, Server: options.NewServerRunOptions()}
	if name, err := os.Hostname(); err == nil {
		o.NodeName = strings.ToLower(name) // as a kubelet does
	}
	s := o.Server
	s.SecureServing.BindAddress = net.IPv4(127, 0, 0, 1)
	s.GenericServerRunOptions.ShutdownWatchTerminationGracePeriod = watchesEnd
	s.ServiceClusterIPRanges = serviceRange
	s.AllowPrivileged = true // PodSecurity says which namespaces allow it
	s.Authorization.Modes = []string{modes.ModeNode, modes.ModeRBAC}
	s.Authentication.ServiceAccounts.Issuers = []string{issuer}
	s.Authentication.BootstrapToken.Enable = true // there is none before an administrator makes one
	s.KubeletConfig.PreferredAddressTypes = []string{"InternalIP", "Hostname"}
	for _, resource := range uncached {
		s.Etcd.WatchCacheSizes = append(s.Etcd.WatchCacheSizes, resource+"#0")
	}
	return o
}

// Flags returns the flags: the server's own ones, and all of kube-apiserver's.
func (o *Options) Flags() cliflag.NamedFlagSets {
	all := o.Server.Flags()
	own := all.FlagSet("berth")
	all.Order = append([]string{"berth"}, all.Order[:len(all.Order)-1]...)
	own.StringVar(&o.DataDir, "data-dir", o.DataDir,
		"The directory with the content, the keys and the kubeconfigs.")
	own.StringVar(&o.NodeName, "node-name", o.NodeName, "The node for whose agent node.kubeconfig is made.")
	own.StringSliceVar(&o.TLSSANs, "tls-san", o.TLSSANs,
		"More names and IP addresses under which clients reach the server.")
	own.BoolVar(&o.OpenAPIV2, "openapi-v2", o.OpenAPIV2,
		"Serve /openapi/v2 beside /openapi/v3, for clients that are older than Kubernetes 1.27. It takes memory.")
	own.BoolVar(&o.CRDs, "crds", o.CRDs,
		"Serve CustomResourceDefinitions and the kinds that they define. It takes memory.")
	own.BoolVar(&o.Controllers, "controllers", o.Controllers,
		"Run the controllers in this process. Without them, a kube-controller-manager does their work.")
	own.BoolVar(&o.Scheduler, "scheduler", o.Scheduler,
		"Run the scheduler in this process. Without it, a kube-scheduler does its work.")
	own.BoolVar(&o.Workloads, "workloads", o.Workloads,
		"Serve Deployments, DaemonSets, StatefulSets, Jobs and the like, and run their controllers.")
	o.Server.Flagz = flagz.NamedFlagSetsReader{FlagSets: all}
	o.flags = all
	return all
}

// external says whether the content is in an etcd outside of this process.
func (o *Options) external() bool { return len(o.Server.Etcd.StorageConfig.Transport.ServerList) > 0 }

// keysConfig says what the certificates must say for these settings.
func (o *Options) keysConfig() (pki.Config, error) {
	advertised := o.Server.GenericServerRunOptions.AdvertiseAddress
	_, first, err := firstService(o.Server.ServiceClusterIPRanges)
	if err != nil {
		return pki.Config{}, err
	}
	bound := o.Server.SecureServing.BindAddress
	server := advertised
	switch {
	case bound.IsUnspecified():
		server = net.IPv4(127, 0, 0, 1)
	case bound.IsLoopback():
		server = bound
	}
	hosts := sets.New("localhost", "127.0.0.1", "::1", o.NodeName, advertised.String(), first.String(),
		"kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
	if !bound.IsUnspecified() {
		hosts.Insert(bound.String())
	}
	hosts.Insert(o.TLSSANs...)
	nodeHosts, err := hostAddresses()
	if err != nil {
		return pki.Config{}, err
	}
	return pki.Config{
		DataDir: o.DataDir, NodeName: o.NodeName, NodeHosts: nodeHosts, Hosts: sets.List(hosts),
		Server: "https://" + net.JoinHostPort(server.String(), strconv.Itoa(o.Server.SecureServing.BindPort)),
	}, nil
}

// hostAddresses returns the addresses of this host under which a node may be known: all but those
// that are valid on one link only, and the loopback address of IPv4.
func hostAddresses() ([]string, error) {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return nil, fmt.Errorf("find the addresses of this host for the agent's certificate: %w", err)
	}
	hosts := sets.New("127.0.0.1")
	for _, a := range addresses {
		if network, ok := a.(*net.IPNet); ok && network.IP.IsGlobalUnicast() {
			hosts.Insert(network.IP.String())
		}
	}
	return sets.List(hosts), nil
}

// firstService returns the first of the ranges of Services, and the API server's address in it.
func firstService(ranges string) (net.IPNet, net.IP, error) {
	first, _, _ := strings.Cut(ranges, ",")
	_, network, err := net.ParseCIDR(first)
	if err != nil {
		return net.IPNet{}, nil, fmt.Errorf("read --service-cluster-ip-range: %w", err)
	}
	return cp.ServiceIPRange(*network)
}

// useKeys has the server use the keys for everything for which no flag names others.
func (o *Options) useKeys(k *pki.Keys) {
	s := o.Server
	for _, f := range []struct {
		flag *string
		path string
	}{
		{&s.SecureServing.ServerCert.CertKey.CertFile, k.Server},
		{&s.SecureServing.ServerCert.CertKey.KeyFile, k.Server},
		{&s.Authentication.ClientCert.ClientCA, k.CA},
		{&s.KubeletConfig.TLSClientConfig.CAFile, k.CA},
		{&s.KubeletConfig.TLSClientConfig.CertFile, k.KubeletClient},
		{&s.KubeletConfig.TLSClientConfig.KeyFile, k.KubeletClient},
		{&s.ProxyClientCertFile, k.FrontProxyClient},
		{&s.ProxyClientKeyFile, k.FrontProxyClient},
	} {
		if *f.flag == "" {
			*f.flag = f.path
		}
	}
	o.useTokenKeys(k.ServiceAccounts)
	proxy := s.Authentication.RequestHeader
	if proxy.ClientCAFile != "" {
		return
	}
	proxy.ClientCAFile = k.FrontProxyCA
	for _, f := range []struct {
		flag  *[]string
		value string
	}{
		{&proxy.AllowedNames, "front-proxy-client"},
		{&proxy.UsernameHeaders, "X-Remote-User"},
		{&proxy.GroupHeaders, "X-Remote-Group"},
		{&proxy.ExtraHeaderPrefixes, "X-Remote-Extra-"},
	} {
		if len(*f.flag) == 0 {
			*f.flag = []string{f.value}
		}
	}
}

// useTokenKeys has the server sign the tokens of ServiceAccounts with its own key, unless a flag
// names another key or who signs, and accept what it signs. Flags that name both a key that signs
// and keys that are accepted have the last word.
func (o *Options) useTokenKeys(own string) {
	accepted := &o.Server.Authentication.ServiceAccounts.KeyFiles
	signs := o.Server.ServiceAccountSigningKeyFile
	if signs == "" && o.Server.ServiceAccountSigningEndpoint == "" {
		o.Server.ServiceAccountSigningKeyFile = own
		if !slices.ContainsFunc(*accepted, func(path string) bool { return resolved(path) == resolved(own) }) {
			*accepted = append(slices.Clone(*accepted), own)
		}
	}
	if len(*accepted) == 0 && signs != "" {
		*accepted = []string{signs} // a key that signs has the one that verifies
	}
}

// useStore has the server keep its content in the store of the data directory. What is no kind of
// the API, such as the addresses of Services, reaches it by its socket, and compacts nothing.
func (o *Options) useStore() {
	config := &o.Server.Etcd.StorageConfig
	config.Transport.ServerList = []string{store.Endpoint(o.DataDir)}
	o.compaction, config.CompactionInterval = config.CompactionInterval, 0
}
