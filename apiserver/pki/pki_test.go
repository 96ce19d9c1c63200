package pki_test

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/berthd/berth/apiserver/pki"
)

const (
	day  = 24 * time.Hour
	year = 365 * day
)

func config(t *testing.T) pki.Config {
	t.Helper()
	return pki.Config{
		DataDir: t.TempDir(), Hosts: []string{"127.0.0.1", "kubernetes.default", "localhost"},
		Server: "https://127.0.0.1:6443", NodeName: "one",
		NodeHosts: []string{"127.0.0.1", "192.0.2.1"},
	}
}

func ensure(t *testing.T, c pki.Config, now time.Time) *pki.Keys {
	t.Helper()
	k, err := pki.Ensure(c, now)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// content returns every file of a folder by its path.
func content(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		all[name] = string(text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// changed returns the names of the files that differ.
func changed(before, after map[string]string) (names []string) {
	for name, text := range after {
		if before[name] != text {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// leaf returns a file's certificate, which must be valid at that time for that use and host.
func leaf(t *testing.T, k *pki.Keys, file string, now time.Time, use x509.ExtKeyUsage, host string) *x509.Certificate {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(file, file)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	for _, path := range []string{k.CA, k.FrontProxyCA} {
		text, err := os.ReadFile(path)
		if err != nil || !roots.AppendCertsFromPEM(text) {
			t.Fatalf("%s: %v", path, err)
		}
	}
	if _, err := pair.Leaf.Verify(x509.VerifyOptions{
		Roots: roots, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{use}, DNSName: host,
	}); err != nil {
		t.Errorf("%s: %v", file, err)
	}
	return pair.Leaf
}

func TestEnsureMakesEverything(t *testing.T) {
	c, now := config(t), time.Now()
	k := ensure(t, c, now)
	err := filepath.WalkDir(c.DataDir, func(path string, d os.DirEntry, err error) error {
		if info, statErr := d.Info(); path != c.DataDir && err == nil && statErr == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s: others may use it: %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	for _, host := range c.Hosts {
		leaf(t, k, k.Server, now, x509.ExtKeyUsageServerAuth, host)
	}
	for _, host := range append(c.NodeHosts, c.NodeName) {
		leaf(t, k, k.NodeServing, now, x509.ExtKeyUsageServerAuth, host)
	}
	leaf(t, k, k.FrontProxyClient, now, x509.ExtKeyUsageClientAuth, "")
	kubelet := leaf(t, k, k.KubeletClient, now, x509.ExtKeyUsageClientAuth, "")
	if got := kubelet.Subject.CommonName; got != pki.KubeletClientUser {
		t.Errorf("the API server calls agents as %q", got)
	}
	for path, want := range map[string]string{
		k.AdminKubeconfig: "kubernetes-admin [system:masters]", k.NodeKubeconfig: "system:node:one [system:nodes]",
	} {
		rest, err := clientcmd.BuildConfigFromFlags("", path)
		if err != nil {
			t.Fatal(err)
		}
		if rest.Host != c.Server {
			t.Errorf("%s: the server is %q", path, rest.Host)
		}
		file := rest.CertFile
		if file == "" {
			file = filepath.Join(t.TempDir(), "inside.pem")
			if err := os.WriteFile(file, slices.Concat(rest.CertData, rest.KeyData), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		subject := leaf(t, k, file, now, x509.ExtKeyUsageClientAuth, "").Subject
		if got := subject.CommonName + " [" + strings.Join(subject.Organization, " ") + "]"; got != want {
			t.Errorf("%s is for %s, want %s", path, got, want)
		}
	}
}

func TestEnsureAgainChangesNothing(t *testing.T) {
	c, now := config(t), time.Now()
	ensure(t, c, now)
	before := content(t, c.DataDir)
	ensure(t, c, now.Add(year/2))
	if names := changed(before, content(t, c.DataDir)); len(names) > 0 {
		t.Errorf("changed: %v", names)
	}
}

func TestEnsureRenewsWhatEndsSoon(t *testing.T) {
	c, now := config(t), time.Now()
	ensure(t, c, now)
	before := content(t, c.DataDir)
	later := now.Add(year - 100*day)
	k := ensure(t, c, later)
	want := []string{"admin.kubeconfig", "pki/admin.pem", "pki/node-serving.pem", "pki/node.pem", "pki/server.pem"}
	if got := changed(before, content(t, c.DataDir)); !slices.Equal(got, want) {
		t.Errorf("renewed: %v, want %v", got, want)
	}
	leaf(t, k, k.Server, later.Add(200*day), x509.ExtKeyUsageServerAuth, "localhost")
}

func TestEnsureFollowsTheSettings(t *testing.T) {
	now := time.Now()
	for name, set := range map[string]struct {
		change func(*pki.Config)
		want   []string
	}{
		"another name": {
			func(c *pki.Config) { c.Hosts = append(c.Hosts, "berth.example") },
			[]string{"pki/server.pem"},
		},
		"another node": {func(c *pki.Config) { c.NodeName = "two" }, []string{"pki/node-serving.pem", "pki/node.pem"}},
		"another address of the node": {
			func(c *pki.Config) { c.NodeHosts = append(c.NodeHosts, "192.0.2.2") },
			[]string{"pki/node-serving.pem"},
		},
		"another port": {
			func(c *pki.Config) { c.Server = "https://127.0.0.1:7443" },
			[]string{"admin.kubeconfig", "node.kubeconfig"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := config(t)
			ensure(t, c, now)
			before := content(t, c.DataDir)
			set.change(&c)
			ensure(t, c, now)
			if got := changed(before, content(t, c.DataDir)); !slices.Equal(got, set.want) {
				t.Errorf("changed: %v, want %v", got, set.want)
			}
		})
	}
}

// TestEnsureAfterACrash removes each file alone, as a crash between two writes may leave the
// folder.
func TestEnsureAfterACrash(t *testing.T) {
	now := time.Now()
	names := content(t, ensureIn(t, now).DataDir)
	for name := range names {
		t.Run(name, func(t *testing.T) {
			c := ensureIn(t, now)
			before := content(t, c.DataDir)
			if err := os.Remove(filepath.Join(c.DataDir, name)); err != nil {
				t.Fatal(err)
			}
			k, err := pki.Ensure(c, now)
			if strings.HasSuffix(name, "ca.key") || strings.HasSuffix(name, "ca.crt") {
				if err == nil || !strings.Contains(err.Error(), "restore") {
					t.Errorf("an authority without one of its files: %v", err)
				}
				if got := changed(before, content(t, c.DataDir)); len(got) > 0 {
					t.Errorf("changed: %v", got)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			leaf(t, k, k.Server, now, x509.ExtKeyUsageServerAuth, "localhost")
			leaf(t, k, k.FrontProxyClient, now, x509.ExtKeyUsageClientAuth, "")
		})
	}
}

func ensureIn(t *testing.T, now time.Time) pki.Config {
	t.Helper()
	c := config(t)
	ensure(t, c, now)
	return c
}

func TestEnsureReplacesABrokenCertificate(t *testing.T) {
	c, now := config(t), time.Now()
	k := ensure(t, c, now)
	if err := os.WriteFile(k.Server, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	leaf(t, ensure(t, c, now), k.Server, now, x509.ExtKeyUsageServerAuth, "localhost")
}

// TestEnsureRefusesABrokenSigningKey shows that a key which is none stays, and that the error names it.
func TestEnsureRefusesABrokenSigningKey(t *testing.T) {
	for name, junk := range map[string]string{"empty": "", "text": "no key"} {
		t.Run(name, func(t *testing.T) {
			c, now := config(t), time.Now()
			path := ensure(t, c, now).ServiceAccounts
			if err := os.WriteFile(path, []byte(junk), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := pki.Ensure(c, now)
			for _, want := range []string{path, "restore", "remove"} {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("it says %v, want %q", err, want)
				}
			}
			if got, err := os.ReadFile(path); err != nil || string(got) != junk {
				t.Errorf("the file is %q, %v", got, err)
			}
		})
	}
}

func TestNoCertificateOutlivesItsAuthority(t *testing.T) {
	c, now := config(t), time.Now()
	ensure(t, c, now)
	late := now.Add(10*year - 30*day)
	k := ensure(t, c, late)
	before := content(t, c.DataDir)
	leaf(t, k, k.Server, late.Add(29*day), x509.ExtKeyUsageServerAuth, "localhost")
	ensure(t, c, late.Add(day))
	if got := changed(before, content(t, c.DataDir)); len(got) > 0 {
		t.Errorf("made again without need: %v", got)
	}
	if _, err := pki.Ensure(c, now.Add(11*year)); err == nil || !strings.Contains(err.Error(), "ended on") {
		t.Errorf("after the end of the authority: %v", err)
	}
}

// TestKeysAreClosed shows that files with keys which became readable are the owner's alone again.
func TestKeysAreClosed(t *testing.T) {
	c := config(t)
	ensure(t, c, time.Now())
	kept := filepath.Join(t.TempDir(), "kept.pem") // of somebody else
	if err := os.WriteFile(kept, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(kept, filepath.Join(c.DataDir, "pki", "other.pem")); err != nil {
		t.Fatal(err)
	}
	private := []string{"pki/ca.key", "pki/service-accounts.key", "pki/server.pem", "admin.kubeconfig"}
	for _, path := range append(private, "pki/ca.crt", "pki/other.pem") {
		if err := os.Chmod(filepath.Join(c.DataDir, path), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	ensure(t, c, time.Now())
	mode := func(path string) os.FileMode {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Mode().Perm()
	}
	for _, path := range private {
		if m := mode(filepath.Join(c.DataDir, path)); m != 0o600 {
			t.Errorf("%s has the mode %04o", path, m)
		}
	}
	for _, path := range []string{filepath.Join(c.DataDir, "pki", "ca.crt"), kept} {
		if m := mode(path); m != 0o666 {
			t.Errorf("%s was changed to %04o", path, m)
		}
	}
}
