package apiserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	"golang.org/x/sys/unix"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apiserver/pkg/server/resourceconfig"
	"k8s.io/client-go/util/keyutil"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/controlplane"
	"k8s.io/kubernetes/pkg/serviceaccount"

	"github.com/berthd/berth/apiserver/pki"
)

// checked are settings that were checked, and what follows from them.
type checked struct {
	server options.CompletedOptions
	keys   pki.Config
	// external says that the content is in an etcd outside of this process.
	external bool
}

// check completes the settings in place, once, and checks them. It writes nothing: what is refused
// leaves no trace in the data directory. What the files say that flags name is seen when they are
// used.
func (o *Options) check(ctx context.Context) (*checked, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	keys, err := o.keysConfig()
	if err != nil {
		return nil, err
	}
	c := &checked{keys: keys, external: o.external()}
	if !c.external {
		o.useStore()
	}
	paths := pki.Paths(o.DataDir)
	o.useKeys(paths)
	if err := o.checkFiles(paths); err != nil {
		return nil, err
	}
	if err := o.checkTLS(); err != nil {
		return nil, err
	}
	if c.server, err = o.completeServer(ctx, paths.ServiceAccounts); err != nil {
		return nil, err
	}
	return c, c.validate()
}

// validate checks kube-apiserver's own settings. Some checks need the files of the keys, and pass
// without them.
func (c *checked) validate() error {
	if errs := c.server.Validate(); len(errs) > 0 {
		return fmt.Errorf("check the settings: %w", utilerrors.NewAggregate(errs))
	}
	return nil
}

// completeServer completes kube-apiserver's own settings. Upstream reads the key that
// signs tokens meanwhile, which a first start makes only later: [checked.signTokens] reads it then.
func (o *Options) completeServer(ctx context.Context, ownKey string) (options.CompletedOptions, error) {
	s := *o.Server.Options
	unsigned := s.ServiceAccountSigningKeyFile != "" && s.ServiceAccountSigningEndpoint == "" &&
		resolved(s.ServiceAccountSigningKeyFile) == resolved(ownKey)
	if unsigned {
		s.ServiceAccountSigningKeyFile, s.ServiceAccountIssuer = "", noTokens{}
	}
	completed, err := (&options.ServerRunOptions{Options: &s, Extra: o.Server.Extra}).Complete(ctx)
	if err != nil {
		return completed, fmt.Errorf("complete the settings: %w", err)
	}
	_, err = resourceconfig.MergeAPIResourceConfigs(
		controlplane.DefaultAPIResourceConfigSource(), completed.APIEnablement.RuntimeConfig, legacyscheme.Scheme)
	if err != nil {
		return completed, fmt.Errorf("read --runtime-config: %w", err)
	}
	return completed, nil
}

// noTokens stands for the key that signs tokens until it is read.
type noTokens struct{ serviceaccount.TokenGenerator }

// signTokens has the server sign tokens with the key in that file.
func (c *checked) signTokens(file string) error {
	if _, missing := c.server.ServiceAccountIssuer.(noTokens); !missing {
		return nil
	}
	key, err := keyutil.PrivateKeyFromFile(file)
	if err != nil {
		return fmt.Errorf("read the key that signs tokens: %w", err)
	}
	c.server.ServiceAccountIssuer, err = serviceaccount.JWTTokenGenerator(
		c.server.Authentication.ServiceAccounts.Issuers[0], key)
	if err != nil {
		return fmt.Errorf("use %s, which signs tokens: %w", file, err)
	}
	return nil
}

// checkTLS checks what upstream checks only when the files of the keys are there.
func (o *Options) checkTLS() error {
	tls := o.Server.SecureServing
	if _, err := cliflag.TLSCipherSuites(tls.CipherSuites); err != nil {
		return fmt.Errorf("read --tls-cipher-suites: %w", err)
	}
	if _, err := cliflag.TLSVersion(tls.MinTLSVersion); err != nil {
		return fmt.Errorf("read --tls-min-version: %w", err)
	}
	if _, err := cliflag.TLSCurvePreferences(tls.CurvePreferences); err != nil {
		return fmt.Errorf("read --tls-curve-preferences: %w", err)
	}
	return nil
}

