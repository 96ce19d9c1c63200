package main

import (
	"context"
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/pod/timeline"
	"github.com/berthd/berth/agent/telemetry/history"
)

// fakeHistory has an event of the day before, and earlier lives of the pods web and gone.
type fakeHistory struct{}

func (fakeHistory) Events(_ context.Context, since time.Time) ([]v1.Event, error) {
	e := v1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "before"}, Type: v1.EventTypeNormal, Reason: "Pulled",
		Message: "Image pulled the day before", LastTimestamp: at(20 * time.Hour), FirstTimestamp: at(20 * time.Hour),
		InvolvedObject: v1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "web-node", UID: "u-web"},
	}
	if e.LastTimestamp.Time.Before(since) {
		return nil, nil
	}
	return []v1.Event{e}, nil
}

func (fakeHistory) Previous(_ context.Context, namespace string, names []string, _ types.UID) (*history.Past, error) {
	if namespace != "default" || !slices.Contains(names, "web-node") && !slices.Contains(names, "gone-node") {
		return nil, nil //nolint:nilnil // there was no such pod
	}
	name := "gone-node"
	if slices.Contains(names, "web-node") {
		name = "web-node"
	}
	began := time.Now().Add(-time.Hour)
	return &history.Past{Until: began, Life: history.Life{
		Namespace: namespace, Name: name, UID: "u-before", Status: "Failed",
		Entries: []timeline.Entry{{
			Step: "images", Begin: began, End: began, Last: began, Count: 2, Outcome: timeline.Failed,
			Message: "no such image then",
		}},
	}}, nil
}

func TestParseSince(t *testing.T) {
	zone := time.FixedZone("somewhere", 3600)
	now := time.Date(2026, 3, 1, 10, 30, 0, 0, zone)
	for text, want := range map[string]string{
		"today":                     "2026-03-01T00:00:00+01:00",
		"yesterday":                 "2026-02-28T00:00:00+01:00",
		"90m":                       "2026-03-01T09:00:00+01:00",
		"0s":                        "2026-03-01T10:30:00+01:00",
		"3d":                        "2026-02-26T10:30:00+01:00",
		"2026-01-31":                "2026-01-31T00:00:00+01:00",
		"2026-01-31 15:04":          "2026-01-31T15:04:00+01:00",
		"2026-01-31 15:04:05":       "2026-01-31T15:04:05+01:00",
		"2026-01-31T15:04:05Z":      "2026-01-31T15:04:05Z",
		"2026-01-31T15:04:05+05:00": "2026-01-31T15:04:05+05:00",
		"-1h":                       "",
		"-3d":                       "",
		"tomorrow":                  "",
		"":                          "",
		"99999999d":                 "",
	} {
		got, err := parseSince(text, now)
		if err != nil && want != "" || err == nil && got.Format(time.RFC3339) != want {
			t.Errorf("%s: %s, %v; want %s", text, got.Format(time.RFC3339), err, want)
		}
	}
}
