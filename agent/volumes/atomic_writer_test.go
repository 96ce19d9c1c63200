package volumes

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func files(pairs ...string) payload {
	p := payload{}
	for i := 0; i < len(pairs); i += 2 {
		p[pairs[i]] = content{data: []byte(pairs[i+1]), mode: 0o644}
	}
	return p
}

func testWriter(t *testing.T, dir string) *writer {
	t.Helper()
	root, err := os.OpenRoot(dir)
	must(t, err)
	t.Cleanup(func() { root.Close() })
	return &writer{root: root, now: fixedNow}
}

// visible returns what a user sees: each file's path and content, names that begin with ".." left
// out.
func visible(t *testing.T, dir string) map[string]string {
	t.Helper()
	seen := map[string]string{}
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), "..") {
			continue
		}
		top, err := filepath.EvalSymlinks(filepath.Join(dir, entry.Name()))
		if err != nil {
			seen[entry.Name()] = "dangling"
			continue
		}
		must(t, filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				seen[entry.Name()+strings.TrimPrefix(path, top)] = read(t, path)
			}
			return err
		}))
	}
	return seen
}

func contents(p payload) map[string]string {
	m := map[string]string{}
	for name, c := range p {
		m[name] = string(c.data)
	}
	return m
}

// checkHolds checks what a user sees, and that nothing hidden is left over.
func checkHolds(t *testing.T, dir string, want payload) {
	t.Helper()
	if got := visible(t, dir); !maps.Equal(got, contents(want)) {
		t.Errorf("visible files = %q, want %q", got, contents(want))
	}
	var hidden []string
	entries, err := os.ReadDir(dir)
	must(t, err)
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), "..") {
			hidden = append(hidden, entry.Name())
		}
	}
	target, err := os.Readlink(filepath.Join(dir, dataLink))
	must(t, err)
	if !slices.Equal(hidden, []string{target, dataLink}) && !slices.Equal(hidden, []string{dataLink, target}) {
		t.Errorf("hidden names = %q, want only %q and %q", hidden, dataLink, target)
	}
}

func TestWriterUpdates(t *testing.T) {
	tests := map[string][]payload{
		"empty":                   {files()},
		"one file":                {files("a", "1")},
		"changed":                 {files("a", "1"), files("a", "2")},
		"same length":             {files("a", "1", "b", "x"), files("a", "1", "b", "y")},
		"added":                   {files("a", "1"), files("a", "1", "b", "2")},
		"removed":                 {files("a", "1", "b", "2"), files("b", "2")},
		"all removed":             {files("a", "1"), files()},
		"nested":                  {files("d/a", "1", "d/e/b", "2"), files("d/a", "1")},
		"file becomes directory":  {files("a", "1"), files("a/b", "2")},
		"directory becomes file":  {files("a/b", "2"), files("a", "1")},
		"back and forth":          {files("a", "1"), files("b", "1"), files("a", "1")},
		"dot file and odd names":  {files(".a", "1", "a..b", "2", "a b\n", "3")},
		"emptied file":            {files("a", "1"), files("a", "")},
		"nested file goes alone":  {files("d/a", "1", "d/b", "2"), files("d/b", "2")},
		"nested directory shrink": {files("d/e/f/a", "1", "b", "2"), files("b", "2")},
	}
	for name, versions := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			w := testWriter(t, dir)
			for i, version := range versions {
				changed, err := w.write(version, nil)
				must(t, err)
				if !changed {
					t.Errorf("version %d: not changed", i)
				}
				checkHolds(t, dir, version)
				before, _ := os.Readlink(filepath.Join(dir, dataLink))
				changed, err = w.write(version, nil)
				must(t, err)
				after, _ := os.Readlink(filepath.Join(dir, dataLink))
				if changed || before != after {
					t.Errorf("version %d was written again: %s, then %s", i, before, after)
				}
			}
		})
	}
}

