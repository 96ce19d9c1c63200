//go:build cluster || conformance

package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/berthd/berth/test/env"
)

// newBundled prepares berth-apiserver in place of a control plane, in an environment of its own. Of
// the cluster's parts there is only APIServer.
func newBundled(t testing.TB, flags ...string) *Cluster {
	t.Helper()
	e := env.Containerd(t, env.Options{OwnNetwork: true})
	c := &Cluster{Env: e, Folder: filepath.Join(e.Dir, "cluster")}
	var err error
	if c.programs, err = findPrograms(e.Checkout); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(c.Folder, 0o700); err != nil {
		t.Fatal(err)
	}
	c.programs["berth-apiserver"] = bundledProgram(t, e.Checkout)
	data := filepath.Join(c.Folder, "api")
	c.Admin = filepath.Join(data, "admin.kubeconfig")
	if err := os.WriteFile(c.auditPolicy(), []byte(auditPolicy), 0o600); err != nil {
		t.Fatal(err)
	}
	flags = append([]string{
		"--data-dir", data, "--node-name", env.NodeName,
		"--audit-policy-file", c.auditPolicy(), "--audit-log-path", c.auditLog(),
	}, flags...)
	c.APIServer = c.program("berth-apiserver", flags...)
	return c
}

// startBundled starts the server, for the first time or again, and waits until it is ready. Config
// is then its administrator's.
func (c *Cluster) startBundled(t testing.TB) {
	t.Helper()
	if err := c.APIServer.Start(); err != nil {
		t.Fatal(err)
	}
	c.Eventually(t, Contains("ok"), "get", "--raw", "/readyz")
	var err error
	if c.config, err = clientcmd.BuildConfigFromFlags("", c.Admin); err != nil {
		t.Fatal(err)
	}
	c.config.Dial, c.config.QPS = c.Dial, -1
}

// startBundledNode starts berth as the node for which the server made a kubeconfig and a serving
// certificate, with more lines of its KubeletConfiguration, and waits until it is ready.
func (c *Cluster) startBundledNode(t *testing.T, config ...string) *env.Agent {
	t.Helper()
	a := c.StartAgent(t, c.bundledNodeOptions(t, config...))
	c.WaitNodeReady(t)
	return a
}

// bundledNodeOptions are the options of that agent.
func (c *Cluster) bundledNodeOptions(t testing.TB, config ...string) env.AgentOptions {
	t.Helper()
	data := filepath.Dir(c.Admin)
	serving := filepath.Join(data, "pki", "node-serving.pem")
	return nodeOptions(t, env.NodeName, filepath.Join(data, "node.kubeconfig"),
		filepath.Join(data, "pki", "ca.crt"), env.AgentOptions{
			Kubelet: fmt.Sprintf("tlsCertFile: %q\ntlsPrivateKeyFile: %q\n", serving, serving) + strings.Join(config, "\n"),
		})
}

// useBundledPKI gives the other parts of a control plane the keys that berth-apiserver made.
func (c *Cluster) useBundledPKI(t *testing.T) {
	t.Helper()
	file := func(name string) string { return filepath.Join(filepath.Dir(c.Admin), "pki", name) }
	ca, err := LoadAuthority(file("ca.crt"), file("ca.key"))
	if err != nil {
		t.Fatal(err)
	}
	both := func(name string) Pair { return Pair{Cert: file(name), Key: file(name)} }
	c.PKI = &PKI{
		CA: ca, FrontProxy: &Authority{File: file("front-proxy-ca.crt")}, Server: both("server.pem"),
		KubeletClient: both("kubelet-client.pem"), FrontProxyClient: both("front-proxy-client.pem"),
		ServiceAccounts: both("service-accounts.key"),
	}
}

// bundledProgram returns the path of berth-apiserver: $BERTH_APISERVER_BIN, else a fresh build.
func bundledProgram(t testing.TB, checkout string) string {
	t.Helper()
	if path := os.Getenv("BERTH_APISERVER_BIN"); path != "" {
		return path
	}
	path := filepath.Join(t.TempDir(), "berth-apiserver")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", path, "./cmd/berth-apiserver")
	build.Dir, build.Env = filepath.Join(checkout, "apiserver"), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build berth-apiserver: %v: %s", err, out)
	}
	return path
}
