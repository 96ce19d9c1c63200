package desired

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/berthd/berth/agent/source"
)

// TestResultsNameTheirLineOnce checks the log lines and the events about manifests.
func TestResultsNameTheirLineOnce(t *testing.T) {
	var log bytes.Buffer
	var events []string
	r := &Reconciler{
		log: slog.New(slog.NewTextHandler(&log, nil)), reported: map[resultKey]bool{},
		deps: Deps{
			Event:   func(_, reason, message string) { events = append(events, reason+" "+message) },
			Refused: func(int) {},
		},
	}
	results := []source.Result{
		{
			File: "/m/a.yaml", Document: 1, Line: 1, Kind: "Pod", Name: "a", Accepted: true,
			Warnings: []string{`line 5: unknown field "x"`, "everybody may write to it"},
		},
		{File: "/m/b.yaml", Document: 1, Line: 7, Kind: "Pod", Field: "spec", Message: "spec: Required value"},
		{File: "/m/c.yaml", Message: "the manifest is empty"},
	}
	for range 2 {
		r.reportResults(results)
	}
	if want := []string{
		"FailedValidation /m/b.yaml:7: spec: Required value", "FailedValidation /m/c.yaml: the manifest is empty",
	}; !slices.Equal(events, want) {
		t.Errorf("events %q, want %q", events, want)
	}
	for _, want := range []string{
		`file=/m/a.yaml document=1 line=5 field="" message="unknown field \"x\""`,
		`file=/m/a.yaml document=1 line=0 field="" message="everybody may write to it"`,
		`file=/m/b.yaml document=1 line=7 field=spec message="spec: Required value"`,
	} {
		if strings.Count(log.String(), want) != 1 {
			t.Errorf("not once %s in %s", want, log.String())
		}
	}
}
