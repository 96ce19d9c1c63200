package kerneldefaults

import (
	"bytes"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// wanted are the values that a kubelet sets.
var wanted = map[string]string{
	"vm/overcommit_memory": "1", "vm/panic_on_oom": "0", "kernel/panic": "10", "kernel/panic_on_oops": "1",
	"kernel/keys/root_maxkeys": "1000000", "kernel/keys/root_maxbytes": "25000000",
}

// kernel returns a directory with these settings.
func kernel(t *testing.T, values map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, value := range values {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(value+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// has returns the settings of a directory.
func has(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	for name := range wanted {
		if text, err := os.ReadFile(filepath.Join(dir, name)); err == nil {
			out[name] = strings.TrimSpace(string(text))
		}
	}
	return out
}

// with returns the wanted values with another one; an empty value removes the setting.
func with(name, value string) map[string]string {
	out := maps.Clone(wanted)
	if out[name] = value; value == "" {
		delete(out, name)
	}
	return out
}

func TestApply(t *testing.T) {
	for name, c := range map[string]struct {
		values map[string]string
		demand bool
		err    string
		log    string
		after  map[string]string
	}{
		"all right":           {values: wanted, after: wanted},
		"all right, demanded": {values: wanted, demand: true, after: wanted},
		"another value":       {values: with("kernel/panic", "0"), log: "from=0 to=10", after: wanted},
		"another value, demanded": {
			values: with("kernel/panic", "0"), demand: true, after: with("kernel/panic", "0"),
			err: "invalid kernel flag: kernel/panic, expected value: 10, actual value: 0",
		},
		"missing": {
			values: with("kernel/panic_on_oops", ""), log: "setting=kernel/panic_on_oops",
			after: with("kernel/panic_on_oops", ""),
		},
		"missing, demanded": {
			values: with("kernel/panic_on_oops", ""), demand: true, err: "kernel/panic_on_oops: no such file",
			after: with("kernel/panic_on_oops", ""),
		},
		"no number": {
			values: with("vm/panic_on_oom", "x"), log: "setting=vm/panic_on_oom", after: with("vm/panic_on_oom", "x"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := kernel(t, c.values)
			var log bytes.Buffer
			err := Apply(dir, c.demand, slog.New(slog.NewTextHandler(&log, nil)))
			if (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("error %v, want %q", err, c.err)
			}
			if (log.Len() > 0) != (c.log != "") || !strings.Contains(log.String(), c.log) {
				t.Errorf("log %q, want %q", log.String(), c.log)
			}
			if got := has(t, dir); !maps.Equal(got, c.after) {
				t.Errorf("settings %v, want %v", got, c.after)
			}
		})
	}
}

// A setting that the kernel does not let anybody change is only a warning.
func TestSettingsThatStay(t *testing.T) {
	dir := kernel(t, with("kernel/panic", "0"))
	path := filepath.Join(dir, "kernel/panic")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/proc/self/wchan", path); err != nil { // its content is 0, and it is not writable
		t.Fatal(err)
	}
	var log bytes.Buffer
	if err := Apply(dir, false, slog.New(slog.NewTextHandler(&log, nil))); err != nil ||
		!strings.Contains(log.String(), "stays as it is") {
		t.Errorf("error %v, log %q", err, log.String())
	}
}
