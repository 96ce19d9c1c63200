package pod

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berthd/berth/agent/telemetry/events"
)

// member is a node's membership of a cluster.
type member bool

func (m member) Joined() bool                 { return bool(m) }
func (member) Mirrored(*v1.Pod) *v1.PodStatus { return nil }

// A pod of a cluster whose node changes the family of its address is warned of, in the kubelet's
// words.
func TestAddressOfAnotherFamily(t *testing.T) {
	for _, tt := range []struct {
		joined        bool
		before, after string
		want          string
	}{
		{true, "10.0.0.1", "fd00::1", "Kubelet detected an IPv4 node IP (10.0.0.1), but the cloud provider selected an " +
			"IPv6 node IP (fd00::1); pass an explicit `--node-ip` to kubelet to fix this."},
		{true, "10.0.0.1", "10.0.0.2", ""},
		{true, "", "fd00::1", ""},
		{false, "10.0.0.1", "fd00::1", ""},
	} {
		recorder := events.New("node")
		r := reporter{deps: &Deps{Cluster: member(tt.joined), Telemetry: Telemetry{Events: recorder}}}
		r.warnFamily(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web"}},
			&v1.PodStatus{HostIP: tt.before}, &v1.PodStatus{HostIP: tt.after})
		got := ""
		for _, e := range recorder.List() {
			if e.Reason == "HostIPsIPFamilyMismatch" {
				got = e.Message
			}
		}
		if got != tt.want {
			t.Errorf("from %q to %q: %q, want %q", tt.before, tt.after, got, tt.want)
		}
	}
}
