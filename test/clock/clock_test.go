//go:build integration

package clock

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"
)

// childVariable makes the test's program print the time.
const childVariable = "BERTH_TEST_TELL_TIME"

// reported is what a child reports about the time.
type reported struct {
	Wall    time.Time
	Elapsed time.Duration // by the monotonic clock
}

func TestMain(m *testing.M) {
	if os.Getenv(childVariable) == "" {
		os.Exit(m.Run())
	}
	began := time.Now()
	go func() { // many threads read the clock at once
		for range runtime.NumCPU() + 1 {
			go func() {
				for {
					_ = time.Now()
				}
			}()
		}
	}()
	for in := bufio.NewReader(os.Stdin); ; {
		if _, err := in.ReadString('\n'); err != nil {
			return
		}
		_ = json.NewEncoder(os.Stdout).Encode(reported{time.Now(), time.Since(began)})
	}
}

// TestMove checks that a process sees another time, while its monotonic clock and all other
// processes go on as before.
func TestMove(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("only amd64 is known")
	}
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), childVariable+"=1")
	in, _ := child.StdinPipe()
	out, _ := child.StdoutPipe()
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer child.Wait()
	defer in.Close()
	answers := json.NewDecoder(out)
	ask := func() (answer reported, from, until time.Time) {
		t.Helper()
		from = time.Now()
		if _, err := io.WriteString(in, "\n"); err != nil {
			t.Fatal(err)
		}
		if err := answers.Decode(&answer); err != nil {
			t.Fatal(err)
		}
		return answer, from, time.Now()
	}
	before, began, _ := ask()
	for _, d := range []time.Duration{0, time.Hour, -time.Hour, 24 * 366 * time.Hour, 0} {
		if err := Move(child.Process.Pid, d); err != nil {
			t.Fatal(err)
		}
		answer, from, until := ask()
		if at := answer.Wall.Add(-d); at.Before(from.Round(0)) || at.After(until.Round(0)) {
			t.Errorf("moved by %s it is %s to the child, not %s later than %s to %s", d, answer.Wall, d, from, until)
		}
		if passed := answer.Elapsed - before.Elapsed; passed < 0 || passed > until.Sub(began) {
			t.Errorf("moved by %s the child has counted %s, in %s", d, passed, until.Sub(began))
		}
	}
	if err := Move(child.Process.Pid+1<<22, 0); err == nil {
		t.Error("no error for a process that is not there")
	}
}

// TestMoveOfAnEndedProcess: a process that has ended, and that nobody has waited for, has no clock.
func TestMoveOfAnEndedProcess(t *testing.T) {
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^$")
	child.Env = os.Environ()
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer child.Wait()
	if _, err := io.Copy(io.Discard, out); err != nil { // to its end
		t.Fatal(err)
	}
	for {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", child.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(stat, []byte(") Z ")) {
			break
		}
	}
	if err := Move(child.Process.Pid, 0); !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("the clock of a process that has ended: %v", err)
	}
}
