package apiserver

import (
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/validation"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/metrics"
	"k8s.io/kubernetes/pkg/controlplane/reconcilers"
	"k8s.io/kubernetes/plugin/pkg/admission/noderestriction"

	"github.com/berthd/berth/apiserver/control"
	"github.com/berthd/berth/apiserver/store"
)

// complete fills in what follows from the other settings, and refuses what cannot be. What a flag
// says stays.
func (o *Options) complete() error {
	if err := o.completeNames(); err != nil {
		return err
	}
	if err := o.completeDataDir(); err != nil {
		return err
	}
	if err := o.completeStore(); err != nil {
		return err
	}
	s := o.Server
	if bound := s.SecureServing.BindAddress; s.GenericServerRunOptions.AdvertiseAddress == nil && bound.IsLoopback() {
		// No pod can reach a loopback address of the host, and the Endpoints of the Service
		// kubernetes must not have one.
		s.GenericServerRunOptions.AdvertiseAddress = bound
		s.EndpointReconcilerType = string(reconcilers.NoneEndpointReconcilerType)
	}
	if address := &s.GenericServerRunOptions.AdvertiseAddress; *address == nil || address.IsUnspecified() {
		found, err := s.SecureServing.DefaultExternalAddress()
		if err != nil {
			return fmt.Errorf("find at which address others reach this host (name it with --advertise-address): %w", err)
		}
		*address = found
	}
	if o.restrictsAnonymous() {
		s.Authentication.Anonymous.Allow = false // allowAnonymous adds what is allowed
	}
	if reflect.DeepEqual(s.Metrics, metrics.NewOptions()) {
		s.Metrics = nil // nothing to apply, of which upstream logs an error
	}
	o.restrictNodes()
	if !o.Workloads {
		o.leaveWorkloadsOut()
	}
	return nil
}

// completeNames checks the names that get into certificates.
func (o *Options) completeNames() error {
	if o.NodeName == "" {
		return errors.New("the host has no name: set --node-name")
	}
	o.NodeName = strings.ToLower(o.NodeName) // as a kubelet does
	if wrong := validation.IsDNS1123Subdomain(o.NodeName); len(wrong) > 0 {
		return fmt.Errorf("%q is no name of a node (--node-name): %s", o.NodeName, strings.Join(wrong, "; "))
	}
	for i, host := range o.TLSSANs {
		host = strings.ToLower(host)
		if net.ParseIP(host) == nil && len(validation.IsDNS1123Subdomain(host)) > 0 &&
			len(validation.IsWildcardDNS1123Subdomain(host)) > 0 {
			return fmt.Errorf("%q is neither an IP address nor a DNS name (--tls-san)", o.TLSSANs[i])
		}
		o.TLSSANs[i] = host
	}
	return nil
}

// completeDataDir makes the path of the data directory absolute, and checks that the store's socket
// can be there.
func (o *Options) completeDataDir() error {
	if o.DataDir == "" {
		return errors.New("--data-dir is empty: name the directory with the content, or leave the flag out")
	}
	dir, err := filepath.Abs(o.DataDir)
	if err != nil {
		return fmt.Errorf("find the data directory: %w", err)
	}
	o.DataDir = dir
	socket := strings.TrimPrefix(store.Endpoint(dir), "unix://")
	if longest := len(unix.RawSockaddrUnix{}.Path) - 1; !o.external() && len(socket) > longest {
		return fmt.Errorf("the path %s has more than %d bytes, which no socket may have: choose a shorter --data-dir",
			socket, longest)
	}
	return nil
}

// completeStore sets what a store in this process is the reason for.
func (o *Options) completeStore() error {
	if o.external() {
		return nil
	}
	s := o.Server
	if elsewhere := s.Etcd.EtcdServersOverrides; len(elsewhere) > 0 {
		return fmt.Errorf("--etcd-servers-overrides %s: kinds can be elsewhere only beside --etcd-servers: the store in "+
			"this process has all or none", strings.Join(elsewhere, ","))
	}
	if t := s.Etcd.StorageConfig.Transport; t.CertFile != "" || t.KeyFile != "" || t.TrustedCAFile != "" {
		return errors.New("--etcd-cafile, --etcd-certfile and --etcd-keyfile are for an etcd that --etcd-servers names")
	}
	if s.EndpointReconcilerType == string(reconcilers.LeaseEndpointReconcilerType) {
		// Leases are for several servers, and such a store has one. They would be written every ten
		// seconds, also to a full disk.
		s.EndpointReconcilerType = string(reconcilers.MasterCountReconcilerType)
	}
	return nil
}

// restrictNodes switches NodeRestriction on, whichever other plugins the flags switch on.
func (o *Options) restrictNodes() {
	plugins := o.Server.Admission.GenericAdmission
	if !slices.Contains(slices.Concat(plugins.EnablePlugins, plugins.DisablePlugins), noderestriction.PluginName) {
		plugins.EnablePlugins = append(plugins.EnablePlugins, noderestriction.PluginName)
	}
}

// leaveWorkloadsOut has the server not serve the groups of workloads, unless a flag says that it does.
func (o *Options) leaveWorkloadsOut() {
	enabled := &o.Server.APIEnablement.RuntimeConfig
	if *enabled == nil {
		*enabled = cliflag.ConfigurationMap{}
	}
	for _, group := range control.WorkloadGroups {
		if _, ok := (*enabled)[group]; !ok {
			(*enabled)[group] = "false"
		}
	}
}

// serves says whether the server serves a version of a group that is served by default.
func (o *Options) serves(version string) bool {
	value, ok := o.Server.APIEnablement.RuntimeConfig[version]
	if !ok || value == "" {
		return true
	}
	served, err := strconv.ParseBool(value)
	return served || err != nil // upstream refuses other values
}
