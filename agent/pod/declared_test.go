package pod

import (
	"fmt"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/pod/checkpoint"
	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/agent/telemetry/events"
	"github.com/berthd/berth/configs"
)

// A change that needs such a feature is reported.
func TestChangeOfAMissingFeature(t *testing.T) {
	const text = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {resources: {requests: {cpu: %s}}, " +
		"containers: [{name: main, image: m}]}\n"
	before, wanted := decoded(t, fmt.Sprintf(text, "100m")), decoded(t, fmt.Sprintf(text, "200m"))
	wanted.UID = before.UID
	for gate, want := range map[string]string{
		"InPlacePodLevelResourcesVerticalScaling": "Pod requires node features that are not available: " +
			"InPlacePodLevelResourcesVerticalScaling",
		"InPlacePodVerticalScalingInitContainers": "",
		"NodeDeclaredFeatures":                    "",
	} {
		e := holdingTo(t, configs.PodSecurityPrivileged, gate)
		s := e.syncOf(worker.Work{UID: wanted.UID, Pod: wanted, Phase: worker.Running},
			&checkpoint.Record{Pod: before, Admitted: true}, nil)
		for range 2 { // nothing has changed since the first
			if _, err := e.noteWanted(t.Context(), s); err != nil {
				t.Fatal(err)
			}
		}
		got := e.deps.Events.List()
		switch {
		case want == "" && len(got) != 0,
			want != "" &&
				(len(got) != 1 || got[0].Reason != "FailedNodeDeclaredFeaturesCheck" || got[0].Message != want ||
					got[0].Count != 1 || got[0].Type != v1.EventTypeWarning):
			t.Errorf("without %s: %+v", gate, got)
		}
	}
}

// An event that concerns every pod is reported once for the node.
func TestNodeEventComesOnce(t *testing.T) {
	o := &nodeOnce{Recorder: events.New("n")}
	for range 3 {
		o.Node(v1.EventTypeWarning, "MissingClusterDNS", "m")
		o.Pod(&v1.Pod{}, "", v1.EventTypeWarning, "MissingClusterDNS", "m")
	}
	o.Node(v1.EventTypeWarning, "Other", "m")
	var got []string
	for _, e := range o.List() {
		got = append(got, fmt.Sprintf("%s %s %d", e.InvolvedObject.Kind, e.Reason, e.Count))
	}
	if want := []string{
		"Node MissingClusterDNS 1", "Node Other 1", "Pod MissingClusterDNS 3",
	}; !slices.Equal(slices.Sorted(slices.Values(got)), want) {
		t.Errorf("%q, want %q", got, want)
	}
}
