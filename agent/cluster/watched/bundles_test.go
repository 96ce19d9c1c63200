package watched

import (
	"bytes"
	"encoding/pem"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

// bundle is a ClusterTrustBundle with certificates of these contents.
func bundle(name, signer, label string, contents ...string) *certificatesv1beta1.ClusterTrustBundle {
	out := &certificatesv1beta1.ClusterTrustBundle{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"use": label}},
		Spec:       certificatesv1beta1.ClusterTrustBundleSpec{SignerName: signer},
	}
	for _, c := range contents {
		out.Spec.TrustBundle += "about " + c + "\n" +
			string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Headers: map[string]string{"a": "b"}, Bytes: []byte(c)}))
	}
	return out
}

// anchors returns the contents of certificates, sorted, or the error.
func anchors(t *testing.T, data []byte, err error) string {
	t.Helper()
	if err != nil {
		return err.Error()
	}
	var out []string
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" || len(block.Headers) > 0 {
			t.Errorf("a block %s with headers %v", block.Type, block.Headers)
		}
		out = append(out, string(block.Bytes))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// A pod's projection gets the certificates of one bundle, or of all bundles of a signer that a
// selector matches, each once. A new bundle wakes the pod.
func TestTrustBundles(t *testing.T) {
	run(t, func(b *bench) {
		b.deps.Certificates = &rest.RESTClient{} // not asked: the server is a fake
		pod := podWith("1")
		pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{
			Name: "roots", VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
				Sources: []v1.VolumeProjection{{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{
					Name: ptr.To("one"), Path: "roots.pem",
				}}},
			}},
		})
		b.server.put(bundle("one", "", "live", "x", "y", "x"))
		b.server.put(bundle("s:a", "s", "live", "y", "z"))
		b.server.put(bundle("s:b", "s", "canary", "c"))
		b.server.put(bundle("t:a", "t", "live", "other"))
		b.Use(pod)
		synctest.Wait()
		live := &metav1.LabelSelector{MatchLabels: map[string]string{"use": "live"}}
		for _, c := range []struct {
			ask  v1.ClusterTrustBundleProjection
			want string
		}{
			{v1.ClusterTrustBundleProjection{Name: ptr.To("one")}, "x y"},
			{
				v1.ClusterTrustBundleProjection{Name: ptr.To("none")},
				`while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io "none" not found`,
			},
			{v1.ClusterTrustBundleProjection{Name: ptr.To("none"), Optional: ptr.To(true)}, ""},
			{v1.ClusterTrustBundleProjection{SignerName: ptr.To("s"), LabelSelector: live}, "y z"},
			{v1.ClusterTrustBundleProjection{SignerName: ptr.To("s"), LabelSelector: &metav1.LabelSelector{}}, "c y z"},
			{
				v1.ClusterTrustBundleProjection{SignerName: ptr.To("s")},
				"combination of signerName and labelSelector matched zero ClusterTrustBundles",
			},
			{v1.ClusterTrustBundleProjection{SignerName: ptr.To("s"), Optional: ptr.To(true)}, ""},
			{
				v1.ClusterTrustBundleProjection{},
				"ClusterTrustBundle projection requires either name or signerName to be set",
			},
		} {
			data, err := b.TrustBundle(pod, &c.ask)
			if got := anchors(t, data, err); got != c.want {
				t.Errorf("%s: %q, want %q", c.ask.String(), got, c.want)
			}
			again, _ := b.TrustBundle(pod, &c.ask)
			if !bytes.Equal(data, again) {
				t.Errorf("%s: another order at another time", c.ask.String())
			}
		}
		b.wakes()
		b.server.put(bundle("s:c", "s", "live", "new"))
		if got := b.wakes(); got != "1" {
			t.Errorf("woke %q", got)
		}
		data, err := b.TrustBundle(pod, &v1.ClusterTrustBundleProjection{SignerName: ptr.To("s"), LabelSelector: live})
		if got := anchors(t, data, err); got != "new y z" {
			t.Errorf("%q", got)
		}
	})
}

// Nobody asks for bundles while the feature is off, and a pod does not get those of other pods
// before it uses them.
func TestTrustBundlesAreOff(t *testing.T) {
	run(t, func(b *bench) {
		pod := podWith("1")
		pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{
			VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
				Sources: []v1.VolumeProjection{{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{Name: ptr.To("one")}}},
			}},
		})
		b.Use(pod)
		synctest.Wait()
		b.expect(listMaster, watchMaster)
		_, err := b.TrustBundle(pod, &v1.ClusterTrustBundleProjection{Name: ptr.To("one")})
		if err == nil || errors.Is(err, ErrPending) {
			t.Errorf("%v", err)
		}
	})
}
