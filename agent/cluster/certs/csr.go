package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// nodesGroup is the group of all nodes; nodePrefix is the prefix of their user names.
const nodesGroup, nodePrefix = "system:nodes", "system:node:"

// Wanted is a certificate to request.
type Wanted struct {
	// Node is the node's name.
	Node string
	// Names and IPs are those of a server; a client has none.
	Names, IPs []string
	// Signer signs the certificate for this usage.
	Signer string
	Usage  certificatesv1.KeyUsage
}

// ClientOf returns the certificate that a node needs as a client of the API server.
func ClientOf(node string) Wanted {
	return Wanted{
		Node:   node,
		Signer: certificatesv1.KubeAPIServerClientKubeletSignerName,
		Usage:  certificatesv1.UsageClientAuth,
	}
}

// ServerOf returns the certificate that a node needs to serve with these names and IPs.
func ServerOf(node string, names, ips []string) Wanted {
	return Wanted{
		Node:   node,
		Names:  sorted(names),
		IPs:    sorted(ips),
		Signer: certificatesv1.KubeletServingSignerName,
		Usage:  certificatesv1.UsageServerAuth,
	}
}

func sorted(list []string) []string {
	out := slices.Clone(list)
	slices.Sort(out)
	return slices.Compact(out)
}

// covers reports whether a certificate is the wanted one: the node's, with all names and IPs.
func (w Wanted) covers(c *x509.Certificate) bool {
	if c.Subject.CommonName != nodePrefix+w.Node || !slices.Equal(c.Subject.Organization, []string{nodesGroup}) {
		return false
	}
	for _, host := range slices.Concat(w.Names, w.IPs) {
		if c.VerifyHostname(host) != nil {
			return false
		}
	}
	return true
}

// request is a request for a certificate: the key, and the object that asks the cluster.
type request struct {
	key    *ecdsa.PrivateKey
	object *certificatesv1.CertificateSigningRequest
}

// newRequest makes a key and a request for its certificate.
func newRequest(w Wanted) (*request, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	return requestFor(w, key)
}

// requestFor makes a request for the certificate of a key. The key determines the object's name, so
// a second request with the same key, also by another process, is the same request.
func requestFor(w Wanted, key *ecdsa.PrivateKey) (*request, error) {
	template := &x509.CertificateRequest{
		Subject: pkix.Name{CommonName: nodePrefix + w.Node, Organization: []string{nodesGroup}}, DNSNames: w.Names,
	}
	for _, ip := range w.IPs {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(ip))
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, template, key)
	if err != nil {
		return nil, fmt.Errorf("making a certificate request: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return nil, fmt.Errorf("making a certificate request: %w", err)
	}
	sum := sha256.Sum256(fmt.Append(public, w.Signer, w.Node, w.Names, w.IPs))
	return &request{key: key, object: &certificatesv1.CertificateSigningRequest{
		ObjectMeta: metav1.ObjectMeta{Name: "node-csr-" + hex.EncodeToString(sum[:16])},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}), SignerName: w.Signer,
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, w.Usage},
		},
	}}, nil
}

// These are the errors of a request that will get no certificate.
var (
	errDenied = errors.New("the request was denied")
	errFailed = errors.New("the signer failed")
)

// issued returns the certificate that a request got, nil while it has none. An error is final.
func issued(csr *certificatesv1.CertificateSigningRequest) ([]byte, error) {
	approved := false
	for _, c := range csr.Status.Conditions {
		if c.Status == corev1.ConditionFalse {
			continue
		}
		switch c.Type {
		case certificatesv1.CertificateDenied:
			return nil, fmt.Errorf("%w: %s: %s", errDenied, c.Reason, c.Message)
		case certificatesv1.CertificateFailed:
			return nil, fmt.Errorf("%w: %s: %s", errFailed, c.Reason, c.Message)
		case certificatesv1.CertificateApproved:
			approved = true
		}
	}
	if !approved || len(csr.Status.Certificate) == 0 {
		return nil, nil
	}
	return csr.Status.Certificate, nil
}

// deadline returns when to renew a certificate: between 70 % and 90 % of its life, as fraction (0
// to 1) says. So nodes that were made at the same moment do not renew at the same moment.
func deadline(c *x509.Certificate, fraction float64) time.Time {
	life := c.NotAfter.Sub(c.NotBefore)
	return c.NotBefore.Add(time.Duration(float64(life) * (0.7 + 0.2*fraction)))
}
