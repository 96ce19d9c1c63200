package tarball

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestThereAndBack(t *testing.T) {
	from, to := t.TempDir(), t.TempDir()
	if err := errors.Join(os.MkdirAll(filepath.Join(from, "src/sub/empty"), 0o755),
		os.WriteFile(filepath.Join(from, "src/run"), []byte("#!"), 0o755),
		os.WriteFile(filepath.Join(from, "src/sub/secret"), nil, 0o600),
		os.Symlink("/etc/passwd", filepath.Join(from, "src/link"))); err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	if err := Pack(&archive, filepath.Join(from, "src"), "src", func(string, string) {}); err != nil {
		t.Fatal(err)
	}
	var skipped []string
	n, err := Unpack(&archive, to, Options{
		Base:    "src",
		As:      "dst",
		Skipped: func(name, what string) { skipped = append(skipped, name+": "+what) },
	})
	if n != 5 || err != nil || !slices.Equal(skipped, []string{"src/link: a symbolic link to /etc/passwd"}) {
		t.Errorf("%d entries, %v, without %q", n, err, skipped)
	}
	for name, mode := range map[string]os.FileMode{
		"dst/run":        0o755,
		"dst/sub/secret": 0o600,
		"dst/sub/empty":  os.ModeDir | 0o755,
	} {
		if info, err := os.Stat(filepath.Join(to, name)); err != nil || info.Mode() != mode {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
}

// Thousands of hard links keep no more files open than one.
func TestHardLinksAreClosed(t *testing.T) {
	open := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	headers := []tar.Header{{Name: "src/a", Typeflag: tar.TypeReg}}
	for i := range 100 {
		headers = append(headers, tar.Header{Name: fmt.Sprint("src/", i), Linkname: "src/a", Typeflag: tar.TypeLink})
	}
	for _, h := range append(headers, tar.Header{Name: "src/z", Linkname: "a", Typeflag: tar.TypeSymlink}) {
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	before, during := open(), 0
	n, err := Unpack(&archive, t.TempDir(), Options{
		Base: "src", As: "dst",
		Skipped: func(string, string) { during = open() },
	})
	if n != 101 || err != nil || during > before+10 {
		t.Errorf("%d entries, %v; %d files open before, %d after the links", n, err, before, during)
	}
}

// A hard link becomes a link to the file before it in the archive, which takes no room of its own.
// A link to any other file reads nothing.
func TestHardLinks(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "mine"), []byte("mine"), 0o600),
		os.Mkdir(filepath.Join(dir, "dst"), 0o755),
		os.WriteFile(filepath.Join(dir, "dst", "c"), []byte("of an earlier copy"), 0o600)); err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, h := range []tar.Header{
		{Name: "src/a", Size: 3, Typeflag: tar.TypeReg},
		{Name: "src/b", Linkname: "src/a", Typeflag: tar.TypeLink},
		{Name: "src/c", Linkname: "src/b", Typeflag: tar.TypeLink},
		{Name: "src/d", Linkname: "src/later", Typeflag: tar.TypeLink},
		{Name: "src/a", Linkname: "src/a", Typeflag: tar.TypeLink},
		{Name: "src/e", Linkname: "src/../mine", Typeflag: tar.TypeLink},
	} {
		h.Mode = 0o640
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			if _, err := w.Write([]byte("abc")); err != nil {
				t.Fatal(err)
			}
		}
	}
	w.Close()
	var skipped []string
	n, err := Unpack(&archive, dir, Options{
		Base:    "src",
		As:      "dst",
		Skipped: func(name, _ string) { skipped = append(skipped, name) },
	})
	if n != 3 || err != nil || !slices.Equal(skipped, []string{"src/d", "src/a", "src/e"}) {
		t.Errorf("%d entries, %v, without %q", n, err, skipped)
	}
	first, err := os.Stat(filepath.Join(dir, "dst", "a"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c"} {
		file := filepath.Join(dir, "dst", name)
		if text, err := os.ReadFile(file); string(text) != "abc" {
			t.Errorf("%s: %q, %v", name, text, err)
		}
		if info, err := os.Stat(file); err != nil || !os.SameFile(first, info) {
			t.Errorf("%s is a file of its own: %v, %v", name, info, err)
		}
	}
}

// An archive of a hostile container writes nothing outside its target.
func TestUnpackHostile(t *testing.T) {
	for name, c := range map[string]struct {
		entries []tar.Header
		refused string
	}{
		"beside":        {[]tar.Header{{Name: "other", Typeflag: tar.TypeReg}}, "not below"},
		"above":         {[]tar.Header{{Name: "src/../../x", Typeflag: tar.TypeReg}}, "not below"},
		"absolute":      {[]tar.Header{{Name: "/etc/x", Typeflag: tar.TypeReg}}, "not below"},
		"like the base": {[]tar.Header{{Name: "srcx", Typeflag: tar.TypeReg}}, "not below"},
		"through a new link": {
			[]tar.Header{
				{Name: "src/l", Linkname: "/", Typeflag: tar.TypeSymlink}, {Name: "src/l/x", Typeflag: tar.TypeReg},
			}, "",
		},
		"through a link": {[]tar.Header{{Name: "src/out/x", Typeflag: tar.TypeReg}}, "out"},
		"a hard link":    {[]tar.Header{{Name: "src/h", Linkname: "/etc/passwd", Typeflag: tar.TypeLink}}, ""},
		"a device":       {[]tar.Header{{Name: "src/d", Typeflag: tar.TypeChar}}, ""},
		"no archive":     {nil, "read the archive"},
	} {
		t.Run(name, func(t *testing.T) {
			top := t.TempDir()
			dir, outside := filepath.Join(top, "dir"), filepath.Join(top, "outside")
			if err := errors.Join(os.MkdirAll(filepath.Join(dir, "src"), 0o755), os.Mkdir(outside, 0o755),
				os.Symlink(outside, filepath.Join(dir, "src", "out"))); err != nil {
				t.Fatal(err)
			}
			var archive bytes.Buffer
			w := tar.NewWriter(&archive)
			for _, h := range c.entries {
				h.Mode = 0o644
				if err := w.WriteHeader(&h); err != nil {
					t.Fatal(err)
				}
			}
			w.Close()
			if c.entries == nil {
				archive.Reset()
				archive.WriteString(strings.Repeat("no archive", 100))
			}
			_, err := Unpack(&archive, dir, Options{Base: "src", As: "src", Skipped: func(string, string) {}})
			if c.refused == "" && err != nil ||
				c.refused != "" && (err == nil || !strings.Contains(err.Error(), c.refused)) {
				t.Errorf("error %v, want %q", err, c.refused)
			}
			if left, _ := os.ReadDir(outside); len(left) > 0 {
				t.Errorf("written outside: %v", left)
			}
			if left, _ := os.ReadDir(top); len(left) != 2 {
				t.Errorf("written above: %v", left)
			}
		})
	}
}

