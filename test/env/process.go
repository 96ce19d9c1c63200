package env

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// process is a child process. The kernel kills it when this process ends, for any reason.
type process struct {
	cmd *exec.Cmd
	// done is closed when the child has been waited for. err then says how the child ended.
	done chan struct{}
	err  error
}

// startProcess runs the command in the layout's network and appends its output to the file at log.
func (l Layout) startProcess(cmd *exec.Cmd, log string) (*process, error) {
	return startProcess(cmd, log, l.In)
}

// startProcess runs the command and appends its output to the file at log. in calls the function
// that starts it.
func startProcess(cmd *exec.Cmd, log string, in func(func() error) error) (*process, error) {
	out, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", cmd.Path, err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	// In a session of its own, the child does not get the terminal's Ctrl-C, and the scheduler treats
	// it as a service of systemd, whose share does not depend on what the others start.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	p := &process{cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel sends the death signal when the thread that started the child ends. So this
		// thread stays until the child has ended.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := in(cmd.Start)
		started <- err
		if err != nil {
			return
		}
		p.err = cmd.Wait()
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// ended reports whether the child has ended.
func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// kill ends the child at once and waits for it.
func (p *process) kill() {
	if !p.ended() {
		_ = p.cmd.Process.Kill()
	}
	<-p.done
}

// stop sends SIGTERM, and SIGKILL after the grace. It returns an error if SIGKILL was needed.
func (p *process) stop(grace time.Duration) error {
	if p.ended() {
		return nil
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	_ = p.cmd.Process.Signal(syscall.SIGCONT) // a frozen process would not get SIGTERM
	select {
	case <-p.done:
		return nil
	case <-time.After(grace):
		p.kill()
		return fmt.Errorf("stop %s: it did not end within %s of SIGTERM and was killed", filepath.Base(p.cmd.Path),
			grace)
	}
}

// running is a process found in /proc.
type running struct {
	pid  int
	args []string
}

// processes returns the processes whose arguments satisfy match.
func processes(match func(args []string) bool) []running {
	files, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	var found []running
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil || len(b) == 0 {
			continue
		}
		args := strings.Split(strings.TrimSuffix(string(b), "\x00"), "\x00")
		if !match(args) {
			continue
		}
		var pid int
		if _, err := fmt.Sscanf(f, "/proc/%d/", &pid); err == nil {
			found = append(found, running{pid: pid, args: args})
		}
	}
	return found
}

// killAll kills the processes that list returns, until it returns none or [killTimeout] is over.
func killAll(what string, list func() []running) error {
	deadline := time.Now().Add(killTimeout)
	for {
		left := list()
		if len(left) == 0 {
			return nil
		}
		for _, p := range left {
			if err := syscall.Kill(p.pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("kill %s %d: %w", what, p.pid, err)
			}
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("kill %s: %d of them outlived SIGKILL", what, len(left))
		}
		time.Sleep(5 * time.Millisecond)
	}
}
