package images

import (
	"log/slog"
	"testing"

	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/berthd/berth/configs"
)

// The gate of the records of pulled images is what GateEnabled says, as for all other gates.
func TestGateOfRecords(t *testing.T) {
	for _, c := range []struct {
		gates map[string]bool
		want  bool
	}{
		{nil, true},
		{map[string]bool{gateSecretPulled: false}, false},
		{map[string]bool{"AllBeta": false}, false},
		{map[string]bool{"AllBeta": false, gateSecretPulled: true}, true},
	} {
		cfg := &configs.Config{}
		cfg.RootDir = t.TempDir()
		cfg.Kubelet.ImagePullCredentialsVerificationPolicy = kubeletconfigv1beta1.NeverVerify
		cfg.Kubelet.FeatureGates = c.gates
		m, err := Open(cfg, nil, Deps{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if got := m.deps.Records != nil; got != c.want {
			t.Errorf("gates %v: records %t, want %t", c.gates, got, c.want)
		}
	}
}
