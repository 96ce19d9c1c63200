package apiserver

import (
	"bytes"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/spf13/pflag"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/features"
	genericapiserver "k8s.io/apiserver/pkg/server"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	aggregator "k8s.io/kube-aggregator/pkg/apiserver"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"

	"github.com/berthd/berth/apiserver/pki"
)

// parsed returns the completed options of a command line.
func parsed(t *testing.T, flags ...string) (*Options, error) {
	t.Helper()
	o := read(t, flags...)
	return o, o.complete()
}

// read returns the options of a command line.
func read(t *testing.T, flags ...string) *Options {
	t.Helper()
	o := NewOptions()
	set := pflag.NewFlagSet("berth-apiserver", pflag.ContinueOnError)
	for _, s := range o.Flags().FlagSets {
		set.AddFlagSet(s)
	}
	if err := set.Parse(append([]string{"--node-name", "one"}, flags...)); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestOptions(t *testing.T) {
	for name, c := range map[string]struct {
		flags []string
		check func(o *Options) bool
	}{
		"nothing but loopback by default": {nil, func(o *Options) bool {
			return o.Server.SecureServing.BindAddress.IsLoopback() && o.Server.EndpointReconcilerType == "none"
		}},
		"an address for other machines": {
			[]string{"--bind-address", "0.0.0.0", "--advertise-address", "192.0.2.7"},
			func(o *Options) bool { return o.Server.EndpointReconcilerType == "master-count" },
		},
		"one of several servers": {
			[]string{"--bind-address", "0.0.0.0", "--advertise-address", "192.0.2.7", "--etcd-servers", "http://192.0.2.8:2379"},
			func(o *Options) bool { return o.Server.EndpointReconcilerType == "lease" },
		},
		"no workloads by default": {nil, func(o *Options) bool {
			return o.Server.APIEnablement.RuntimeConfig["apps/v1"] == "false"
		}},
		"workloads": {[]string{"--workloads"}, func(o *Options) bool {
			return o.Server.APIEnablement.RuntimeConfig["apps/v1"] == ""
		}},
		"a group alone": {[]string{"--runtime-config", "batch/v1=true"}, func(o *Options) bool {
			return o.Server.APIEnablement.RuntimeConfig["batch/v1"] == "true" &&
				o.Server.APIEnablement.RuntimeConfig["apps/v1"] == "false"
		}},
		"nodes are restricted": {nil, restrictsNodes},
		"nodes are restricted beside other plugins": {
			[]string{"--enable-admission-plugins", "AlwaysPullImages"}, restrictsNodes,
		},
		"nodes are restricted, by the flag": {
			[]string{"--enable-admission-plugins", "AlwaysPullImages,NodeRestriction"}, restrictsNodes,
		},
		"nodes are not restricted": {
			[]string{"--disable-admission-plugins", "NodeRestriction"}, func(o *Options) bool { return !restrictsNodes(o) },
		},
		"the node's name is in lower case": {
			[]string{"--node-name", "N1"}, func(o *Options) bool { return o.NodeName == "n1" },
		},
		"names and addresses in the certificate": {
			[]string{"--tls-san", "Berth.example,*.example,2001:db8::1"},
			func(o *Options) bool {
				return slices.Equal(o.TLSSANs, []string{"berth.example", "*.example", "2001:db8::1"})
			},
		},
		"the flags are at /flagz": {nil, func(o *Options) bool { return o.Server.Flagz.GetFlagz()["node-name"] == "one" }},
		"no apps":                 {nil, func(o *Options) bool { return !o.serves("apps/v1") && o.serves("policy/v1") }},
		"apps, alone":             {[]string{"--runtime-config", "apps/v1"}, servesApps},
		"apps, true":              {[]string{"--runtime-config", "apps/v1=true"}, servesApps},
		"apps, workloads":         {[]string{"--workloads"}, servesApps},
		"apps, left out": {[]string{"--workloads", "--runtime-config", "apps/v1=false"}, func(o *Options) bool {
			return !servesApps(o)
		}},
		"the store in the process": {nil, func(o *Options) bool { return !o.external() }},
		"an external store":        {[]string{"--etcd-servers", "http://192.0.2.1:2379"}, (*Options).external},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := parsed(t, c.flags...)
			if err != nil || !c.check(o) {
				t.Errorf("%v is not so: %v", c.flags, err)
			}
		})
	}
}

func servesApps(o *Options) bool { return o.serves("apps/v1") }

// restrictsNodes says whether NodeRestriction is on, once.
func restrictsNodes(o *Options) bool {
	n := 0
	for _, name := range o.Server.Admission.GenericAdmission.EnablePlugins {
		if name == "NodeRestriction" {
			n++
		}
	}
	return n == 1
}

