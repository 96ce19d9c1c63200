package configstate

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/berthd/berth/configs"
)

// TestConfigOnTheDisk changes a config file under a running agent.
func TestConfigOnTheDisk(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config.yaml")
	read := func(content string) (*configs.Config, error) {
		t.Helper()
		const head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
		if err := os.WriteFile(file, []byte(head+content), 0o600); err != nil {
			t.Fatal(err)
		}
		cfg, _, err := configs.Load(configs.Options{File: file})
		return cfg, err
	}
	var events []string
	s := New(Deps{Event: func(kind, reason, message string) { events = append(events, kind+" "+reason+": "+message) }})
	running, err := read("maxPods: 10\n")
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		content, event string
		want           []string
	}{
		{"maxPods: 10\n", "", nil},
		{"maxPods: 20\n", "Warning ConfigPending: ", []string{"maxPods (" + file + ":3)"}},
		{"maxPods: 20\n", "", []string{"maxPods"}},
		{"maxPods: no\n", "Warning ConfigRefused: ", []string{file, "maxPods"}},
		{"maxPods: 10\n", "Normal ConfigInForce: ", nil},
	} {
		events = nil
		before := s.Fault()
		cfg, err := read(step.content)
		s.Note(running, cfg, err)
		if (step.event == "") != (len(events) == 0) || len(events) > 0 && !strings.HasPrefix(events[0], step.event) {
			t.Errorf("%q: events %q, want %s", step.content, events, step.event)
		}
		fault := s.Fault()
		if (fault == nil) != (step.want == nil) {
			t.Fatalf("%q: %v", step.content, fault)
		}
		for _, want := range step.want {
			if !strings.Contains(fault.Error+strings.Join(fault.Pending, " "), want) {
				t.Errorf("%q: %+v, want %s", step.content, fault, want)
			}
		}
		if step.event == "" && fault != nil && fault != before {
			t.Errorf("%q: the time has changed", step.content)
		}
	}
	if refused, pending := s.Counts(); refused || pending != 0 {
		t.Errorf("%t, %d", refused, pending)
	}
	s.Note(running, nil, errors.New("gone"))
	if refused, pending := s.Counts(); !refused || pending != 0 {
		t.Errorf("%t, %d", refused, pending)
	}
	if fault := s.Fault(); fault == nil || fault.Error != "gone" || !slices.Equal(fault.Pending, nil) {
		t.Errorf("%v", fault)
	}
}
