package main

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/berthd/berth/agent/node/doctor"
	"github.com/berthd/berth/agent/node/lock"
	"github.com/berthd/berth/configs"
)

// TestRunConfigIsKept checks that a run's config can be read again as it was, whatever config the
// run had.
func TestRunConfigIsKept(t *testing.T) {
	samples, err := filepath.Glob("../../configs/samples/*.yaml")
	if err != nil || len(samples) == 0 {
		t.Fatal("no samples", err)
	}
	for _, sample := range append(samples, "") {
		cfg, _, err := configs.Load(configs.Options{File: sample})
		if err != nil {
			t.Fatal(err)
		}
		h := homeAt(t.TempDir())
		if err := h.save(cfg); err != nil {
			t.Fatal(err)
		}
		again, warnings, err := configs.Load(configs.Options{File: h.config()})
		if err != nil {
			t.Errorf("%s: %v", sample, err)
			continue
		}
		if changed := configs.Changed(cfg, again); len(changed) > 0 &&
			!reflect.DeepEqual(changed, []string{"staticPodURLHeader"}) {
			t.Errorf("%s: changed: %v (%v)", sample, changed, warnings)
		}
		if info, err := os.Stat(h.config()); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("mode %v, %v", info.Mode(), err)
		}
	}
}

// TestFindRuns checks that runs are found here and elsewhere, and that the dead ones are known.
func TestFindRuns(t *testing.T) {
	dir, elsewhere := t.TempDir(), t.TempDir()
	if runs, err := findRuns(filepath.Join(dir, "missing")); err != nil || len(runs) > 0 {
		t.Fatalf("without the directory: %v, %v", runs, err)
	}
	put := func(path string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(filepath.Join(dir, "default_dead", "config.yaml"))
	put(filepath.Join(dir, "default_live", "config.yaml"))
	put(filepath.Join(dir, "default_empty", "other"))
	put(filepath.Join(elsewhere, "config.yaml"))
	for link, to := range map[string]string{"at-1": elsewhere, "at-2": filepath.Join(elsewhere, "gone")} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	held, err := lock.Take(t.Context(), &configs.Config{Flags: configs.Flags{RootDir: filepath.Join(dir, "default_live")}})
	if err != nil {
		t.Fatal(err)
	}
	defer held.Release()
	got, err := findRuns(dir)
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(got, func(a, b doctor.Foreground) int { return strings.Compare(a.RootDir, b.RootDir) })
	want := []doctor.Foreground{
		{RootDir: elsewhere},
		{RootDir: filepath.Join(dir, "default_dead")},
		{RootDir: filepath.Join(dir, "default_live"), Lives: true, PID: os.Getpid()},
	}
	slices.SortFunc(want, func(a, b doctor.Foreground) int { return strings.Compare(a.RootDir, b.RootDir) })
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

// TestCleaningTellsOfItsOwn checks that a cleaning does not warn, as of pods of other agents.
func TestCleaningTellsOfItsOwn(t *testing.T) {
	var out bytes.Buffer
	log := runLog(&out)
	log.Warn("pod in the runtime is not of this root directory and is left alone")
	if out.Len() > 0 {
		t.Errorf("it warns: %s", &out)
	}
	if log.Error("it failed"); out.Len() == 0 {
		t.Error("an error is not said")
	}
}