func TestOptionsAreChecked(t *testing.T) {
	long := "/" + strings.Repeat("d", 107-len("//etcd.sock"))
	for _, c := range [][2]string{
		{"--node-name", ""},
		{"--node-name", "a b"},
		{"--node-name", "x/y"},
		{"--node-name", strings.Repeat("n", 300)},
		{"--tls-san", ",x"},
		{"--tls-san", "a b"},
		{"--tls-san", "https://x"},
		{"--data-dir", long + "d"},
		{"--data-dir", ""},
		{"--etcd-servers-overrides", "/events#http://192.0.2.1:2379"},
	} {
		if _, err := parsed(t, c[:]...); err == nil || !strings.Contains(err.Error(), c[0]) {
			t.Errorf("%s %.40q: %v", c[0], c[1], err)
		}
	}
	if _, err := parsed(t, "--data-dir", long); err != nil {
		t.Error(err)
	}
	if _, err := parsed(t, "--data-dir", long+"d", "--etcd-servers", "http://192.0.2.1:2379"); err != nil {
		t.Error(err)
	}
}

// TestNoDefaultRoute shows what a server for other machines says on a host without a default route,
// and that an address by flag helps. It runs itself in a network namespace of its own.
func TestNoDefaultRoute(t *testing.T) {
	const inside = "BERTH_TEST_NO_ROUTE"
	if os.Getenv(inside) == "" {
		self := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		self.Env = append(os.Environ(), inside+"=1")
		self.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		if os.Geteuid() != 0 {
			self.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		}
		if out, err := self.CombinedOutput(); errors.Is(err, syscall.EPERM) {
			t.Skip(err)
		} else if err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	_, err := parsed(t, "--bind-address", "0.0.0.0")
	if err == nil || !strings.Contains(err.Error(), "(name it with --advertise-address): no default route") {
		t.Errorf("it says %v", err)
	}
	if _, err := parsed(t, "--bind-address", "0.0.0.0", "--advertise-address", "192.0.2.7"); err != nil {
		t.Errorf("with an address: %v", err)
	}
}

// TestKubeconfigsNameTheServer shows which address the kubeconfigs of this machine name, and that
// the certificate is for it.
func TestKubeconfigsNameTheServer(t *testing.T) {
	for bound, want := range map[string]string{
		"127.0.0.1": "127.0.0.1", "127.0.0.2": "127.0.0.2", "::1": "::1", "0.0.0.0": "127.0.0.1", "::": "127.0.0.1",
		"192.0.2.7": "192.0.2.7",
	} {
		o, err := parsed(t, "--bind-address", bound)
		if err != nil {
			t.Fatal(err)
		}
		config, err := o.keysConfig()
		if err != nil {
			t.Fatal(err)
		}
		if url := "https://" + net.JoinHostPort(want, "6443"); config.Server != url {
			t.Errorf("at %s, the kubeconfigs name %s, want %s", bound, config.Server, url)
		}
		if !slices.Contains(config.Hosts, want) {
			t.Errorf("at %s, the certificate is for %v", bound, config.Hosts)
		}
	}
}

func TestCertificateSaysWhatClientsUse(t *testing.T) {
	o, err := parsed(t, "--bind-address", "192.0.2.7", "--tls-san", "berth.example,198.51.100.1", "--secure-port", "7443")
	if err != nil {
		t.Fatal(err)
	}
	config, err := o.keysConfig()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"192.0.2.7", "127.0.0.1", "10.96.0.1", "berth.example", "198.51.100.1", "kubernetes"} {
		if !slices.Contains(config.Hosts, want) {
			t.Errorf("%s is not in %v", want, config.Hosts)
		}
	}
	if !slices.Contains(config.NodeHosts, "127.0.0.1") {
		t.Errorf("127.0.0.1 is not in %v", config.NodeHosts)
	}
	if config.Server != "https://192.0.2.7:7443" {
		t.Errorf("the kubeconfigs name %s", config.Server)
	}
}

func TestFlagsHavePriorityOverKeys(t *testing.T) {
	o, err := parsed(t, "--tls-cert-file", "/my.crt", "--tls-private-key-file", "/my.key")
	if err != nil {
		t.Fatal(err)
	}
	o.useKeys(&pki.Keys{Server: "/server.pem", CA: "/ca.crt"})
	if got := o.Server.SecureServing.ServerCert.CertKey.CertFile; got != "/my.crt" {
		t.Errorf("it serves with %s", got)
	}
	if got := o.Server.Authentication.ClientCert.ClientCA; got != "/ca.crt" {
		t.Errorf("users are of %s", got)
	}
	if got := o.Server.KubeletConfig.TLSClientConfig.CAFile; got != "/ca.crt" {
		t.Errorf("agents are verified by %q", got)
	}
}

