package cluster

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/berthd/berth/test/env"
)

// PKI has the authorities and keys of a cluster.
type PKI struct {
	// CA signs servers and users. FrontProxy signs the API server's own requests to aggregated
	// servers.
	CA, FrontProxy *Authority
	// Server is kube-apiserver's certificate. KubeletClient is its client certificate for agents,
	// and FrontProxyClient its client certificate for aggregated servers.
	Server, KubeletClient, FrontProxyClient Pair
	// ServiceAccounts is the key that signs the tokens of service accounts. Its Cert is the public
	// half.
	ServiceAccounts Pair
}

// kubeletClients is the group of the API server as a client of agents. The ClusterRole
// system:kubelet-api-admin says what the group may do there.
const kubeletClients = "kubelet-clients"

// newPKI makes all files in dir.
func newPKI(dir string) (*PKI, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder of certificates: %w", err)
	}
	p := &PKI{ServiceAccounts: Pair{Cert: filepath.Join(dir, "sa.pub"), Key: filepath.Join(dir, "sa.key")}}
	var err error
	if p.CA, err = NewAuthority(dir, "kubernetes"); err != nil {
		return nil, err
	}
	if p.FrontProxy, err = NewAuthority(dir, "front-proxy"); err != nil {
		return nil, err
	}
	for _, c := range []struct {
		by      *Authority
		into    *Pair
		name    string
		subject Subject
	}{
		{p.CA, &p.Server, "apiserver", Subject{User: "kube-apiserver", Hosts: []string{
			"localhost", "127.0.0.1", env.HostIP, serviceIP, "kubernetes", "kubernetes.default",
			"kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
		}}},
		{
			p.CA, &p.KubeletClient, "apiserver-kubelet-client",
			Subject{User: "kube-apiserver-kubelet-client", Groups: []string{kubeletClients}},
		},
		{p.FrontProxy, &p.FrontProxyClient, "front-proxy-client", Subject{User: "front-proxy-client"}},
	} {
		if *c.into, err = c.by.Issue(dir, c.name, c.subject); err != nil {
			return nil, err
		}
	}
	return p, writeKeyPair(p.ServiceAccounts)
}

// Kubeconfig makes a kubeconfig for a user with a client certificate, and returns its path. The
// file is NAME.conf in the cluster's folder.
func (c *Cluster) Kubeconfig(t testing.TB, name string, subject Subject) string {
	t.Helper()
	path, err := c.kubeconfig(name, subject)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// NodeKubeconfig makes the kubeconfig of a node, which the Node authorizer and NodeRestriction
// accept as that node's agent.
func (c *Cluster) NodeKubeconfig(t testing.TB, node string) string {
	t.Helper()
	return c.Kubeconfig(t, "node-"+node, nodeSubject(node))
}

// nodeUser is the beginning of every node's user name, and nodeGroup is the group of all nodes.
const (
	nodeUser  = "system:node:"
	nodeGroup = "system:nodes"
)

func nodeSubject(node string) Subject {
	return Subject{User: nodeUser + node, Groups: []string{nodeGroup}}
}

func (c *Cluster) kubeconfig(name string, subject Subject) (string, error) {
	pair, err := c.PKI.CA.Issue(c.Folder, "client-"+name, subject)
	if err != nil {
		return "", err
	}
	path := filepath.Join(c.Folder, name+".conf")
	return path, WriteKubeconfig(path, Server, c.PKI.CA.File, map[string]any{
		"client-certificate": pair.Cert, "client-key": pair.Key,
	})
}

// WriteKubeconfig writes a kubeconfig with one server and one user. user has the user's fields of
// the kubeconfig, and authority is a file.
func WriteKubeconfig(path, server, authority string, user map[string]any) error {
	text, err := yaml.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "test",
		"clusters": []any{
			map[string]any{
				"name": "test", "cluster": map[string]any{"server": server, "certificate-authority": authority},
			},
		},
		"users":    []any{map[string]any{"name": "test", "user": user}},
		"contexts": []any{map[string]any{"name": "test", "context": map[string]any{"cluster": "test", "user": "test"}}},
	})
	if err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}
