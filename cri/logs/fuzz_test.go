package logs

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/utils/ptr"
)

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

// naive returns what reading a text must give, and uses any amount of memory. Pieces of lines are
// size bytes long.
func naive(text []byte, tail, size int) string {
	var lines [][]byte
	for line := range bytes.Lines(text) {
		lines = append(lines, line)
	}
	whole := len(lines)
	if whole > 0 && lines[whole-1][len(lines[whole-1])-1] != '\n' {
		whole--
	}
	if tail >= 0 {
		lines = lines[max(0, whole-tail):]
	}
	var out strings.Builder
	for _, line := range lines {
		if tail == 0 {
			break
		}
		if _, _, err := parse(line[:min(len(line), size)]); err != nil {
			continue
		}
		h, content, _ := parse(line)
		if h.partial {
			content = bytes.TrimSuffix(content, []byte("\n"))
		}
		out.Write(content)
		tail--
	}
	return out.String()
}

// FuzzReader reads arbitrary files. Nothing panics or fails, and the output is the same as that of
// a reader without limits, for every size of pieces.
func FuzzReader(f *testing.F) {
	f.Add([]byte(stamp(0)+" stdout F one\n"+stamp(1)+" stderr P two\n"+stamp(2)+" stdout F three"), 2)
	f.Add([]byte(stamp(0)+" stdout P:x "+strings.Repeat("long ", 100)+"\n\n\n"+stamp(1)+" stdout F \n"), -1)
	f.Add([]byte("2026-01-02T03:04:05Z stdout F"), 1)
	f.Add([]byte("\x00\xff \n stdout F \n{\"log\":\"x\"}\n"), 0)
	f.Add(bytes.Repeat([]byte("2026-01-02T03:04:05.123456789+14:00 stderr P \n"), 50), 49)
	f.Add(bytes.Repeat([]byte("\n"), 300), 299)
	f.Fuzz(func(t *testing.T, text []byte, tail int) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "0.log"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, size := range []int{64, 100, pieceSize} {
			var out bytes.Buffer
			r, err := newReader(Output{&out, &out}, File{Root: dir, Path: "0.log"}, Options{Tail: ptr.To(int64(tail))},
				Deps{Log: discard()})
			if err != nil {
				t.Fatal(err)
			}
			r.scan.buf = make([]byte, size)
			err = r.run(t.Context())
			r.close()
			if want := naive(text, tail, size); err != nil || out.String() != want {
				t.Fatalf("pieces of %d: got %q, %v, want %q", size, out.String(), err, want)
			}
		}
	})
}

func FuzzTail(f *testing.F) {
	f.Add([]byte("a\nb\nc"), int64(1))
	f.Fuzz(func(t *testing.T, text []byte, n int64) {
		n &= 0xff
		got, _, err := tailOffset(bytes.NewReader(text), int64(len(text)), n)
		want := len(text) - len(text[bytes.LastIndexByte(text, '\n')+1:])
		for range n {
			if want == 0 {
				break
			}
			want = bytes.LastIndexByte(text[:want-1], '\n') + 1
		}
		if err != nil || got != int64(want) {
			t.Errorf("tail of %d lines of %q begins at %d (%v), want %d", n, text, got, err, want)
		}
	})
}

func TestTailOverManyBlocks(t *testing.T) {
	text := []byte(strings.Repeat(strings.Repeat("x", 999)+"\n", 1000))
	for _, n := range []int64{0, 1, 65, 66, 67, 500, 999, 1000, 1001} {
		got, _, err := tailOffset(bytes.NewReader(text), int64(len(text)), n)
		if want := max(0, 1000-n) * 1000; err != nil || got != want {
			t.Errorf("tail of %d lines begins at %d (%v), want %d", n, got, err, want)
		}
	}
}
