//go:build integration

package integration

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/test/env"
)

var logName = regexp.MustCompile(`^\d+\.log(\.\d{8}-\d{6}(\.gz)?)?$`)

// logDir returns the directory of the logs of a pod's only container.
func logDir(t *testing.T, a *env.Agent, name string) string {
	t.Helper()
	p := podOf(t, a, name)
	return filepath.Join(a.LogsDir, p.Namespace+"_"+p.Name+"_"+string(p.UID), "main")
}

// du returns the names and the size of what is in a directory.
func du(t *testing.T, dir string) (names []string, size int64) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
		if info, err := e.Info(); err == nil { // otherwise it was removed meanwhile
			size += info.Size()
		}
	}
	return names, size
}

// numbers reads the numbers at the beginning of the lines. It fails unless each number is one more
// than the number before.
func numbers(t *testing.T, r io.Reader) (first, last int) {
	t.Helper()
	in := bufio.NewScanner(r)
	for in.Scan() {
		digits, _, _ := strings.Cut(in.Text(), " ")
		n, err := strconv.Atoi(digits)
		if err != nil {
			t.Fatalf("line %.40q after %d: %v", in.Text(), last, err)
		}
		if last != 0 && n != last+1 {
			t.Fatalf("line %d comes after line %d", n, last)
		}
		if first == 0 {
			first = n
		}
		last = n
	}
	if err := in.Err(); err != nil {
		t.Fatal(err)
	}
	return first, last
}

// logLines returns the first and the last number in what berth logs prints.
func logLines(t *testing.T, a *env.Agent, args ...string) (first, last int) {
	t.Helper()
	out, errOut, code := a.CLI(append([]string{"logs"}, args...)...)
	if code != 0 {
		t.Fatalf("logs %v ends with %d: %s", args, code, errOut)
	}
	return numbers(t, strings.NewReader(out))
}

