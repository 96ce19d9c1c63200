//go:build cluster

package cluster

import (
	"crypto"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berthd/berth/test/env"
	"github.com/berthd/berth/test/images"
)

// certified is a pod with a certificate of a signer, and with the signer's trust bundles.
const certified = `apiVersion: v1
kind: Pod
metadata: {name: certified}
spec:
  containers:
  - {name: main, image: %s, command: [sleep, "1000000"], volumeMounts: [{name: tls, mountPath: /tls}]}
  terminationGracePeriodSeconds: 1
  volumes:
  - name: tls
    projected:
      sources:
      - podCertificate: {signerName: example.com/signer, keyType: ECDSAP256, credentialBundlePath: bundle.pem}
      - clusterTrustBundle: {signerName: example.com/signer, labelSelector: {}, path: roots.pem}
`

const certificateRequests = "podcertificaterequests.v1beta1.certificates.k8s.io"

// TestCertificates has a cluster's signer issue a certificate for a pod, and publish its roots.
// The pod waits for the certificate, and has it with its key. Roots that are published later appear
// in the running pod.
func TestCertificates(t *testing.T) {
	c := Start(t, Options{APIServer: []string{
		"--feature-gates=ClusterTrustBundle=true,ClusterTrustBundleProjection=true,PodCertificateRequest=true",
		"--runtime-config=certificates.k8s.io/v1beta1=true",
	}})
	a := c.StartNode(t, env.AgentOptions{
		Kubelet: "featureGates: {ClusterTrustBundleProjection: true, PodCertificateRequest: true}\n",
	})
	c.WaitNodeReady(t)
	signer, err := NewAuthority(t.TempDir(), "signer")
	if err != nil {
		t.Fatal(err)
	}
	c.publish(t, "first", signer)
	c.Apply(t, fmt.Sprintf(certified, images.Busybox))
	var asked certificatesv1beta1.PodCertificateRequest
	c.Eventually(t, func(out string) error {
		var list certificatesv1beta1.PodCertificateRequestList
		if err := json.Unmarshal([]byte(out), &list); err != nil {
			return err
		}
		if len(list.Items) != 1 {
			return fmt.Errorf("there are %d requests", len(list.Items))
		}
		asked = list.Items[0]
		return nil
	}, "get", certificateRequests, "-o", "json")
	env.Eventually(t, "berth why about the signer", func() error {
		out, errOut, code := a.CLI("why", "certified")
		if code != 0 || !strings.Contains(out, "signer example.com/signer is not issued yet") {
			return fmt.Errorf("code %d, %s%s", code, out, errOut)
		}
		return nil
	})
	c.answer(t, &asked, signer)
	c.Kubectl(t, "wait", "--for=condition=Ready", "pod/certified", "--timeout=300s")

	bundle := c.Kubectl(t, "exec", "certified", "--", "cat", "/tls/bundle.pem")
	key, rest := pem.Decode([]byte(bundle))
	leaf, _ := pem.Decode(rest)
	if key == nil || leaf == nil {
		t.Fatalf("the bundle is %d bytes without a key or a certificate", len(bundle))
	}
	private, err := x509.ParsePKCS8PrivateKey(key.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(leaf.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	if cert.Subject.CommonName != "certified" || !same(private, cert.PublicKey) {
		t.Errorf("the certificate is one for %q, or of another key", cert.Subject.CommonName)
	}
	if got := c.Kubectl(t, "exec", "certified", "--", "cat", "/tls/roots.pem"); got != read(t, signer.File) {
		t.Errorf("the roots are %q", got)
	}
	other, err := NewAuthority(t.TempDir(), "other")
	if err != nil {
		t.Fatal(err)
	}
	c.publish(t, "second", other)
	c.Eventually(t, func(out string) error {
		if n := strings.Count(out, "BEGIN CERTIFICATE"); n != 2 {
			return fmt.Errorf("there are %d roots", n)
		}
		return nil
	}, "exec", "certified", "--", "cat", "/tls/roots.pem")
	c.Kubectl(t, "delete", "pod", "certified", "--timeout=300s")
}

// publish makes a trust bundle of the signer that the pod names.
func (c *Cluster) publish(t *testing.T, name string, a *Authority) {
	t.Helper()
	c.apply(t, &certificatesv1beta1.ClusterTrustBundle{
		TypeMeta:   metav1.TypeMeta{APIVersion: "certificates.k8s.io/v1beta1", Kind: "ClusterTrustBundle"},
		ObjectMeta: metav1.ObjectMeta{Name: "example.com:signer:" + name},
		Spec: certificatesv1beta1.ClusterTrustBundleSpec{
			SignerName: "example.com/signer", TrustBundle: read(t, a.File),
		},
	})
}

func (c *Cluster) apply(t *testing.T, object any) {
	t.Helper()
	text, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	c.Apply(t, string(text))
}

// answer issues the certificate that a request asks for.
func (c *Cluster) answer(t *testing.T, r *certificatesv1beta1.PodCertificateRequest, a *Authority) {
	t.Helper()
	stub, err := x509.ParseCertificateRequest(r.Spec.StubPKCS10Request)
	if err != nil {
		t.Fatal(errors.Join(err, stub.CheckSignature()))
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), NotBefore: time.Now().Truncate(time.Second),
		NotAfter: time.Now().Truncate(time.Second).Add(lifetime),
	}
	template.Subject.CommonName = r.Spec.PodName
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, stub.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	at := func(when time.Time) *metav1.Time { out := metav1.NewTime(when); return &out }
	r.Status = certificatesv1beta1.PodCertificateRequestStatus{
		Conditions: []metav1.Condition{{
			Type: certificatesv1beta1.PodCertificateRequestConditionTypeIssued, Status: metav1.ConditionTrue,
			Reason: "Issued", LastTransitionTime: metav1.Now(),
		}},
		CertificateChain: string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		NotBefore:        at(template.NotBefore), NotAfter: at(template.NotAfter),
		BeginRefreshAt: at(template.NotAfter.Add(-lifetime / 2)),
	}
	r.TypeMeta = metav1.TypeMeta{APIVersion: "certificates.k8s.io/v1beta1", Kind: "PodCertificateRequest"}
	text, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "answer.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	c.Kubectl(t, "replace", "-f", file, "--raw", fmt.Sprintf(
		"/apis/certificates.k8s.io/v1beta1/namespaces/%s/podcertificaterequests/%s/status", r.Namespace, r.Name))
}

// same reports whether a key is the one of a certificate.
func same(private, public any) bool {
	signer, ok := private.(interface{ Public() crypto.PublicKey })
	if !ok {
		return false
	}
	mine, ok := signer.Public().(interface{ Equal(x crypto.PublicKey) bool })
	return ok && mine.Equal(public)
}

func read(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
