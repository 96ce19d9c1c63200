package native

import (
	"math"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berthd/berth/cni"
)

// These annotations of a pod limit its traffic, in bits per second (Kubernetes, "Network Plugins",
// support for traffic shaping).
const (
	ingressAnnotation = "kubernetes.io/ingress-bandwidth"
	egressAnnotation  = "kubernetes.io/egress-bandwidth"
)

// burst is how many bits may pass at once. It is as good as no limit, as in containerd and CRI-O:
// the rate is what a pod asks for.
const burst = math.MaxInt32

// bandwidth returns the limits of a pod's traffic, nil without one. A value that is no quantity
// limits nothing: whoever admits pods refuses it.
func bandwidth(annotations map[string]string) *cni.Bandwidth {
	var out cni.Bandwidth
	if rate := rateOf(annotations[ingressAnnotation]); rate > 0 {
		out.IngressRate, out.IngressBurst = rate, burst
	}
	if rate := rateOf(annotations[egressAnnotation]); rate > 0 {
		out.EgressRate, out.EgressBurst = rate, burst
	}
	if out == (cni.Bandwidth{}) {
		return nil
	}
	return &out
}

func rateOf(text string) uint64 {
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Sign() <= 0 {
		return 0
	}
	return uint64(q.Value())
}
