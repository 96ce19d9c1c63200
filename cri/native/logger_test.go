package native

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func newLog(t *testing.T) (*logger, string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "main", "0.log")
	l, err := openLogger(path)
	if err != nil {
		t.Fatal(err)
	}
	l.now = func() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC) }
	return l, path
}

func content(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(data), "2026-01-02T03:04:05.000000006Z ", "")
}

func TestLog(t *testing.T) {
	long := strings.Repeat("x", maxLogLine)
	for name, c := range map[string]struct {
		writes [][2]string
		tag    string
		want   string
	}{
		"lines":       {[][2]string{{"stdout", "a\nb\n"}}, fullTag, "stdout F a\nstdout F b\n"},
		"empty lines": {[][2]string{{"stdout", "\n\n"}}, fullTag, "stdout F \nstdout F \n"},
		"in parts":    {[][2]string{{"stdout", "a"}, {"stdout", "b\nc"}}, fullTag, "stdout F ab\nstdout F c\n"},
		"two streams": {
			[][2]string{{"stdout", "a"}, {"stderr", "b\n"}, {"stdout", "c\n"}}, fullTag, "stderr F b\nstdout F ac\n",
		},
		"no end":       {[][2]string{{"stderr", "a"}}, fullTag, "stderr F a\n"},
		"to go on":     {[][2]string{{"stderr", "a"}}, partialTag, "stderr P a\n"},
		"just fitting": {[][2]string{{"stdout", long + "\n"}}, fullTag, "stdout F " + long + "\n"},
		"one more":     {[][2]string{{"stdout", long + "y\n"}}, fullTag, "stdout P " + long + "\nstdout F y\n"},
		"very long": {
			[][2]string{{"stdout", long}, {"stdout", long}, {"stdout", "\n"}},
			fullTag,
			"stdout P " + long + "\nstdout P " + long + "\nstdout F \n",
		},
		"nothing": {nil, fullTag, ""},
	} {
		t.Run(name, func(t *testing.T) {
			l, path := newLog(t)
			for _, w := range c.writes {
				l.write(w[0], []byte(w[1]))
			}
			l.close(c.tag)
			l.close(c.tag)
			l.write("stdout", []byte("late\n"))
			if got := content(t, path); got != c.want {
				t.Errorf("the log is %.200q, want %.200q", got, c.want)
			}
		})
	}
}

// The writer keeps nothing of the caller's buffer.
func TestLogKeepsNoBuffer(t *testing.T) {
	l, path := newLog(t)
	buffer := []byte("abc")
	l.write("stdout", buffer)
	copy(buffer, "xyz")
	l.write("stdout", []byte("\n"))
	l.close(fullTag)
	if got := content(t, path); got != "stdout F abc\n" {
		t.Errorf("the log is %q", got)
	}
}

func TestReopenLog(t *testing.T) {
	l, path := newLog(t)
	l.write("stdout", []byte("old\nhalf "))
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	l.write("stdout", []byte("a line\n"))
	if err := l.reopen(); err != nil {
		t.Fatal(err)
	}
	l.write("stdout", []byte("new\n"))
	l.close(fullTag)
	if old, current := content(t, path+".1"), content(t, path); old != "stdout F old\nstdout F half a line\n" ||
		current != "stdout F new\n" {
		t.Errorf("the logs are %q and %q", old, current)
	}
	if err := l.reopen(); err == nil {
		t.Error("a complete log was opened again")
	}
}

func TestNobodyWantsTheLog(t *testing.T) {
	l, err := openLogger("")
	if err != nil {
		t.Fatal(err)
	}
	l.write("stdout", []byte("a\n"))
	if err := l.reopen(); err != nil {
		t.Error(err)
	}
	l.close(fullTag)
}