// Of an archive of a whole root, too, nothing is written beside the target, which is not there yet.
func TestUnpackHostileRoot(t *testing.T) {
	for _, name := range []string{"../x", "a/../../x", "/../x", "..", "../../x"} {
		var archive bytes.Buffer
		w := tar.NewWriter(&archive)
		if err := w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644}); err != nil {
			t.Fatal(err)
		}
		w.Close()
		dir := t.TempDir()
		_, err := Unpack(&archive, dir, Options{Base: ".", As: "dst", Skipped: func(string, string) {}})
		if err == nil || !strings.Contains(err.Error(), "not below") {
			t.Errorf("%s: error %v", name, err)
		}
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("%s: written beside: %v", name, left)
		}
	}
}

// A file of some bytes that claims to have megabytes of holes does not take them of the disk.
func TestUnpackHoles(t *testing.T) {
	var records strings.Builder
	for _, r := range []string{
		"22 GNU.sparse.major=0\n", "22 GNU.sparse.minor=1\n", "26 GNU.sparse.numblocks=0\n", "27 GNU.sparse.size=8388608\n",
	} {
		records.WriteString(r)
	}
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, h := range []tar.Header{
		{Name: "PaxHeaders/big", Size: int64(records.Len()), Typeflag: tar.TypeReg, Format: tar.FormatUSTAR},
		{Name: "src/big", Typeflag: tar.TypeReg, Mode: 0o644, Format: tar.FormatUSTAR},
		{Name: "src/small", Typeflag: tar.TypeReg, Mode: 0o644, Format: tar.FormatUSTAR},
	} {
		err := w.WriteHeader(&h)
		if err == nil && h.Size > 0 {
			_, err = w.Write([]byte(records.String()))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	w.Close()
	// the writer makes no such headers: the first file becomes one
	block := archive.Bytes()[:512]
	block[156] = tar.TypeXHeader
	copy(block[148:156], "        ")
	sum := 0
	for _, b := range block {
		sum += int(b)
	}
	copy(block[148:156], fmt.Sprintf("%06o\x00 ", sum))

	dir := t.TempDir()
	var skipped []string
	n, err := Unpack(&archive, dir, Options{
		Base: "src", As: "src",
		Skipped: func(name, what string) { skipped = append(skipped, name+": "+what) },
	})
	if n != 1 || err != nil || len(skipped) != 1 || !strings.HasPrefix(skipped[0], "src/big: a file with holes") {
		t.Errorf("%d entries, %v, without %q", n, err, skipped)
	}
	if info, err := os.Stat(filepath.Join(dir, "src", "big")); err == nil {
		t.Errorf("the file was unpacked with %d bytes", info.Size())
	}
}

// swapper is where an archive goes. It swaps files when the header of one has come.
type swapper struct {
	bytes.Buffer
	header string
	swap   func()
}

func (s *swapper) Write(p []byte) (int, error) {
	if s.swap != nil && bytes.Contains(p, []byte(s.header)) {
		s.swap()
		s.swap = nil
	}
	return s.Buffer.Write(p)
}

// Nothing outside of the copied directory is read, though somebody puts links into the place of
// files and directories while it is read.
func TestPackOfAHostileDirectory(t *testing.T) {
	for header, swapped := range map[string]string{"src/sub/file": "sub/file", "src/sub/": "sub"} {
		dir, outside := t.TempDir(), t.TempDir()
		if err := errors.Join(os.Mkdir(filepath.Join(dir, "sub"), 0o755),
			os.WriteFile(filepath.Join(dir, "sub", "file"), []byte("harmless"), 0o600),
			os.WriteFile(filepath.Join(outside, "file"), []byte("a secret"), 0o600)); err != nil {
			t.Fatal(err)
		}
		target := outside
		if swapped != "sub" {
			target = filepath.Join(outside, "file")
		}
		out := &swapper{header: header, swap: func() {
			path := filepath.Join(dir, swapped)
			if err := errors.Join(os.RemoveAll(path), os.Symlink(target, path)); err != nil {
				t.Error(err)
			}
		}}
		err := Pack(out, dir, "src", func(string, string) {})
		if out.swap != nil {
			t.Fatal("nothing was swapped")
		}
		if err == nil || strings.Contains(out.String(), "secret") {
			t.Errorf("%s: it was packed (error %v)", swapped, err)
		}
	}
}
