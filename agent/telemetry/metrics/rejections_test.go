package metrics

import (
	"strings"
	"testing"
)

// Reasons with names of the cluster's resources make no series of their own.
func TestRejections(t *testing.T) {
	for reason, want := range map[string]string{
		"OutOfcpu":                 "OutOfcpu",
		"UnexpectedAdmissionError": "UnexpectedAdmissionError",
		"PodSecurity":              "PodSecurity",
		"OutOfexample.com/gpu":     "OutOfExtendedResources",
		"OutOfhugepages-2Mi":       "OutOfExtendedResources",
		"NodeAffinity":             "Other",
		"":                         "Other",
	} {
		s := New("node1", "v")
		s.Rejected(reason)
		got := strings.Join(gather(t, s), "\n")
		if series := "kubelet_admission_rejections_total{reason=" + want + "} 1"; !strings.Contains(got, series) ||
			strings.Count(got, "kubelet_admission_rejections_total") != 1 {
			t.Errorf("%q does not count as %s", reason, want)
		}
	}
}
