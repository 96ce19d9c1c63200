package apiserver

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/berthd/berth/apiserver/pki"
)

// parsed returns the completed options of a command line.
func parsed(t *testing.T, flags ...string) (*Options, error) {
	t.Helper()
	o := NewOptions()
	set := pflag.NewFlagSet("berth-apiserver", pflag.ContinueOnError)
	for _, s := range o.Flags().FlagSets {
		set.AddFlagSet(s)
	}
	if err := set.Parse(append([]string{"--node-name", "one"}, flags...)); err != nil {
		t.Fatal(err)
	}
	return o, o.complete()
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

func TestOptionsNeedANodeName(t *testing.T) {
	if _, err := parsed(t, "--node-name", ""); err == nil || !strings.Contains(err.Error(), "--node-name") {
		t.Errorf("without a name: %v", err)
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

func TestAnonymous(t *testing.T) {
	for name, c := range map[string]struct {
		flags []string
		ours  bool
	}{
		"default":       {nil, true},
		"by flag":       {[]string{"--anonymous-auth=false"}, false},
		"by its config": {[]string{"--authentication-config", "/mine.yaml"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := parsed(t, append(c.flags, "--data-dir", t.TempDir())...)
			if err != nil {
				t.Fatal(err)
			}
			if err := o.restrictAnonymous(); err != nil {
				t.Fatal(err)
			}
			file := o.Server.Authentication.AuthenticationConfigFile
			if got := strings.HasPrefix(file, o.DataDir); got != c.ours {
				t.Errorf("the configuration is %q", file)
			}
		})
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
