package env

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// CtrlC is the key that interrupts.
const CtrlC = "\x03"

// Terminal is a pseudoterminal as a terminal emulator has it.
type Terminal struct {
	master, slave *os.File
	mu            sync.Mutex
	shown         bytes.Buffer
}

// OpenTerminal opens a terminal of 80 columns and 24 rows until the test ends, and reads what is
// written to it.
func OpenTerminal(t testing.TB) *Terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	term := &Terminal{master: master, slave: slave}
	term.Resize(t, 80, 24)
	done := make(chan struct{})
	go func() {
		defer close(done)
		term.read()
	}()
	t.Cleanup(func() {
		slave.Close() // this ends the reading
		<-done
		master.Close()
	})
	return term
}

// read collects what is written, until the terminal is closed.
func (term *Terminal) read() {
	buf := make([]byte, 4096)
	for {
		n, err := term.master.Read(buf)
		if err != nil {
			return
		}
		term.mu.Lock()
		term.shown.Write(buf[:n])
		term.mu.Unlock()
	}
}

// Resize changes the terminal's size, as dragging the corner of its window does.
func (term *Terminal) Resize(t testing.TB, columns, rows uint16) {
	t.Helper()
	if err := unix.IoctlSetWinsize(int(term.master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{
		Col: columns, Row: rows,
	}); err != nil {
		t.Fatal(err)
	}
}

// Start starts a command with this terminal as its controlling terminal. The command gets keys and
// changes of size as signals.
func (term *Terminal) Start(cmd *exec.Cmd) error {
	cmd.Stdin, cmd.Stdout, cmd.Stderr = term.slave, term.slave, term.slave
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	return cmd.Start()
}

// Type types keys.
func (term *Terminal) Type(t testing.TB, keys string) {
	t.Helper()
	if _, err := term.master.WriteString(keys); err != nil {
		t.Fatal(err)
	}
}

// Shown returns everything that was written to the terminal.
func (term *Terminal) Shown() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return term.shown.String()
}

// WaitFor waits until the text was written.
func (term *Terminal) WaitFor(t testing.TB, text string) {
	t.Helper()
	Eventually(t, text, func() error {
		if out := term.Shown(); !strings.Contains(out, text) {
			return fmt.Errorf("it shows %q", out)
		}
		return nil
	})
}

// Settings returns the terminal's modes.
func (term *Terminal) Settings(t testing.TB) unix.Termios {
	t.Helper()
	settings, err := unix.IoctlGetTermios(int(term.slave.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	return *settings
}
