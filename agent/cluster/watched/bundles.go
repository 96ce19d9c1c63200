package watched

import (
	"bytes"
	"crypto/sha256"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/berthd/berth/agent/source/objects"
)

// KindTrustBundle is the kind of ClusterTrustBundles. Manifests have none.
const KindTrustBundle = "ClusterTrustBundle"

// allBundles is the key of all ClusterTrustBundles. Every node may see them.
var allBundles = objects.Key{Kind: KindTrustBundle}

// maxSelector is the longest label selector of a projection, in bytes, which is a kubelet's.
const maxSelector = 100 * 1024

// usesBundles reports whether a pod has a projection of trust bundles.
func usesBundles(pod *v1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.Volumes, func(v v1.Volume) bool {
		return v.Projected != nil && slices.ContainsFunc(v.Projected.Sources, func(s v1.VolumeProjection) bool {
			return s.ClusterTrustBundle != nil
		})
	})
}

// TrustBundle returns the certificates that a pod's projection names, as PEM: each once. Their
// order is the same as long as the agent runs, and another with each agent, so that nobody relies
// on it. The errors are in the kubelet's words.
func (w *Watcher) TrustBundle(pod *v1.Pod, p *v1.ClusterTrustBundleProjection) ([]byte, error) {
	if p.Name == nil && p.SignerName == nil {
		return nil, errors.New("ClusterTrustBundle projection requires either name or signerName to be set")
	}
	items, err := w.items(pod, allBundles)
	if err != nil {
		return nil, err
	}
	chosen, err := bundlesOf(items, p)
	if err != nil {
		return nil, err
	}
	anchors := map[string]bool{}
	for _, text := range chosen {
		for block, rest := pem.Decode([]byte(text)); block != nil; block, rest = pem.Decode(rest) {
			anchors[string(block.Bytes)] = true
		}
	}
	mixed := func(anchor string) []byte {
		sum := sha256.Sum256(append(w.order[:], anchor...))
		return sum[:]
	}
	sorted := slices.SortedFunc(maps.Keys(anchors), func(a, b string) int { return bytes.Compare(mixed(a), mixed(b)) })
	out := []byte{}
	for _, anchor := range sorted {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(anchor)})...)
	}
	return out, nil
}

// bundlesOf returns the contents of the bundles that a projection names. None is an error unless
// the projection is optional.
func bundlesOf(items map[objects.Key]objects.Object, p *v1.ClusterTrustBundleProjection) ([]string, error) {
	optional := p.Optional != nil && *p.Optional
	var out []string
	if p.Name != nil {
		b, ok := items[objects.Key{Kind: KindTrustBundle, Name: *p.Name}].(*certificatesv1beta1.ClusterTrustBundle)
		if !ok && !optional {
			missing := apierrors.NewNotFound(certificatesv1beta1.Resource("clustertrustbundle"), *p.Name)
			// not wrapped: the volume is not missing
			return nil, errors.New("while getting ClusterTrustBundle: " + missing.Error())
		}
		if ok {
			out = append(out, b.Spec.TrustBundle)
		}
		return out, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(p.LabelSelector)
	if err != nil {
		return nil, fmt.Errorf("while parsing label selector: %w", err)
	}
	if n := len(selector.String()); n > maxSelector {
		return nil, fmt.Errorf("label selector length (%d) is larger than %d", n, maxSelector)
	}
	found := false
	for _, o := range items {
		b, ok := o.(*certificatesv1beta1.ClusterTrustBundle)
		if ok && b.Spec.SignerName == *p.SignerName && selector.Matches(labels.Set(b.Labels)) {
			found = true
			out = append(out, b.Spec.TrustBundle)
		}
	}
	if !found && !optional {
		return nil, errors.New("combination of signerName and labelSelector matched zero ClusterTrustBundles")
	}
	return out, nil
}

// newOrder returns what makes the order of certificates that of one agent.
func newOrder() (out [8]byte) {
	for i := range out {
		out[i] = byte(rand.UintN(256))
	}
	return out
}
