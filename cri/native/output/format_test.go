package output

import (
	"strings"
	"testing"
	"time"
)

// stamp is the time of the lines of a test, and stamped how a log has it.
var stamp = time.Date(2026, 1, 2, 4, 4, 5, 6, time.FixedZone("CET", 3600))

const stamped = "2026-01-02T03:04:05.000000006Z "

func TestFormat(t *testing.T) {
	long := strings.Repeat("x", maxLine)
	for name, c := range map[string]struct {
		data  string
		final bool
		want  string
		used  int
	}{
		"lines":          {"a\nb\n", false, "stdout F a\nstdout F b\n", 4},
		"empty lines":    {"\n\n", false, "stdout F \nstdout F \n", 2},
		"a beginning":    {"a\nbc", false, "stdout F a\n", 2},
		"no end":         {"a\nbc", true, "stdout F a\nstdout F bc\n", 4},
		"just fitting":   {long + "\n", false, "stdout F " + long + "\n", maxLine + 1},
		"one more":       {long + "y\n", false, "stdout P " + long + "\nstdout F y\n", maxLine + 2},
		"long beginning": {long + "y", false, "stdout P " + long + "\n", maxLine},
		"very long":      {long + long + "\n", false, "stdout P " + long + "\nstdout F " + long + "\n", 2*maxLine + 1},
		"nothing":        {"", true, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			lines, used := format([]byte(c.data), Stdout, stamp, c.final)
			if got := strings.ReplaceAll(string(lines), stamped, ""); got != c.want || used != c.used {
				t.Errorf("got %q and %d, want %q and %d", got, used, c.want, c.used)
			}
			again, same := format([]byte(c.data[:used]), Stdout, stamp, c.final)
			if string(again) != string(lines) || same != used {
				t.Errorf("the same bytes make %q and %d, then %q and %d", lines, used, again, same)
			}
		})
	}
}
