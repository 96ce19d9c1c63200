package env

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"syscall"
)

// programLog is the suffix of the programs' logs.
const programLog = ".log"

// Program is a program that runs beside containerd in an environment, such as a part of a control
// plane. It can end, freeze and start again. The environment stops it at the end. Only one
// goroutine at a time may call its methods.
type Program struct {
	// Name distinguishes the programs of one environment. Log has the program's output since its
	// first start.
	Name, Log string

	env     *Env
	command []string
	p       *process
}

// NewProgram prepares a program; [Program.Start] starts it.
func (e *Env) NewProgram(name string, command ...string) *Program {
	p := &Program{Name: name, Log: filepath.Join(e.Dir, name+programLog), env: e, command: command}
	e.mu.Lock()
	e.programs = append(e.programs, p)
	e.mu.Unlock()
	return p
}

// Start starts the program, for the first time or again. It does not wait until the program is
// ready.
func (p *Program) Start() error {
	if p.Running() {
		return fmt.Errorf("start %s: it runs already", p.Name)
	}
	cmd := exec.CommandContext(context.Background(), p.command[0], p.command[1:]...)
	cmd.Dir = p.env.Dir
	process, err := p.env.startProcess(cmd, p.Log)
	if err != nil {
		return err
	}
	p.p = process
	return nil
}

// Stop ends the program with SIGTERM, also if it is frozen. It is no error if the program has ended
// or was never started.
func (p *Program) Stop() error {
	if p.p == nil {
		return nil
	}
	return p.p.stop(stopTimeout)
}

// Kill9 kills the program at once.
func (p *Program) Kill9() {
	if p.p != nil {
		p.p.kill()
	}
}

// Freeze suspends the program. Its connections stay open, and nobody answers on them, until
// [Program.Thaw].
func (p *Program) Freeze() error { return p.signal(syscall.SIGSTOP) }

// Thaw lets a frozen program run again.
func (p *Program) Thaw() error { return p.signal(syscall.SIGCONT) }

func (p *Program) signal(s syscall.Signal) error {
	if !p.Running() {
		return errors.New("signal " + p.Name + ": it does not run")
	}
	if err := p.p.cmd.Process.Signal(s); err != nil {
		return fmt.Errorf("signal %s: %w", p.Name, err)
	}
	return nil
}

// Running reports whether the program's process lives, frozen or not.
func (p *Program) Running() bool { return p.p != nil && !p.p.ended() }

// PID returns the program's process id, 0 before the first start.
func (p *Program) PID() int {
	if p.p == nil {
		return 0
	}
	return p.p.cmd.Process.Pid
}

// LogTail returns the end of the program's output.
func (p *Program) LogTail() string { return tail(p.Log) }
