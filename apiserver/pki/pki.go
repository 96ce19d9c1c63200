package pki

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/keyutil"
)

// KubeletClientUser is the user as which the API server calls agents. Package control binds the
// user to the ClusterRole system:kubelet-api-admin.
const KubeletClientUser = "kube-apiserver-kubelet-client"

// Config is what the certificates say.
type Config struct {
	// DataDir gets the kubeconfigs, and its folder pki the keys.
	DataDir string
	// Hosts are the names and addresses under which clients reach the API server.
	Hosts []string
	// Server is the URL that the kubeconfigs name.
	Server string
	// NodeName is the node whose agent node.kubeconfig is for.
	NodeName string
	// NodeHosts are the addresses besides NodeName under which the API server reaches that agent.
	NodeHosts []string
}

// Keys are the paths of the files that [Ensure] makes or finds.
type Keys struct {
	// CA and FrontProxyCA are the certificates of the authorities. CAKey is the key of the first.
	CA, CAKey, FrontProxyCA string
	// Server, NodeServing, KubeletClient and FrontProxyClient have a certificate and its key.
	Server, NodeServing, KubeletClient, FrontProxyClient string
	// ServiceAccounts is the private key that signs the tokens of ServiceAccounts.
	ServiceAccounts string
	// AdminKubeconfig is for a user who may do everything. It has its keys inside, so that it can
	// be copied. NodeKubeconfig is for the agent, names the files of its keys, and so follows a
	// renewal.
	AdminKubeconfig, NodeKubeconfig string

	config Config
}

func folder(dataDir string) string { return filepath.Join(dataDir, "pki") }

// Paths says where [Ensure] makes the files of a data directory.
func Paths(dataDir string) *Keys {
	in := func(name string) string { return filepath.Join(folder(dataDir), name) }
	return &Keys{
		CA: in("ca.crt"), CAKey: in("ca.key"), FrontProxyCA: in("front-proxy-ca.crt"),
		Server: in("server.pem"), NodeServing: in("node-serving.pem"), KubeletClient: in("kubelet-client.pem"),
		FrontProxyClient: in("front-proxy-client.pem"), ServiceAccounts: in("service-accounts.key"),
		AdminKubeconfig: adminKubeconfig(dataDir), NodeKubeconfig: nodeKubeconfig(dataDir),
	}
}

// Ensure makes the keys, certificates and kubeconfigs of config that are missing, that end within a
// third of their life, or that say something else than they should. Files with keys that others may
// read or write are their owner's alone again. It returns where all of them are. now decides what
// ends soon.
func Ensure(config Config, now time.Time) (*Keys, error) {
	dir := folder(config.DataDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of keys: %w", err)
	}
	if err := closeKeys(config.DataDir, dir); err != nil {
		return nil, err
	}
	ca, err := ensureAuthority(dir, "ca", now)
	if err != nil {
		return nil, err
	}
	proxyCA, err := ensureAuthority(dir, "front-proxy-ca", now)
	if err != nil {
		return nil, err
	}
	k := Paths(config.DataDir)
	k.config = config
	var admin, node string
	nodeUser, nodeGroups := "system:node:"+config.NodeName, []string{"system:nodes"}
	for _, l := range []struct {
		by   *authority
		into *string
		leaf leaf
	}{
		{ca, &k.Server, leaf{name: "server", user: "kube-apiserver", hosts: config.Hosts}},
		{ca, &k.NodeServing, leaf{
			name: "node-serving", user: nodeUser, groups: nodeGroups,
			hosts: append([]string{config.NodeName}, config.NodeHosts...),
		}},
		{ca, &k.KubeletClient, leaf{name: "kubelet-client", user: KubeletClientUser, fixed: true}},
		{proxyCA, &k.FrontProxyClient, leaf{name: "front-proxy-client", user: "front-proxy-client", fixed: true}},
		{ca, &admin, leaf{name: "admin", user: "kubernetes-admin", groups: []string{"system:masters"}}},
		{ca, &node, leaf{name: "node", user: nodeUser, groups: nodeGroups}},
	} {
		if *l.into, _, err = l.by.ensureLeaf(dir, l.leaf, now); err != nil {
			return nil, err
		}
	}
	if err := ensureSigningKey(k.ServiceAccounts); err != nil {
		return nil, err
	}
	return k, k.ensureKubeconfigs(admin, node)
}

func adminKubeconfig(dataDir string) string { return filepath.Join(dataDir, "admin.kubeconfig") }

func nodeKubeconfig(dataDir string) string { return filepath.Join(dataDir, "node.kubeconfig") }

// ensureSigningKey makes the key of ServiceAccounts' tokens if there is none, and reads one that is
// there.
func ensureSigningKey(path string) error {
	found, err := exists(path)
	if err != nil {
		return fmt.Errorf("look for the key of service accounts: %w", err)
	}
	if found {
		if _, err := keyutil.PrivateKeyFromFile(path); err != nil {
			return fmt.Errorf("read the key of service accounts %s (restore the file, or remove it to begin with a new key, "+
				"which makes all tokens of service accounts invalid): %w", path, err)
		}
		return nil
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("make the key of service accounts: %w", err)
	}
	text, err := encodeKey(key)
	if err != nil {
		return err
	}
	return writeFile(path, text)
}

// ensureKubeconfigs writes the kubeconfigs that do not say what they should.
func (k *Keys) ensureKubeconfigs(admin, node string) error {
	authority, err := os.ReadFile(k.CA)
	if err != nil {
		return fmt.Errorf("read the authority: %w", err)
	}
	pem, err := os.ReadFile(admin)
	if err != nil {
		return fmt.Errorf("read the administrator's certificate: %w", err)
	}
	for path, user := range map[string]*clientcmdapi.AuthInfo{
		k.AdminKubeconfig: {ClientCertificateData: pem, ClientKeyData: pem},
		k.NodeKubeconfig:  {ClientCertificate: node, ClientKey: node},
	} {
		const name = "berth"
		text, err := clientcmd.Write(clientcmdapi.Config{
			Clusters: map[string]*clientcmdapi.Cluster{
				name: {Server: k.config.Server, CertificateAuthorityData: authority},
			},
			AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: user},
			Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
			CurrentContext: name,
		})
		if err != nil {
			return fmt.Errorf("make the kubeconfig %s: %w", path, err)
		}
		if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, text) {
			continue
		}
		if err := writeFile(path, text); err != nil {
			return err
		}
	}
	return nil
}

// maintainEvery is how often a running server looks for certificates that end soon. They are
// renewed months before.
const maintainEvery = 12 * time.Hour

// Maintain renews certificates until the context ends, and gives failed to each failure. The API
// server reads the files again by itself.
func (k *Keys) Maintain(ctx context.Context, failed func(error)) {
	tick := time.NewTicker(maintainEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			if _, err := Ensure(k.config, now); err != nil {
				failed(err)
			}
		}
	}
}