// TestTokenKeys shows which key signs tokens, and that the server accepts what it signs.
func TestTokenKeys(t *testing.T) {
	const own = "/data/pki/service-accounts.key"
	for _, c := range []struct {
		flags    []string
		signs    string
		accepted []string
	}{
		{nil, own, []string{own}},
		{[]string{"--service-account-key-file=/old.pub"}, own, []string{"/old.pub", own}},
		{
			[]string{"--service-account-key-file=/data/../data/pki/service-accounts.key"},
			own,
			[]string{"/data/../data/pki/service-accounts.key"},
		},
		{[]string{"--service-account-signing-key-file=/my.key"}, "/my.key", []string{"/my.key"}},
		{
			[]string{"--service-account-signing-key-file=/my.key", "--service-account-key-file=/my.pub"},
			"/my.key",
			[]string{"/my.pub"},
		},
		{[]string{"--service-account-signing-endpoint=/run/signer.sock"}, "", nil},
	} {
		o, err := parsed(t, c.flags...)
		if err != nil {
			t.Fatal(err)
		}
		o.useKeys(&pki.Keys{ServiceAccounts: own})
		accepted := o.Server.Authentication.ServiceAccounts.KeyFiles
		if signs := o.Server.ServiceAccountSigningKeyFile; signs != c.signs || !slices.Equal(accepted, c.accepted) {
			t.Errorf("%v: %q signs, accepted is %q", c.flags, signs, accepted)
		}
	}
}

// TestProxyFlagsStay: who trusts the own authority of proxies may still say what they send.
func TestProxyFlagsStay(t *testing.T) {
	o, err := parsed(t, "--requestheader-allowed-names=mine")
	if err != nil {
		t.Fatal(err)
	}
	o.useKeys(&pki.Keys{FrontProxyCA: "/proxy.crt"})
	proxy := o.Server.Authentication.RequestHeader
	if proxy.ClientCAFile != "/proxy.crt" || !slices.Equal(proxy.AllowedNames, []string{"mine"}) ||
		!slices.Equal(proxy.UsernameHeaders, []string{"X-Remote-User"}) {
		t.Errorf("proxies are %+v", proxy)
	}
}

// TestNoPeers: the server passes nothing on to servers of other versions, unless a flag says so.
func TestNoPeers(t *testing.T) {
	if _, err := parsed(t); err != nil {
		t.Fatal(err)
	}
	if utilfeature.DefaultFeatureGate.Enabled(features.UnknownVersionInteroperabilityProxy) {
		t.Error("the gate is on")
	}
}

func TestAnonymous(t *testing.T) {
	for name, c := range map[string]struct {
		flags []string
		ours  bool
	}{
		"default": {nil, true},
		"OpenID Connect": {
			[]string{"--oidc-issuer-url", "https://issuer.example", "--oidc-client-id", "berth"}, true,
		},
		"by flag":       {[]string{"--anonymous-auth=true"}, false},
		"by its config": {[]string{"--authentication-config", "/mine.yaml"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := parsed(t, c.flags...)
			if err != nil {
				t.Fatal(err)
			}
			if o.restrictsAnonymous() != c.ours || o.Server.Authentication.Anonymous.Allow == c.ours {
				t.Errorf("%v: restricted %t, anonymous %t", c.flags, o.restrictsAnonymous(),
					o.Server.Authentication.Anonymous.Allow)
			}
		})
	}
}

// TestAnonymousPaths shows which requests without credentials have a user, and that those whose
// credentials are wrong have none.
func TestAnonymousPaths(t *testing.T) {
	inner := authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		if r.Header.Get("Authorization") != "" {
			return nil, false, errors.New("the token is wrong")
		}
		return nil, false, nil
	})
	generic := &genericapiserver.RecommendedConfig{}
	generic.Authentication.Authenticator = inner
	allowAnonymous(&app.Config{Aggregator: &aggregator.Config{GenericConfig: generic}})
	for path, want := range map[string]bool{
		"/healthz": true, "/livez": true, "/readyz": true, "/version": true,
		"/readyz/ping": false, "/api": false, "/openid/v1/jwks": false, "/": false,
	} {
		r := httptest.NewRequest(http.MethodGet, path, nil)
		if _, ok, err := generic.Authentication.Authenticator.AuthenticateRequest(r); ok != want || err != nil {
			t.Errorf("%s: %t, %v", path, ok, err)
		}
		r.Header.Set("Authorization", "Bearer wrong")
		if _, ok, err := generic.Authentication.Authenticator.AuthenticateRequest(r); ok || err == nil {
			t.Errorf("%s with a wrong token: %t, %v", path, ok, err)
		}
	}
}

func TestHelpSaysTheOwnFlags(t *testing.T) {
	cmd := NewCommand("v1")
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"--help"})
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"--data-dir", "--workloads", "--etcd-servers", "--secure-port"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the help does not say %s", want)
		}
	}
}

// TestDropCode shows that the program goes on after its code was dropped, again and again.
func TestDropCode(t *testing.T) {
	if _, err := os.Stat("/proc/self/maps"); err != nil {
		t.Skip(err)
	}
	for range 3 {
		if err := dropCode(); err != nil {
			t.Fatal(err)
		}
		if got := strings.Repeat("a", 3); got != "aaa" {
			t.Errorf("it is %q", got)
		}
	}
}