// TestLogFloodStaysUnderItsCap checks that the logs of a container that writes 50 MB/s stay under
// their limit all the time, and keep the last lines.
func TestLogFloodStaysUnderItsCap(t *testing.T) {
	e := env.Containerd(t, env.Options{})
	a := e.StartAgent(t, env.AgentOptions{})
	a.WaitUp(t)
	const limit = 100 << 20 // twice 5 files of 10 MiB, the default
	put(t, a, "flood", `
terminationGracePeriodSeconds: 1
containers:
  - {name: main, image: "berth.local/web:v1", args: [flood, "50000000", "200"]}
`)
	a.WaitReady(t, "flood")
	dir := logDir(t, a, "flood")
	const parts = 12 // each of at least 10 MiB: more than the limit
	most, began, rotated := int64(0), time.Now(), map[string]bool{}
	for len(rotated) < parts || time.Since(began) < 12*time.Second {
		if time.Since(began) > 15*time.Minute {
			t.Fatalf("its log was rotated %d times only", len(rotated))
		}
		names, size := du(t, dir)
		most = max(most, size)
		for _, name := range names {
			if !logName.MatchString(name) && !strings.HasSuffix(name, ".tmp") {
				t.Errorf("odd name %s", name)
			}
			if part := strings.TrimSuffix(strings.TrimSuffix(name, ".tmp"), ".gz"); part != "0.log" {
				rotated[part] = true
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	took := time.Since(began)
	_, last := logLines(t, a, "flood", "--tail", "1000")
	t.Logf("it wrote %.1f MB/s; its logs took at most %.1f MB of %d", float64(last)*200/took.Seconds()/1e6,
		float64(most)/1e6, limit/1000000)
	if most > limit {
		t.Errorf("its logs took %d bytes, more than %d", most, limit)
	}
	if last*200 < limit {
		t.Errorf("it wrote only %d lines, and its log was rotated %d times", last, len(rotated))
	}
	names, _ := du(t, dir)
	if len(names) < 3 {
		t.Errorf("there are only %v", names)
	}
	removed(t, e, a, "flood")
}

// TestLogsOverRotations checks that a follower gets every line once over many rotations, and that
// rotated and compressed files can be read again, also from the end.
func TestLogsOverRotations(t *testing.T) {
	t.Parallel()
	e := env.Containerd(t, env.Options{})
	a := e.StartAgent(t, env.AgentOptions{Kubelet: "containerLogMaxSize: 100Ki\ncontainerLogMaxFiles: 40\n"})
	a.WaitUp(t)
	// Lines have 64 bytes, which divide the size of every buffer between writer and log. A line
	// that is split because its log is reopened would count as two.
	const lines = 20000
	put(t, a, "talk", fmt.Sprintf(`
restartPolicy: Never
terminationGracePeriodSeconds: 1
containers:
  - {name: main, image: "berth.local/web:v1", args: [flood, "200000", "64", "%d"]}
`, lines))
	a.WaitReady(t, "talk")
	follower := begin(t, a, nil, "logs", "-f", "talk")
	follower.waitOut(t, fmt.Sprintf("%010d", lines))
	dir := logDir(t, a, "talk")
	env.Eventually(t, "all parts but the newest to be compressed", func() error {
		names, _ := du(t, dir)
		if n := len(slices.DeleteFunc(names, func(n string) bool { return strings.HasSuffix(n, ".gz") })); n != 2 {
			return fmt.Errorf("there are %v", names)
		}
		return nil
	})
	names, _ := du(t, dir)
	if len(names) < 8 {
		t.Errorf("there are only %v", names)
	}
	t.Logf("%d parts", len(names)-1)
	for _, c := range []struct {
		args        []string
		first, last int
	}{
		{nil, 1, lines},
		{[]string{"--tail", "15000"}, lines - 14999, lines},
		{[]string{"--tail", "1"}, lines, lines},
		{[]string{"--since", "1h"}, 1, lines},
		{[]string{"--limit-bytes", "6400"}, 1, 100},
	} {
		if first, last := logLines(t, a, append([]string{"talk"}, c.args...)...); first != c.first || last != c.last {
			t.Errorf("logs %v prints lines %d to %d, want %d to %d", c.args, first, last, c.first, c.last)
		}
	}
	follower.interrupt(t)
	if first, last := numbers(t, strings.NewReader(follower.out.String())); first != 1 || last != lines {
		t.Errorf("the follower saw lines %d to %d of %d", first, last, lines)
	}
	removed(t, e, a, "talk")
}

// TestLogsOverRestarts checks that a follower goes on with the next instance, that the log of the
// previous instance can be read, and that the logs of a container that crashes in a loop stay
// bounded.
func TestLogsOverRestarts(t *testing.T) {
	t.Parallel()
	e := env.Containerd(t, env.Options{})
	a := e.StartAgent(t, env.AgentOptions{
		Kubelet: "crashLoopBackOff: {maxContainerRestartPeriod: 1s}\n" +
			"featureGates: {KubeletCrashLoopBackOffMax: true}\n",
		Berth: "logs: {maxContainerSize: 300Ki}\n",
	})
	a.WaitUp(t)
	put(t, a, "loop", `
terminationGracePeriodSeconds: 1
containers:
  - name: main
    image: berth.local/busybox:v1
    command: [sh, -c, 'echo begin $$; yes 0123456789012345678901234567890123456789 | head -n 2000; sleep 1; echo end; exit 1']
`)
	waitPod(t, a, "loop", "running", phase(corev1.PodRunning))
	follower := begin(t, a, nil, "logs", "-f", "loop")
	env.Eventually(t, "five instances to be followed", func() error {
		if n := strings.Count(follower.out.String(), "begin"); n < 5 {
			return fmt.Errorf("%d instances", n)
		}
		return nil
	})
	follower.interrupt(t)
	for i, text := range strings.Split(follower.out.String(), "begin")[1:5] {
		if strings.Count(text, "\n") != 2002 || !strings.HasSuffix(text, "end\n") {
			t.Errorf("of instance %d %d lines were seen", i, strings.Count(text, "\n"))
		}
	}
	// The instance that is the previous one may be removed before its log is read.
	env.Eventually(t, "the previous instance's log", func() error {
		out, errOut, code := a.CLI("logs", "-p", "loop")
		if code != 0 || !strings.HasSuffix(out, "end\n") {
			return fmt.Errorf("%d %q, ends %q", code, errOut, out[max(0, len(out)-20):])
		}
		return nil
	})
	// while the container writes more logs
	env.Eventually(t, "its logs to be within their bounds", func() error {
		if names, size := du(t, logDir(t, a, "loop")); size > 400<<10 {
			return fmt.Errorf("they take %d bytes: %v", size, names)
		}
		return nil
	})
	removed(t, e, a, "loop")
}

// TestLogRotationSurvivesKills kills the agent during rotations again and again. No line is lost,
// and no unfinished file is left.
func TestLogRotationSurvivesKills(t *testing.T) {
	t.Parallel()
	e := env.Containerd(t, env.Options{})
	a := e.StartAgent(t, env.AgentOptions{Kubelet: "containerLogMaxSize: 50Ki\ncontainerLogMaxFiles: 100000\n"})
	a.WaitUp(t)
	put(t, a, "talk", `
terminationGracePeriodSeconds: 1
containers:
  - {name: main, image: "berth.local/web:v1", args: [flood, "400000", "100"]}
`)
	a.WaitReady(t, "talk")
	dir := logDir(t, a, "talk")
	const kills = 6
	for range kills {
		seen, _ := du(t, dir)
		env.Eventually(t, "some rotations", func() error {
			if names, _ := du(t, dir); len(names) < len(seen)+3 {
				return fmt.Errorf("there are %d files", len(names))
			}
			return nil
		})
		a.Kill9()
		a.WaitEnded(t)
		if err := a.Start(); err != nil {
			t.Fatal(err)
		}
		a.WaitReady(t, "talk")
	}
	env.Eventually(t, "leftovers to be gone and the log to be there", func() error {
		names, _ := du(t, dir)
		if !slices.Contains(names, "0.log") {
			return fmt.Errorf("no 0.log in %v", names)
		}
		for _, name := range names {
			if strings.HasSuffix(name, ".tmp") || slices.Contains(names, name+".gz") {
				return fmt.Errorf("%s is left", name)
			}
		}
		return nil
	})
	if p := podOf(t, a, "talk"); statusOf(p, "main").RestartCount != 0 {
		t.Errorf("it was restarted: %+v", statusOf(p, "main"))
	}
	if first, last := logLines(t, a, "talk"); first != 1 || last < 1000 {
		t.Errorf("its log has lines %d to %d", first, last)
	} else {
		t.Logf("%d lines over %d kills", last, kills)
	}
	removed(t, e, a, "talk")
}
