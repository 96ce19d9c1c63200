package cni

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
)

const single = `{"cniVersion":"0.4.0","name":"one","type":"bridge"}`

func TestFirstFileByNameCounts(t *testing.T) {
	h := newHost(t)
	n := h.network()
	h.config("README", "not a configuration")
	h.config("05-draft.conflist.swp", "{")
	if err := os.Mkdir(filepath.Join(h.conf, "01-folder.conf"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := n.load(); !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), h.conf) {
		t.Errorf("without a configuration: got %v", err)
	}
	for _, step := range []struct{ file, content, want string }{
		{"20-b.conf", single, "one"},
		{"10-a.conflist", `{"cniVersion":"1.0.0","name":"two","plugins":[{"type":"ptp"}]}`, "two"},
		{"15-c.json", single, "two"},
		{"10-a.conflist", `{"cniVersion":"1.0.0","name":"three","plugins":[{"type":"ptp"}]}`, "three"},
	} {
		h.config(step.file, step.content)
		list, err := n.load()
		if err != nil {
			t.Fatalf("after %s: %v", step.file, err)
		}
		if list.Name != step.want {
			t.Errorf("after %s the network is %q, want %q", step.file, list.Name, step.want)
		}
	}
}

func TestNoDirectory(t *testing.T) {
	h := newHost(t)
	h.conf = filepath.Join(h.conf, "missing")
	if _, err := h.network().load(); !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), h.conf) {
		t.Errorf("got %v", err)
	}
}

// A broken configuration is not skipped: pods would get another network.
func TestBrokenConfigurations(t *testing.T) {
	for name, c := range map[string]struct{ file, content, want string }{
		"half written":      {"10-x.conflist", `{"cniVersion":"1.0.0","na`, "unexpected end"},
		"empty":             {"10-x.conf", ``, "unexpected end"},
		"no plugins":        {"10-x.conflist", `{"cniVersion":"1.0.0","name":"x"}`, "no plugins"},
		"no name":           {"10-x.conf", `{"cniVersion":"1.0.0","type":"bridge"}`, "name"},
		"a path as a name":  {"10-x.conflist", `{"cniVersion":"1.0.0","name":"../x","plugins":[{"type":"a"}]}`, "name"},
		"old version":       {"10-x.conf", `{"cniVersion":"0.2.0","name":"x","type":"bridge"}`, "0.2.0"},
		"no version":        {"10-x.conf", `{"name":"x","type":"bridge"}`, "cniVersion"},
		"future version":    {"10-x.conf", `{"cniVersion":"2.0.0","name":"x","type":"bridge"}`, "2.0.0"},
		"no type":           {"10-x.conf", `{"cniVersion":"1.0.0","name":"x"}`, "type"},
		"list in a .conf":   {"10-x.conf", `{"cniVersion":"1.0.0","name":"x","plugins":[{"type":"a"}]}`, ".conflist"},
		"a list of nothing": {"10-x.conflist", `{"cniVersion":"1.0.0","name":"x","plugins":[]}`, "no plugins"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.config(c.file, c.content)
			h.config("20-y.conf", single)
			_, err := h.network().load()
			if !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), c.want) ||
				!strings.Contains(err.Error(), c.file) {
				t.Errorf("got %v, want %q and the file's name in it", err, c.want)
			}
		})
	}
}

// Plugins in files of their own (CNI 1.1) are part of what is recorded, so that DEL finds them when
// the files are gone.
func TestPluginsInAFolder(t *testing.T) {
	h := newHost(t)
	h.config("10-x.conflist", `{"cniVersion":"1.1.0","name":"x","plugins":[{"type":"first"}]}`)
	if err := os.Mkdir(filepath.Join(h.conf, "x"), 0o755); err != nil {
		t.Fatal(err)
	}
	h.config("x/10-more.conf", `{"type":"second"}`)
	h.plugin("first", map[string]string{"ADD": good})
	h.plugin("second", map[string]string{"ADD": good})
	n := h.network()
	if _, err := n.Add(t.Context(), h.sandbox("a")); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(h.conf, "x")); err != nil {
		t.Fatal(err)
	}
	if err := n.Del(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if got := h.calls("second"); !slices.Equal(got, []string{"ADD", "DEL"}) {
		t.Errorf("the plugin of the folder got %v", got)
	}
}

func TestMissingPlugin(t *testing.T) {
	h := newHost(t)
	h.list("1.0.0", "absent")
	n := h.network()
	for what, err := range map[string]error{
		"status": n.Status(t.Context()),
		"add":    func() error { _, err := n.Add(t.Context(), h.sandbox("a")); return err }(),
	} {
		if err == nil || !strings.Contains(err.Error(), `"absent"`) || !strings.Contains(err.Error(), h.bin) {
			t.Errorf("%s: got %v, want the plugin and the directory", what, err)
		}
	}
	h.plugin("absent", map[string]string{"ADD": good})
	if err := n.Del(t.Context(), "a"); err != nil {
		t.Errorf("detach when the plugin is there: %v", err)
	}
	if err := n.Status(t.Context()); err != nil {
		t.Errorf("status when the plugin is there: %v", err)
	}
}

func TestStatus(t *testing.T) {
	h := newHost(t)
	h.list("1.1.0", "only")
	n := h.network()
	clock := time.Now()
	n.status.now = func() time.Time { return clock }
	h.plugin("only", map[string]string{"STATUS": `echo '{"code":50,"msg":"no route yet"}'; exit 1`})
	for range 2 { // a bad answer is not kept
		if err := n.Status(t.Context()); !errdefs.IsUnavailable(err) || !strings.Contains(err.Error(), "no route yet") {
			t.Errorf("got %v", err)
		}
	}
	h.plugin("only", nil)
	ask := func(want int) {
		t.Helper()
		if err := n.Status(t.Context()); err != nil {
			t.Error(err)
		}
		if got := len(h.calls("only")); got != want {
			t.Errorf("the plugin was asked %d times, want %d", got, want)
		}
	}
	ask(3)
	ask(3) // a good answer is kept
	clock = clock.Add(statusValid)
	ask(4)
	h.config("00-other.conflist", `{"cniVersion":"1.1.0","name":"other","plugins":[{"type":"only"}]}`)
	ask(5) // but not for another configuration
}

func TestNewNeedsAStateDirectory(t *testing.T) {
	if _, err := New(Config{}); err == nil {
		t.Error("it succeeded")
	}
}
