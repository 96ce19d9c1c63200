package cni

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestGC(t *testing.T) {
	h := newHost(t)
	h.list("1.1.0", "only")
	h.plugin("only", map[string]string{"ADD": good})
	n := h.network()
	for _, id := range []string{"kept", "lost"} {
		if _, err := n.Add(t.Context(), h.sandbox(id)); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.GC(t.Context(), func() []string { return []string{"kept"} }); err != nil {
		t.Fatal(err)
	}
	if got := h.calls("only"); !slices.Equal(got, []string{"ADD", "ADD", "DEL", "GC"}) {
		t.Errorf("the plugin got %v", got)
	}
	want := []any{map[string]any{"containerID": "kept", "ifname": "eth0"}}
	if got := h.got("only", "GC")["cni.dev/valid-attachments"]; !reflect.DeepEqual(got, want) {
		t.Errorf("GC got %v, want %v", got, want)
	}
	if ids, err := n.records.ids(); err != nil || !slices.Equal(ids, []string{"kept"}) {
		t.Errorf("left: %v, %v", ids, err)
	}
	// Without a configuration there is nobody to ask, and what is recorded can still be freed.
	if err := os.Remove(filepath.Join(h.conf, "10-test.conflist")); err != nil {
		t.Fatal(err)
	}
	if err := n.GC(t.Context(), func() []string { return nil }); err != nil {
		t.Error(err)
	}
	if left := h.left(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// One attachment that cannot be freed does not keep the others.
func TestGCFails(t *testing.T) {
	h := newHost(t)
	h.list("1.1.0", "only")
	h.plugin("only", map[string]string{"ADD": good, "DEL": `test $CNI_CONTAINERID != bad || exit 1`, "GC": "exit 1"})
	n := h.network()
	for _, id := range []string{"bad", "fine"} {
		if _, err := n.Add(t.Context(), h.sandbox(id)); err != nil {
			t.Fatal(err)
		}
	}
	err := n.GC(t.Context(), func() []string { return nil })
	if err == nil || !strings.Contains(err.Error(), "sandbox bad") || !strings.Contains(err.Error(), "its GC") {
		t.Errorf("got %v", err)
	}
	if ids, err := n.records.ids(); err != nil || !slices.Equal(ids, []string{"bad"}) {
		t.Errorf("left: %v, %v", ids, err)
	}
}

// GC does not look while a sandbox is being attached, because nobody can say whether it is valid.
func TestGCWaitsForAdd(t *testing.T) {
	h := newHost(t)
	h.list("1.0.0", "slow")
	release := filepath.Join(h.state, "release")
	h.plugin("slow", map[string]string{"ADD": `while ! test -e '` + release + `'; do sleep 0.01; done; ` + good})
	n := h.network()
	added := make(chan error, 1)
	go func() {
		_, err := n.Add(t.Context(), h.sandbox("a"))
		added <- err
	}()
	h.waitCall("slow", added)
	short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	looked := func() []string { t.Error("GC looked during ADD"); return nil }
	if err := n.GC(short, looked); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	if err := os.WriteFile(release, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := <-added; err != nil {
		t.Error(err)
	}
}

// A plugin hangs while GC detaches. Other sandboxes are attached and detached meanwhile, and calls
// for the sandbox that GC detaches wait.
func TestCallsDuringGC(t *testing.T) {
	h := newHost(t)
	h.list("1.1.0", "slow")
	release := filepath.Join(h.state, "release")
	h.plugin("slow", map[string]string{"ADD": good, "DEL": `test $CNI_CONTAINERID != lost || ` +
		`while ! test -e '` + release + `'; do sleep 0.01; done`})
	n := h.network()
	if _, err := n.Add(t.Context(), h.sandbox("lost")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(h.bin, "slow.calls")); err != nil {
		t.Fatal(err)
	}
	var valid []string
	collected := make(chan error, 1)
	go func() {
		collected <- n.GC(t.Context(), func() []string {
			defer func() { valid = []string{"new"} }() // is attached when GC asks again
			return valid
		})
	}()
	h.waitCall("slow", collected)
	for _, id := range []string{"new", "short"} {
		if _, err := n.Add(t.Context(), h.sandbox(id)); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.Del(t.Context(), "short"); err != nil {
		t.Error(err)
	}
	for what, call := range map[string]func(context.Context) error{
		"Add": func(ctx context.Context) error {
			_, err := n.Add(ctx, h.sandbox("lost"))
			return err
		},
		"Check": func(ctx context.Context) error { return n.Check(ctx, "lost") },
		"Del":   func(ctx context.Context) error { return n.Del(ctx, "lost") },
		"GC":    func(ctx context.Context) error { return n.GC(ctx, nil) },
	} {
		short, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		if err := call(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s of the sandbox that is being detached: got %v", what, err)
		}
		cancel()
	}
	if err := os.WriteFile(release, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Add(t.Context(), h.sandbox("lost")); err != nil { // waits for the DEL
		t.Error(err)
	}
	if err := <-collected; err != nil {
		t.Error(err)
	}
	want := []any{map[string]any{"containerID": "new", "ifname": "eth0"}}
	got, _ := h.got("slow", "GC")["cni.dev/valid-attachments"].([]any)
	if len(got) == 0 || !reflect.DeepEqual(got[:1], want) {
		t.Errorf("the plugin's GC got %v, want at first %v", got, want)
	}
	if ids, err := n.records.ids(); err != nil || !slices.Equal(ids, []string{"lost", "new"}) {
		t.Errorf("attached: %v, %v", ids, err)
	}
}

// A plugin hangs in its GC. It is killed, and calls go on.
func TestGCHangs(t *testing.T) {
	h := newHost(t)
	h.timeout = 500 * time.Millisecond
	h.list("1.1.0", "first", "second")
	for _, plugin := range []string{"first", "second"} {
		h.plugin(plugin, map[string]string{"ADD": good, "GC": `exec sleep 1000`})
	}
	n := h.network()
	err := n.GC(t.Context(), func() []string { return nil })
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), `"pods"`) {
		t.Errorf("got %v, want the time limit", err)
	}
	if got := h.calls("second"); len(got) > 0 {
		t.Errorf("the second plugin got %v after the time limit", got)
	}
	if !n.calls.TryAcquire(maxCalls) {
		t.Error("calls still wait")
	}
}

// A DEL that has failed is not repeated by the GC of the plugins, and its attachment is not freed.
func TestGCKeepsWhatIsAttached(t *testing.T) {
	h := newHost(t)
	h.list("1.1.0", "only")
	h.plugin("only", map[string]string{"ADD": good, "DEL": "exit 1"})
	n := h.network()
	if _, err := n.Add(t.Context(), h.sandbox("bad")); err != nil {
		t.Fatal(err)
	}
	if err := n.GC(t.Context(), func() []string { return nil }); err == nil {
		t.Error("the DEL that failed is not reported")
	}
	if got := h.calls("only"); !slices.Equal(got, []string{"ADD", "DEL", "GC"}) {
		t.Errorf("the plugin got %v", got)
	}
	want := []any{map[string]any{"containerID": "bad", "ifname": "eth0"}}
	if got := h.got("only", "GC")["cni.dev/valid-attachments"]; !reflect.DeepEqual(got, want) {
		t.Errorf("GC got %v, want %v", got, want)
	}
}