func TestWriterRefusesPaths(t *testing.T) {
	for _, name := range []string{
		"", ".", "..", "/a", "../a", "a/../b", "a/..", "..a", "..data", "..data/x", "a//b", "a/", "./a", "a\x00b",
		strings.Repeat("a", 256), strings.Repeat("a/", 2100) + "a",
	} {
		dir := t.TempDir()
		if _, err := testWriter(t, dir).write(files(name, "x"), nil); err == nil ||
			!strings.HasPrefix(err.Error(), "invalid path: ") {
			t.Errorf("write(%q) error = %v, want invalid path", name, err)
		}
		if entries, _ := os.ReadDir(dir); len(entries) > 0 {
			t.Errorf("write(%q) left %v", name, entries)
		}
	}
	if _, err := testWriter(t, t.TempDir()).write(files("a", "1", "a/b", "2"), nil); err == nil {
		t.Error("a path that is both a file and a directory was accepted")
	}
}

type killed struct{}

// writeKilled writes, and stops as if the process were killed before the n-th step. It says whether
// the write came that far.
func writeKilled(w *writer, p payload, n int) (wasKilled bool) {
	steps := 0
	w.failpoint = func(string) {
		if steps == n {
			panic(killed{})
		}
		steps++
	}
	defer func() {
		w.failpoint = nil
		if r := recover(); r != nil {
			if _, ok := r.(killed); !ok {
				panic(r)
			}
			wasKilled = true
		}
	}()
	_, _ = w.write(p, nil)
	return false
}

func TestWriterKilledAtEveryStep(t *testing.T) {
	older := files("gone", "1", "kept", "1", "dir/x", "1")
	newer := files("kept", "2", "dir/y", "2", "fresh", "2")
	for n := 0; ; n++ {
		dir := t.TempDir()
		w := testWriter(t, dir)
		_, err := w.write(older, nil)
		must(t, err)
		wasKilled := writeKilled(w, newer, n)
		// Whatever can be read is wholly old or wholly new.
		target, err := os.Readlink(filepath.Join(dir, dataLink))
		must(t, err)
		data := visible(t, filepath.Join(dir, target))
		if !maps.Equal(data, contents(older)) && !maps.Equal(data, contents(newer)) {
			t.Fatalf("killed before step %d: content is a mixture: %q", n, data)
		}
		// A killed write may be killed again, and another agent goes on with the same or with the
		// old content.
		for _, next := range []payload{newer, older} {
			writeKilled(w, next, n/2)
			_, err = w.write(next, nil)
			must(t, err)
			checkHolds(t, dir, next)
		}
		if !wasKilled {
			if n < 8 {
				t.Fatalf("only %d steps were tried", n)
			}
			return
		}
	}
}

func TestWriterReaderSeesOneVersion(t *testing.T) {
	dir := t.TempDir()
	w := testWriter(t, dir)
	versions := []payload{files("a", "1", "b", "1"), files("a", "2", "b", "2"), files("a", "3", "b", "3")}
	_, err := w.write(versions[0], nil)
	must(t, err)
	stop := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			target, err := filepath.EvalSymlinks(filepath.Join(dir, dataLink))
			if err != nil {
				continue // the version went away between the two steps of EvalSymlinks
			}
			a, errA := os.ReadFile(filepath.Join(target, "a"))
			b, errB := os.ReadFile(filepath.Join(target, "b"))
			if errA == nil && errB == nil && string(a) != string(b) {
				t.Errorf("read a mixture: a = %q, b = %q", a, b)
				return
			}
			if _, err := os.Readlink(filepath.Join(dir, dataLink)); err != nil {
				t.Errorf("the link was away: %v", err)
				return
			}
		}
	})
	for i := range 300 {
		_, err := w.write(versions[i%3], nil)
		must(t, err)
	}
	close(stop)
	reader.Wait()
}

func TestWriterFullDisk(t *testing.T) {
	needRoot(t)
	dir := mountDir(t)
	mustMount(t, "tmpfs", dir, "tmpfs", "size=64k")
	w := testWriter(t, dir)
	older := files("a", "1")
	_, err := w.write(older, nil)
	must(t, err)
	_, err = w.write(files("a", "2", "big", strings.Repeat("x", 1<<20)), nil)
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatalf("error = %v, want no space left", err)
	}
	checkHolds(t, dir, older)
	newer := files("a", "3")
	_, err = w.write(newer, nil)
	must(t, err)
	checkHolds(t, dir, newer)
}

