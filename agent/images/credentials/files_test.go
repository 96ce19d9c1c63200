package credentials

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// node is a test's directories with the node's files.
type node struct {
	*testing.T
	*Files
	root, work, home string
	log              *bytes.Buffer
}

func newNode(t *testing.T) *node {
	top := t.TempDir()
	n := &node{
		T:    t,
		root: filepath.Join(top, "root"),
		work: filepath.Join(top, "work"),
		home: filepath.Join(top, "home"),
		log:  &bytes.Buffer{},
	}
	for _, dir := range []string{n.root, n.work, filepath.Join(n.home, ".docker")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(n.work)
	n.Files = NewFiles(n.root, n.home,
		slog.New(slog.NewTextHandler(n.log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	return n
}

// write writes a file with one login to r.io for the user.
func (n *node) write(user string, path ...string) {
	n.Helper()
	text := `{"r.io":{"username":"` + user + `","password":"hunter2"}}`
	if filepath.Base(filepath.Join(path...)) == "config.json" {
		text = `{"auths":` + text + `}`
	}
	n.put(text, path...)
}

func (n *node) put(text string, path ...string) {
	n.Helper()
	if err := os.WriteFile(filepath.Join(path...), []byte(text), 0o600); err != nil {
		n.Fatal(err)
	}
}

// wantUser fails the test if the lookup returns another user; empty means no login.
func (n *node) wantUser(user string) {
	n.Helper()
	got := ""
	for _, c := range n.Lookup("r.io/a") {
		got += c.Username.Reveal()
		if !c.Source.Node() {
			n.Errorf("source is %v", c.Source)
		}
	}
	if got != user {
		n.Errorf("user is %q, want %q", got, user)
	}
}

func TestFilesAreSearchedInOrder(t *testing.T) {
	n := newNode(t)
	n.wantUser("")
	before := n.State()
	n.write("dockercfg-home", n.home, ".dockercfg")
	n.wantUser("dockercfg-home")
	if n.State() == before {
		t.Error("a new file leaves the state as it was")
	}
	n.write("dockercfg-work", n.work, ".dockercfg")
	n.wantUser("dockercfg-work")
	n.write("dockercfg-root", n.root, ".dockercfg")
	n.wantUser("dockercfg-root")
	n.write("config-home", n.home, ".docker", "config.json")
	n.wantUser("config-home")
	n.write("config-work", n.work, "config.json")
	n.wantUser("config-work")
	n.write("config-root", n.root, "config.json")
	n.wantUser("config-root")
	if err := os.Remove(filepath.Join(n.root, "config.json")); err != nil {
		t.Fatal(err)
	}
	n.wantUser("config-work")
}

func TestFilesThatChangeAreReadAgain(t *testing.T) {
	n := newNode(t)
	path := filepath.Join(n.root, "config.json")
	n.write("aaa", path)
	n.wantUser("aaa")
	state := n.State()
	n.write("bbb", path) // as long as before
	if err := os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	if n.State() == state {
		t.Error("a changed file leaves the state as it was")
	}
	n.wantUser("bbb")
}

func TestWrongFilesAreSkipped(t *testing.T) {
	n := newNode(t)
	n.write("good", n.home, ".docker", "config.json")
	for name, spoil := range map[string]func(path string) error{
		"no JSON":   func(path string) error { return os.WriteFile(path, []byte("hunter2"), 0o600) },
		"no logins": func(path string) error { return os.WriteFile(path, []byte(`{"name":"app"}`), 0o600) },
		"directory": func(path string) error { return os.Mkdir(path, 0o700) },
		"pipe":      func(path string) error { return unix.Mkfifo(path, 0o600) },
		"too large": func(path string) error {
			return os.WriteFile(path, []byte(`{"auths":{}}`+strings.Repeat(" ", maxFile)), 0o600)
		},
		"dangling": func(path string) error { return os.Symlink("/nonexistent", path) },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(n.root, "config.json")
			if err := spoil(path); err != nil {
				t.Fatal(err)
			}
			defer os.RemoveAll(path)
			n.log.Reset()
			n.wantUser("good")
			warned := strings.Contains(n.log.String(), "wrong") && strings.Contains(n.log.String(), path)
			if warned != (name != "dangling") {
				t.Errorf("the log says: %s", n.log)
			}
		})
	}
	if strings.Contains(n.log.String(), "hunter2") {
		t.Errorf("the log quotes a file: %s", n.log)
	}
}
