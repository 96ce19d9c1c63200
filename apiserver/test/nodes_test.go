//go:build cluster

package test

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// badNode is a node's agent that does not do what agents do. It notes what it is asked.
type badNode struct {
	address string
	port    int

	mu    sync.Mutex
	asked []string
}

// ServeHTTP sends logs elsewhere, and refuses to upgrade a connection.
func (n *badNode) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n.mu.Lock()
	n.asked = append(n.asked, r.URL.Path)
	n.mu.Unlock()
	switch {
	case strings.HasPrefix(r.URL.Path, "/attach"):
		http.Error(w, "no", http.StatusForbidden)
	default:
		http.Redirect(w, r, "https://"+r.Host+"/stolen", http.StatusFound)
	}
}

// got says whether the agent was asked for a path that begins so.
func (n *badNode) got(prefix string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, path := range n.asked {
		if strings.HasPrefix(path, prefix) {
			return true
		}
	}
	return false
}

// addNode makes a node whose agent is there, with that certificate, and a pod on it.
func (s *server) addNode(t *testing.T, name string, certificate tls.Certificate) *badNode {
	t.Helper()
	n := &badNode{address: "127.0.0.1"}
	agent := httptest.NewUnstartedServer(n)
	agent.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	agent.Config.ErrorLog = log.New(io.Discard, "", 0)
	agent.StartTLS()
	t.Cleanup(agent.Close)
	n.port = agent.Listener.Addr().(*net.TCPAddr).Port
	register(t, s, name)
	s.kubectl(t, "patch", "node", name, "--subresource=status", "--type=merge", "-p", fmt.Sprintf(
		`{"status":{"addresses":[{"type":"InternalIP","address":%q}],"daemonEndpoints":{"kubeletEndpoint":{"Port":%d}}}}`,
		n.address, n.port))
	s.apply(t, strings.ReplaceAll(podManifest, "NAME", "on-"+name)+"  nodeName: "+name+"\n")
	t.Cleanup(func() {
		s.kubectl(t, "delete", "pod", "on-"+name, "--force")
		s.kubectl(t, "delete", "node", name)
	})
	return n
}

// serving is the certificate that the server made for its node's agent.
func (s *server) serving(t *testing.T) tls.Certificate {
	t.Helper()
	file := s.file("pki/node-serving.pem")
	pair, err := tls.LoadX509KeyPair(file, file)
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

// upgrades: the server follows no redirect of a node, and a connection whose upgrade a node refused
// is no way to that node.
func upgrades(t *testing.T, s *server) {
	n := s.addNode(t, "astray", s.serving(t))
	for _, args := range [][]string{{"logs", "on-astray"}, {"exec", "on-astray", "--", "true"}} {
		if out, err := s.as("admin", "", args...); err == nil {
			t.Errorf("kubectl %v: %s", args, out)
		}
	}
	if !n.got("/containerLogs") || !n.got("/exec") {
		t.Errorf("the agent was asked for %q", n.asked)
	}
	if n.got("/stolen") {
		t.Error("the server followed a redirect")
	}

	file := s.file("pki/admin.pem")
	pair, err := tls.LoadX509KeyPair(file, file)
	if err != nil {
		t.Fatal(err)
	}
	c, err := tls.Dial("tcp", strings.TrimPrefix(s.url, "https://"), &tls.Config{
		InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "POST /api/v1/namespaces/default/pods/on-astray/attach?stdout=true HTTP/1.1\r\nHost: x\r\n"+
		"Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n\r\n"+
		"GET /smuggled HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	answers := bufio.NewReader(c)
	first, err := http.ReadResponse(answers, nil)
	if err != nil {
		t.Fatal(err)
	}
	if first.StatusCode == http.StatusSwitchingProtocols {
		t.Error("a refused upgrade is an upgrade")
	}
	_, _ = io.Copy(io.Discard, answers) // until the server ends the connection
	if !n.got("/attach") || n.got("/smuggled") {
		t.Errorf("the agent was asked for %q", n.asked)
	}
}

// nodeAddresses: the server speaks to an agent whose certificate it verified, and is no way to the
// host's own services.
func nodeAddresses(t *testing.T, s *server) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	own := s.serving(t).Leaf
	template := &x509.Certificate{
		SerialNumber: own.SerialNumber, Subject: own.Subject, NotBefore: own.NotBefore, NotAfter: own.NotAfter,
		IPAddresses: own.IPAddresses, DNSNames: own.DNSNames, ExtKeyUsage: own.ExtKeyUsage,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	n := s.addNode(t, "forged", tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key})
	s.refuses(t, "certificate signed by unknown authority", "", "logs", "on-forged")
	for _, path := range []string{
		"/api/v1/nodes/forged/proxy/pods",
		fmt.Sprintf("/api/v1/nodes/https:forged:%d/proxy/pods", n.port),
		fmt.Sprintf("/api/v1/nodes/forged:%d/proxy/", n.port+1),
	} {
		if out, err := s.as("admin", "", "get", "--raw", path); err == nil {
			t.Errorf("%s: %s", path, out)
		}
	}
	if len(n.asked) > 0 {
		t.Errorf("the agent was asked for %q", n.asked)
	}
}

// certificateRequests: a node may ask for a serving certificate, and cannot approve what it asks for.
func certificateRequests(t *testing.T, s *server) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{
		Subject:  pkix.Name{CommonName: "system:node:" + nodeName, Organization: []string{"system:nodes"}},
		DNSNames: []string{nodeName},
	}, key)
	if err != nil {
		t.Fatal(err)
	}
	request := func(name, signer, usage string) string {
		text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der})
		return fmt.Sprintf("{apiVersion: certificates.k8s.io/v1, kind: CertificateSigningRequest, metadata: {name: %s}, "+
			"spec: {signerName: kubernetes.io/%s, request: %s, usages: [digital signature, %s auth]}}", name, signer,
			base64.StdEncoding.EncodeToString(text), usage)
	}
	if _, err := s.as("node", request("serving", "kubelet-serving", "server"), "create", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	s.forbids(t, "node", "", "certificate", "approve", "serving")
	const approved = `jsonpath={.status.conditions[?(@.type=="Approved")].status}{.status.certificate}`
	s.kubectl(t, "certificate", "approve", "serving")
	s.await(t, "the approved certificate is signed", func() error {
		out, err := s.as("admin", "", "get", "csr", "serving", "-o", approved)
		if err == nil && len(out) <= len("True") {
			err = fmt.Errorf("it has %q", out)
		}
		return err
	})
	s.kubectl(t, "delete", "csr", "serving")
}