// checkFiles returns an error if a flag names a file that cannot be read. Those that [pki.Ensure]
// makes may not be there yet.
func (o *Options) checkFiles(keys *pki.Keys) error {
	var errs []error
	check := func(flag, path string) {
		if made(keys, path) {
			return
		}
		if err := readable(path); err != nil {
			errs = append(errs, fmt.Errorf("read the file of --%s: %w", flag, err))
		}
	}
	for _, set := range o.flags.FlagSets {
		set.VisitAll(func(f *pflag.Flag) {
			for _, path := range filesOf(f) {
				check(f.Name, path)
			}
		})
	}
	for _, pair := range o.Server.SecureServing.SNICertKeys {
		check("tls-sni-cert-key", pair.CertFile)
		check("tls-sni-cert-key", pair.KeyFile)
	}
	return utilerrors.NewAggregate(errs)
}

// readable returns an error if a file cannot be read. What a pipe has can be read only once, and is
// left for its reader.
func readable(path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return err
	case info.IsDir():
		return fmt.Errorf("%s is a directory", path)
	case !info.Mode().IsRegular():
		return nil
	}
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	return file.Close()
}

// made says whether a file is one that [pki.Ensure] makes, or in their folder.
func made(keys *pki.Keys, path string) bool {
	path = resolved(path)
	return filepath.Dir(path) == filepath.Dir(resolved(keys.CA)) || path == resolved(keys.AdminKubeconfig) ||
		path == resolved(keys.NodeKubeconfig)
}

// resolved returns the absolute path without links, of which the end may not be there yet.
func resolved(path string) string {
	abs, err := filepath.Abs(path)
	if err != nil {
		return path
	}
	for dir, rest := abs, ""; ; dir, rest = filepath.Dir(dir), filepath.Join(filepath.Base(dir), rest) {
		if there, err := filepath.EvalSymlinks(dir); err == nil || dir == "/" {
			return filepath.Join(there, rest)
		}
	}
}

// filesOf returns the files that a flag of the command line names for reading.
func filesOf(f *pflag.Flag) []string {
	kubelet := []string{"kubelet-certificate-authority", "kubelet-client-certificate", "kubelet-client-key"}
	if !f.Changed || !strings.HasSuffix(f.Name, "file") && !strings.HasSuffix(f.Name, "-config") &&
		!slices.Contains(kubelet, f.Name) {
		return nil
	}
	paths := []string{f.Value.String()}
	if several, ok := f.Value.(pflag.SliceValue); ok {
		paths = several.GetSlice()
	} else if f.Value.Type() != "string" {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(paths), func(path string) bool { return path == "" })
}

// checkAddress returns an error if the server cannot listen at its address now.
func (o *Options) checkAddress(ctx context.Context) error {
	s := o.Server.SecureServing
	if s.PermitPortSharing {
		return nil
	}
	host, port := s.BindAddress.String(), strconv.Itoa(s.BindPort)
	// Who asks the server to stop meanwhile makes no error here.
	ctx = context.WithoutCancel(ctx)
	l, err := new(net.ListenConfig).Listen(ctx, cmp.Or(s.BindNetwork, "tcp"), net.JoinHostPort(host, port))
	switch {
	case err == nil:
		return l.Close()
	case errors.Is(err, unix.EADDRINUSE):
		return fmt.Errorf("another program listens on port %s: end it, or choose another port with --secure-port: %w", port,
			err)
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return fmt.Errorf("%s is no address of this host: choose another --bind-address: %w", host, err)
	default:
		return fmt.Errorf("listen (--bind-address, --secure-port): %w", err)
	}
}
