package apiserver

import (
	"context"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestABadFlagLeavesNoTrace starts servers with flags that are wrong. Each must be refused before
// the data directory is made.
func TestABadFlagLeavesNoTrace(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	for _, c := range []struct {
		flags []string
		want  string
	}{
		{[]string{"--secure-port", "70000"}, "--secure-port"},
		{[]string{"--service-cluster-ip-range", "wrong"}, "--service-cluster-ip-range"},
		{[]string{"--service-cluster-ip-range", "10.0.0.0/16,10.1.0.0/16"}, "--service-cluster-ip-range"},
		{[]string{"--authorization-mode", "Nobody"}, "Nobody"},
		{[]string{"--enable-admission-plugins", "Nothing"}, "Nothing"},
		{[]string{"--max-requests-inflight", "-1"}, "--max-requests-inflight"},
		{[]string{"--service-account-max-token-expiration", "1s"}, "service-account-max-token-expiration"},
		{[]string{"--service-account-issuer", "a", "--service-account-issuer", "a"}, "service-account-issuer"},
		{[]string{"--storage-media-type", "text/html"}, "--storage-media-type"},
		{[]string{"--watch-cache-sizes", "pods"}, "pods"},
		{[]string{"--runtime-config", "nothing/v1=true"}, "nothing/v1"},
		{[]string{"--runtime-config", "apps/v1=maybe"}, "--runtime-config"},
		{[]string{"--runtime-config", "v1=maybe"}, "--runtime-config"},
		{[]string{"--tls-sni-cert-key", missing + "," + missing}, "--tls-sni-cert-key"},
		{[]string{"--tls-min-version", "VersionTLS99"}, "--tls-min-version"},
		{[]string{"--tls-cipher-suites", "ROT13"}, "--tls-cipher-suites"},
		{[]string{"--audit-policy-file", missing}, "--audit-policy-file"},
		{[]string{"--client-ca-file", missing}, "--client-ca-file"},
		{[]string{"--client-ca-file", t.TempDir()}, "--client-ca-file"},
		{[]string{"--encryption-provider-config", missing}, "--encryption-provider-config"},
		{[]string{"--kubelet-certificate-authority", missing}, "--kubelet-certificate-authority"},
		{[]string{"--service-account-key-file", missing}, "--service-account-key-file"},
		{[]string{"--service-account-signing-key-file", missing}, "--service-account-signing-key-file"},
		{
			[]string{"--service-account-signing-endpoint", "@signer", "--service-account-signing-key-file", missing},
			"service-account-signing-key-file",
		},
		{[]string{"--etcd-cafile", missing}, "--etcd-servers"},
		{[]string{"--peer-ca-file", missing}, "peer-ca-file"},
	} {
		t.Run(strings.Join(c.flags, " "), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "d")
			o := read(t, append(c.flags, "--data-dir", dir)...)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // for a server that starts
			defer cancel()
			if err := Run(ctx, o); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("it says %v, want %s", err, c.want)
			}
			if entries, err := os.ReadDir(dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the data directory has %v, %v", entries, err)
			}
		})
	}
}

// TestGoodFlagsLeaveNoTrace shows that a check of good flags passes, and that it writes nothing.
func TestGoodFlagsLeaveNoTrace(t *testing.T) {
	for _, flags := range [][]string{
		nil,
		{"--workloads", "--runtime-config", "api/beta=true"},
		{"--etcd-servers", "http://192.0.2.1:2379"},
		{"--kubelet-certificate-authority", "PKI/ca.crt", "--service-account-key-file", "PKI/service-accounts.key"},
		{
			"--kubelet-certificate-authority", "LINK/d/pki/ca.crt", "--service-account-signing-key-file",
			"LINK/d//pki/service-accounts.key",
		},
		{"--service-account-signing-key-file", "PKI//service-accounts.key"},
		{"--audit-webhook-config-file", "PKI/../admin.kubeconfig"},
	} {
		dir, link := filepath.Join(t.TempDir(), "d"), filepath.Join(t.TempDir(), "link")
		if err := os.Symlink(filepath.Dir(dir), link); err != nil {
			t.Fatal(err)
		}
		for i, flag := range flags {
			flags[i] = strings.NewReplacer("PKI", filepath.Join(dir, "pki"), "LINK", link).Replace(flag)
		}
		c, err := read(t, append(flags, "--data-dir", dir)...).check(t.Context())
		if err != nil {
			t.Errorf("%v: %v", flags, err)
			continue
		}
		if want := len(flags) > 0 && flags[0] == "--etcd-servers"; c.external != want {
			t.Errorf("%v: external is %t", flags, c.external)
		}
		if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%v: the data directory is there: %v", flags, err)
		}
	}
}

// listen returns a listener at a port of its own.
func listen(t *testing.T) (l net.Listener, port string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if _, port, err = net.SplitHostPort(l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	return l, port
}

// freePort returns a port at which nobody listens.
func freePort(t *testing.T) string {
	t.Helper()
	l, port := listen(t)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	return port
}

// TestAddressesThatCannotBe shows what a server says that cannot listen, and that it has made no keys.
func TestAddressesThatCannotBe(t *testing.T) {
	taken, port := listen(t)
	defer taken.Close()
	for name, c := range map[string]struct {
		flags []string
		want  []string
	}{
		"the port is taken": {
			[]string{"--secure-port", port}, []string{"port " + port, "--secure-port", "address already in use"},
		},
		"the address is another host's": {
			[]string{"--bind-address", "192.0.2.1"}, []string{"192.0.2.1 is no address", "--bind-address"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "d")
			err := Run(t.Context(), read(t, append(c.flags, "--data-dir", dir)...))
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("it says %v, want %q", err, want)
				}
			}
			if _, err := os.Stat(filepath.Join(dir, "pki")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("there are keys: %v", err)
			}
		})
	}
}

// TestOneAuthorityForTwoPurposes: upstream refuses an authority of clients that is also that of proxies,
// who may name any user. A first start, which makes the authority, refuses it too.
func TestOneAuthorityForTwoPurposes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "d")
	o := read(t, "--data-dir", dir, "--secure-port", freePort(t), "--bind-address", "127.0.0.1",
		"--requestheader-client-ca-file", filepath.Join(dir, "pki", "ca.crt"),
		"--requestheader-username-headers", "X-Remote-User")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // for a server that starts
	defer cancel()
	if err := Run(ctx, o); err == nil || !strings.Contains(err.Error(), "requestheader") {
		t.Errorf("it says %v", err)
	}
}

// TestPipesAreLeftAlone: the check of a flag's file takes nothing out of a pipe, and does not wait.
func TestPipesAreLeftAlone(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := readable(pipe); err != nil {
		t.Error(err)
	}
}
