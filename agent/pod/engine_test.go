package pod

import (
	"log/slog"
	"testing"

	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/agent/telemetry/metrics"
)

// A defect in what is forgotten of a pod keeps nothing else from being forgotten, and the worker
// goes on.
func TestGoneGoesOnAfterPanics(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	pool := worker.New(t.Context(), worker.Config{}, log)
	defer pool.Close()
	told := 0
	set := metrics.New("node", "v1")
	e := &Engine{log: log, deps: Deps{ // without most parts, whose calls panic
		Desired:   nothingWanted{},
		Telemetry: Telemetry{Metrics: set, Log: log},
		Workers:   pool, StaticChanged: func() { told++ },
	}}
	e.Gone("u", nil)
	if told != 1 {
		t.Errorf("the last to be told was told %d times", told)
	}
	families, err := set.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "berth_pod_sync_panics_total" && f.Metric[0].GetCounter().GetValue() == 0 {
			t.Error("no panic is counted")
		}
	}
}