func TestWriterIgnoresForeignNames(t *testing.T) {
	outside := t.TempDir()
	write(t, filepath.Join(outside, "precious"), "x")
	for name, prepare := range map[string]func(dir string) error{
		"data link leads out": func(dir string) error { return os.Symlink(outside, filepath.Join(dir, dataLink)) },
		"data link climbs out": func(dir string) error {
			return os.Symlink("../"+filepath.Base(outside), filepath.Join(dir, dataLink))
		},
		"data link is a directory": func(dir string) error {
			return os.MkdirAll(filepath.Join(dir, dataLink, "sub"), 0o755)
		},
		"data link is a loop": func(dir string) error {
			return os.Symlink(dataLink, filepath.Join(dir, dataLink))
		},
		"data link dangles": func(dir string) error {
			return os.Symlink("..gone", filepath.Join(dir, dataLink))
		},
		"hidden link leads out": func(dir string) error { return os.Symlink(outside, filepath.Join(dir, "..2020")) },
		"content directory is a link": func(dir string) error {
			return errors.Join(os.Symlink(outside, filepath.Join(dir, "..2020")),
				os.Symlink("..2020", filepath.Join(dir, dataLink)))
		},
		"temporary link left": func(dir string) error {
			return os.Symlink("..2020", filepath.Join(dir, newDataLink))
		},
		"user name is a file": func(dir string) error {
			return os.WriteFile(filepath.Join(dir, "a"), []byte("x"), 0o644)
		},
		"user name leads out": func(dir string) error {
			return os.Symlink(outside+"/precious", filepath.Join(dir, "a"))
		},
		"user name is a directory": func(dir string) error { return os.Mkdir(filepath.Join(dir, "a"), 0o755) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			must(t, prepare(dir))
			want := files("a", "1")
			_, err := testWriter(t, dir).write(want, nil)
			must(t, err)
			checkHolds(t, dir, want)
			if got := read(t, outside, "precious"); got != "x" {
				t.Errorf("the file outside was changed to %q", got)
			}
		})
	}
}

func TestWriterModesAndGroup(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	w := testWriter(t, dir)
	group := int64(4321)
	w.group = &group
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	_, err := w.write(payload{"d/secret": {data: []byte("x"), mode: 0o400}, "wide": {data: []byte("y"), mode: 0o777}},
		nil)
	must(t, err)
	for name, want := range map[string]fs.FileMode{
		"d":        fs.ModeDir | fs.ModeSetgid | 0o755,
		"d/secret": 0o440,
		"wide":     0o777,
	} {
		info, err := os.Stat(filepath.Join(dir, name))
		must(t, err)
		if info.Mode() != want {
			t.Errorf("mode of %s = %v, want %v", name, info.Mode(), want)
		}
		var stat unix.Stat_t
		must(t, unix.Stat(filepath.Join(dir, name), &stat))
		if stat.Gid != 4321 || stat.Uid != 0 {
			t.Errorf("owner of %s = %d:%d, want 0:4321", name, stat.Uid, stat.Gid)
		}
	}
}

func TestWriterKeepsMountPointDirs(t *testing.T) {
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "mnt", "deep"), 0o755))
	w := testWriter(t, dir)
	for _, version := range []payload{files("d/a", "1"), files("d/a", "2")} {
		_, err := w.write(version, []string{"d/mnt/x"})
		must(t, err)
		for _, want := range []string{"mnt/deep", "d/mnt/x"} {
			if info, err := os.Stat(filepath.Join(dir, want)); err != nil || !info.IsDir() {
				t.Errorf("mount point %s is gone: %v", want, err)
			}
		}
		if changed, err := w.write(version, []string{"d/mnt/x"}); changed || err != nil {
			t.Errorf("equal content was written again (error %v)", err)
		}
	}
}
