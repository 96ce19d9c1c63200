package gc

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// begin starts a collector, and returns what ends it.
func begin(t *testing.T, deps Deps) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- New(deps).Run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func mkdirs(t *testing.T, dirs ...string) {
	t.Helper()
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o750); err != nil {
			t.Fatal(err)
		}
	}
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// The directory that shows whose the logs are goes last: the logs of a pod that nobody knows are
// not left behind when they cannot be removed at first, or when the agent is killed in between.
func TestLogsGoBeforeTheDirectory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root, node := t.TempDir(), newBare()
		home, logs := filepath.Join(root, "pods", "gone"), filepath.Join(root, "logs")
		own, other := filepath.Join(logs, "ns_web_gone"), filepath.Join(logs, "ns_web_other")
		link := filepath.Join(root, "links", "web_ns_app-1234567890.log")
		mkdirs(t, home, filepath.Dir(link))
		if err := os.WriteFile(logs, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(own, "app", "0.log"), link); err != nil {
			t.Fatal(err)
		}
		defer begin(t, node.deps(root, nil, slog.New(slog.DiscardHandler)))()
		<-node.removed
		synctest.Wait()
		if !exists(home) {
			t.Fatal("the logs cannot be removed, and nothing shows any more whose they are")
		}
		if err := os.Remove(logs); err != nil {
			t.Fatal(err)
		}
		mkdirs(t, filepath.Join(own, "app"), other)
		<-node.removed
		synctest.Wait()
		for path, want := range map[string]bool{home: false, own: false, link: false, other: true} {
			if exists(path) != want {
				t.Errorf("%s is there: %t", path, !want)
			}
		}
	})
}

// Links into log directories that are gone are removed. All others stay.
func TestLinksThatLeadNowhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := t.TempDir()
		logs, links := filepath.Join(root, "logs"), filepath.Join(root, "links")
		mkdirs(t, filepath.Join(logs, "ns_web_rotated", "app"), links)
		for name, to := range map[string]string{
			"gone.log":     filepath.Join(logs, "ns_web_gone", "app", "0.log"),
			"rotated.log":  filepath.Join(logs, "ns_web_rotated", "app", "0.log"),
			"wanted.log":   filepath.Join(logs, "ns_web_wanted", "app", "0.log"),
			"unparsed.log": filepath.Join(logs, "web", "app", "0.log"),
			"others.log":   filepath.Join(root, "others", "ns_web_gone", "app", "0.log"),
		} {
			if err := os.Symlink(to, filepath.Join(links, name)); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(links, "file.log"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		defer begin(t, newBare().deps(root, nil, slog.New(slog.DiscardHandler)))()
		time.Sleep(period)
		synctest.Wait()
		entries, err := os.ReadDir(links)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range entries {
			got = append(got, e.Name())
		}
		if want := []string{"file.log", "others.log", "rotated.log", "unparsed.log", "wanted.log"}; !slices.Equal(got, want) {
			t.Errorf("%q are left, want %q", got, want)
		}
	})
}
