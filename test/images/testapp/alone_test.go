package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// testappVariable makes the test's program testapp itself.
const testappVariable = "TESTAPP"

func TestMain(m *testing.M) {
	if os.Getenv(testappVariable) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// An instance finds out about another one that runs, and about none that has ended, even if it was
// killed.
func TestAlone(t *testing.T) {
	dir := t.TempDir()
	trace := filepath.Join(dir, "trace")
	start := func(text string) *exec.Cmd {
		t.Helper()
		cmd := exec.Command(os.Args[0], "alone", filepath.Join(dir, "lock"), trace, text, "sleep", "1000")
		cmd.Env = append(os.Environ(), testappVariable+"=1")
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for !strings.Contains(read(trace), "start "+text+"\n") {
			time.Sleep(time.Millisecond)
		}
		return cmd
	}
	kill := func(cmd *exec.Cmd) {
		t.Helper()
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // it says that it was killed
	}
	kill(start("a"))
	b := start("b")
	c := start("c")
	kill(b)
	kill(c)
	kill(start("d"))
	const want = "start a\nstart b\noverlap c while b runs\nstart c\nstart d\n"
	if got := read(trace); got != want {
		t.Errorf("the trace is\n%swant\n%s", got, want)
	}
}

func read(file string) string {
	b, _ := os.ReadFile(file)
	return string(b)
}
