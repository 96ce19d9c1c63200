package scenario

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/tools/txtar"

	"github.com/berthd/berth/cri/fake"
)

var update = flag.Bool("update", false, "write what scenarios dump into their golden texts")

// limit bounds a scenario in virtual time. A script that waits longer is wrong.
const limit = time.Hour

// TestScenarios plays each script of testdata and of its folders.
func TestScenarios(t *testing.T) {
	var files []string
	for _, pattern := range []string{"testdata/*.txtar", "testdata/*/*.txtar"} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("no scenarios in %s: %v", pattern, err)
		}
		files = append(files, found...)
	}
	for _, file := range files {
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.ToSlash(file), "testdata/"), ".txtar")
		t.Run(name, func(t *testing.T) {
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			synctest.Test(t, func(t *testing.T) {
				s := newScript(t, file, archive)
				defer s.close()
				s.play()
			})
		})
	}
}

// script is a scenario that is being played.
type script struct {
	t       *testing.T
	file    string
	archive *txtar.Archive
	m       *machine
	// execs is what commands do in containers.
	mu    sync.Mutex
	execs map[string]fake.ExecResult
}

func newScript(t *testing.T, file string, archive *txtar.Archive) *script {
	s := &script{t: t, file: file, archive: archive, execs: map[string]fake.ExecResult{}}
	var documents [][]byte
	if config, err := s.data("config.yaml"); err == nil {
		documents = append(documents, config)
	}
	s.m = newMachine(t, fake.Config{WriteLogs: true}, documents...)
	return s
}

// play runs the script's lines. An agent runs from the start.
func (s *script) play() {
	text := string(s.archive.Comment)
	s.m.start()
	for n, line := range strings.Split(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		synctest.Wait()
		if err := s.do(words); err != nil {
			s.t.Fatalf("%s:%d: %s: %v\n%s", s.file, n+1, strings.TrimSpace(line), err, s.state())
		}
		for _, b := range s.m.check() {
			s.t.Fatalf("%s:%d: after %s: %s\n%s", s.file, n+1, strings.TrimSpace(line), b, s.state())
		}
	}
}

// close ends the agent and the calls that hang, so that the bubble ends.
func (s *script) close() {
	s.m.runtime.ClearFaults()
	s.m.stop()
	for _, b := range s.m.check() {
		s.t.Errorf("%s: %s", s.file, b)
	}
}

// data returns a file of the archive.
func (s *script) data(name string) ([]byte, error) {
	for _, f := range s.archive.Files {
		if f.Name == name {
			return f.Data, nil
		}
	}
	return nil, fmt.Errorf("the archive has no file %s", name)
}

// golden compares a text with one of the archive, or writes the text there.
func (s *script) golden(name, got string) error {
	for i := range s.archive.Files {
		f := &s.archive.Files[i]
		switch {
		case f.Name != name:
			continue
		case string(f.Data) == got:
			return nil
		case *update:
			f.Data = []byte(got)
			return os.WriteFile(s.file, txtar.Format(s.archive), 0o644)
		}
		return fmt.Errorf("differs from %s:\n%s", name, got)
	}
	return fmt.Errorf("the archive has no file %s", name)
}

// state returns the state of everything, for failures.
func (s *script) state() string {
	var b strings.Builder
	fmt.Fprintf(&b, "runtime:\n%s", s.m.runtime.Dump())
	for _, p := range s.m.pods() {
		fmt.Fprintf(&b, "pod %s: %s %s %s\n", p.Name, p.Status.Phase, p.Status.Reason, p.Status.Message)
		for _, c := range statuses(p) {
			fmt.Fprintf(&b, "\t%s ready=%v restarts=%d %+v\n", c.Name, c.Ready, c.RestartCount, c.State)
		}
	}
	for _, c := range mutating(s.m.runtime.Calls()) {
		fmt.Fprintf(&b, "%s %s\n", c.Begin.Format("15:04:05.000"), c)
	}
	return b.String()
}
