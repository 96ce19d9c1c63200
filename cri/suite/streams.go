package suite

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func execSync(b *bench) {
	sandbox := b.sandbox()
	id := b.start(sandbox, "main", b.Commands.Wait)
	resp, err := b.Runtime.ExecSync(b.ctx, id, b.Commands.Print("to stdout", "to stderr"), patience)
	b.ok(err, "run a command")
	if string(resp.GetStdout()) != "to stdout\n" || string(resp.GetStderr()) != "to stderr\n" ||
		resp.GetExitCode() != 0 {
		b.Errorf("answer is %v, want the two lines and exit code 0", resp)
	}
	resp, err = b.Runtime.ExecSync(b.ctx, id, b.Commands.Exit(7), 0)
	b.ok(err, "run a command that fails, without a timeout")
	if resp.GetExitCode() != 7 {
		b.Errorf("exit code is %d, want 7", resp.GetExitCode())
	}
	_, err = b.Runtime.ExecSync(b.ctx, id, b.Commands.Stubborn, time.Second)
	b.is(errdefs.IsDeadlineExceeded, err, "run a command that outlives its timeout")
	if got := b.status(id).GetState(); got != runtimeapi.ContainerState_CONTAINER_RUNNING {
		b.Errorf("the container is %v after its commands, want running", got)
	}
	b.ok(b.Runtime.StopContainer(b.ctx, id, 30*time.Second), "stop container")
	if _, err = b.Runtime.ExecSync(b.ctx, id, b.Commands.Exit(0), time.Second); err == nil || errdefs.IsNotFound(err) {
		b.Errorf("run a command in an ended container: got error %v, want one that does not say that the container "+
			"is missing", err)
	}
}

// logLine is one parsed line of a container log.
type logLine struct{ stream, tag, text string }

// readLog parses a container log in the CRI's format: "<RFC 3339 time with nanoseconds> <stream>
// <tags> <text>".
func (b *bench) readLog(path string) []logLine {
	b.Helper()
	data, err := os.ReadFile(path)
	b.ok(err, "read log")
	var lines []logLine
	for raw := range bytes.Lines(data) {
		line := string(raw)
		if !strings.HasSuffix(line, "\n") {
			break // being written
		}
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4)
		if len(parts) != 4 {
			b.Fatalf("log line %q has %d fields, want 4", line, len(parts))
		}
		if _, err := time.Parse(time.RFC3339Nano, parts[0]); err != nil {
			b.Errorf("log line %q: %v", line, err)
		}
		lines = append(lines, logLine{parts[1], parts[2], parts[3]})
	}
	return lines
}

// wantLog waits until the log holds exactly these lines, in any order between the streams.
func (b *bench) wantLog(path string, want ...logLine) {
	b.Helper()
	b.eventually("the log is written", func() bool { return len(b.readLog(path)) >= len(want) })
	got := b.readLog(path)
	for _, w := range want {
		found := false
		for _, g := range got {
			found = found || g == w
		}
		if !found {
			b.Errorf("log is %v, want %v in it", got, w)
		}
	}
	if len(got) != len(want) {
		b.Errorf("log has %d lines: %v, want %d", len(got), got, len(want))
	}
}

func logs(b *bench) {
	sandbox := b.sandbox()
	id := b.start(sandbox, "main", b.Commands.Print("first out", "first err"))
	b.ended(id)
	b.wantLog(filepath.Join(sandbox.config.LogDirectory, "main.log"),
		logLine{"stdout", "F", "first out"}, logLine{"stderr", "F", "first err"})

	long := strings.Repeat("x", 20_000)
	id = b.start(sandbox, "long", b.Commands.Print(long, "short"))
	b.ended(id)
	path := filepath.Join(sandbox.config.LogDirectory, "long.log")
	b.eventually("the log is written", func() bool { return len(b.readLog(path)) >= 3 })
	var joined strings.Builder
	last := ""
	for _, line := range b.readLog(path) {
		if line.stream == "stdout" {
			joined.WriteString(line.text)
			last += line.tag
		}
	}
	if joined.String() != long || strings.Trim(last, "P") != "F" || len(last) < 2 {
		b.Errorf("a line of %d bytes came back as %d bytes in parts %q, want parts P… and F", len(long), joined.Len(),
			last)
	}
}

func reopenLog(b *bench) {
	sandbox := b.sandbox()
	id := b.start(sandbox, "main", b.Commands.Wait)
	path := filepath.Join(sandbox.config.LogDirectory, "main.log")
	b.eventually("the log is there", func() bool { _, err := os.Stat(path); return err == nil })
	b.ok(os.Rename(path, path+".1"), "rotate the log")
	b.ok(b.Runtime.ReopenContainerLog(b.ctx, id), "reopen the log")
	b.eventually("the log is there again", func() bool { _, err := os.Stat(path); return err == nil })
	b.ok(b.Runtime.StopContainer(b.ctx, id, 30*time.Second), "stop container")
	if err := b.Runtime.ReopenContainerLog(b.ctx, id); err == nil {
		b.Error("reopening the log of an ended container succeeded")
	}
}

func streaming(b *bench) {
	sandbox := b.sandbox()
	id := b.start(sandbox, "main", b.Commands.Wait)
	for name, open := range map[string]func() (string, error){
		"exec": func() (string, error) {
			return b.Runtime.Exec(b.ctx, &runtimeapi.ExecRequest{
				ContainerId: id, Cmd: b.Commands.Exit(0), Stdout: true,
			})
		},
		"attach": func() (string, error) {
			return b.Runtime.Attach(b.ctx, &runtimeapi.AttachRequest{ContainerId: id, Stdout: true})
		},
		"port forward": func() (string, error) {
			return b.Runtime.PortForward(b.ctx, &runtimeapi.PortForwardRequest{
				PodSandboxId: sandbox.id, Port: []int32{80},
			})
		},
	} {
		url, err := open()
		b.ok(err, name)
		if !strings.HasPrefix(url, "http") {
			b.Errorf("%s: URL is %q", name, url)
		}
	}
}

func update(b *bench) {
	sandbox := b.sandbox()
	id := b.start(sandbox, "main", b.Commands.Wait)
	b.ok(b.Runtime.UpdateContainerResources(b.ctx, id, &runtimeapi.ContainerResources{
		Linux: &runtimeapi.LinuxContainerResources{CpuShares: 204, MemoryLimitInBytes: 128 << 20},
	}), "update container")
	if got := b.status(id).GetResources(); got != nil && got.GetLinux().GetMemoryLimitInBytes() != 128<<20 {
		b.Errorf("resources are %v, want the new memory limit", got)
	}
}

func stats(b *bench) {
	sandbox := b.sandbox()
	id := b.start(sandbox, "main", b.Commands.Wait)
	b.eventually("the stats show memory", func() bool {
		got, err := b.Runtime.ContainerStats(b.ctx, id)
		b.ok(err, "stats")
		return got.GetAttributes().GetId() == id && got.GetMemory().GetWorkingSetBytes().GetValue() > 0
	})
	list, err := b.Runtime.ListContainerStats(b.ctx, &runtimeapi.ContainerStatsFilter{PodSandboxId: sandbox.id})
	b.ok(err, "list stats")
	if len(list) != 1 || list[0].GetAttributes().GetId() != id {
		b.Errorf("list of stats is %v, want the one container", list)
	}
}
