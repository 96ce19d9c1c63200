// Package clock moves the wall clock that running processes see. It does not change the machine's
// own clock.
//
// Purpose: a program reads the time through the vDSO, a small library that the kernel maps into
// every process. [Move] replaces the beginning of the vDSO's clock_gettime, in one process, by a
// jump to code that asks the kernel and adds a number of seconds to the wall clock. The monotonic
// clock goes on, as it does when an administrator sets a machine's clock. This works with the
// installed programs while they run.
//
// Limits: the kernel stamps files with the machine's clock, and programs that the process starts
// see that clock, too. It works only on amd64.
//
// Truth owned: none. The changes are in the process's own copy of the page, and end with the
// process.
//
// Concurrency: calls for different processes are independent. Calls for one process must not
// overlap.
package clock

import (
	"bufio"
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// code replaces clock_gettime(rdi: which clock, rsi: where to). The seconds to add follow the code.
var code = []byte{
	0xb8, 0xe4, 0x00, 0x00, 0x00, // mov eax, 228 (SYS_clock_gettime)
	0x0f, 0x05, // syscall
	0x85, 0xc0, // test eax, eax
	0x75, 0x0e, // jne end
	0x85, 0xff, // test edi, edi (CLOCK_REALTIME is 0)
	0x75, 0x0a, // jne end
	0x48, 0x8b, 0x0d, 0x04, 0x00, 0x00, 0x00, // mov rcx, [seconds]
	0x48, 0x01, 0x0e, // add [rsi], rcx
	0xc3, // end: ret
}

const (
	// room is how many bytes at the end of the vDSO's last page are used. Nothing else is there.
	room = 64
	// jump is the length of a jump to a distance of 32 bits.
	jump = 5
	// stopTimeout bounds the wait until a process has stopped. A thread that waits for a busy disk
	// does not stop before it has its data.
	stopTimeout = 2 * time.Minute
)

// Move makes a process see a wall clock that is d ahead of the machine's from now on, in whole
// seconds. With a negative d the clock is behind. The process stops for a moment.
func Move(pid int, d time.Duration) error {
	if runtime.GOARCH != "amd64" {
		return fmt.Errorf("move the clock of process %d: not known on %s", pid, runtime.GOARCH)
	}
	if err := halted(pid, func() error { return patch(pid, int64(d/time.Second)) }); err != nil {
		return fmt.Errorf("move the clock of process %d: %w", pid, err)
	}
	return nil
}

// patch writes the seconds, and the code if it is not there yet.
func patch(pid int, seconds int64) error {
	start, end, err := vdso(pid)
	if err != nil {
		return err
	}
	mem, err := os.OpenFile(fmt.Sprintf("/proc/%d/mem", pid), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer mem.Close()
	image := make([]byte, end-start)
	if _, err := mem.ReadAt(image, start); err != nil {
		return fmt.Errorf("read the vDSO: %w", err)
	}
	at, spare := end-room, image[len(image)-room:]
	ours := bytes.HasPrefix(spare, code)
	if !ours && len(bytes.Trim(spare, "\x00")) > 0 {
		return errors.New("there is no room in the vDSO")
	}
	if err := write(mem, at+int64(len(code)), binary.LittleEndian.AppendUint64(nil, uint64(seconds))); err != nil ||
		ours {
		return err
	}
	offset, err := function(image)
	if err != nil {
		return err
	}
	for _, pc := range counters(pid) {
		if pc > start+offset && pc < start+offset+jump {
			return errRetry
		}
	}
	if err := write(mem, at, code); err != nil {
		return err
	}
	distance := at - (start + offset + jump)
	return write(mem, start+offset, binary.LittleEndian.AppendUint32([]byte{0xe9}, uint32(distance)))
}

func write(mem *os.File, at int64, data []byte) error {
	if _, err := mem.WriteAt(data, at); err != nil {
		return fmt.Errorf("write to the vDSO: %w", err)
	}
	return nil
}

// vdso returns the place of a process's vDSO.
func vdso(pid int) (start, end int64, err error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return 0, 0, err
	}
	defer f.Close()
	err = os.ErrProcessDone // a zombie has no memory at all
	for lines := bufio.NewScanner(f); lines.Scan(); {
		err = errors.New("it has no vDSO")
		if strings.HasSuffix(lines.Text(), "[vdso]") {
			_, err := fmt.Sscanf(lines.Text(), "%x-%x ", &start, &end)
			return start, end, err
		}
	}
	return 0, 0, err
}

// function returns the offset of clock_gettime in the vDSO.
func function(image []byte) (int64, error) {
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return 0, fmt.Errorf("read the vDSO: %w", err)
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		return 0, fmt.Errorf("read the vDSO: %w", err)
	}
	for _, s := range symbols {
		if s.Name == "__vdso_clock_gettime" {
			return int64(s.Value), nil
		}
	}
	return 0, errors.New("the vDSO has no clock_gettime")
}

// errRetry says that a thread stood where the jump must be written.
var errRetry = errors.New("a thread stands in the way")

// halted calls do while the process is stopped.
func halted(pid int, do func() error) error {
	for {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			return err
		}
		err := await(pid)
		if err == nil {
			err = do()
		}
		if again := syscall.Kill(pid, syscall.SIGCONT); again != nil || !errors.Is(err, errRetry) {
			return errors.Join(err, again)
		}
	}
}

// await waits until all threads of a process have stopped.
func await(pid int) error {
	for deadline := time.Now().Add(stopTimeout); ; time.Sleep(time.Millisecond) {
		running := 0
		stats, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
		for _, name := range stats {
			text, err := os.ReadFile(name)
			if _, after, ok := strings.Cut(string(text), ") "); err == nil && ok &&
				!strings.ContainsAny(after[:1], "TtZX") {
				running++
			}
		}
		switch {
		case len(stats) == 0:
			return os.ErrProcessDone
		case running == 0:
			return nil
		case time.Now().After(deadline):
			return fmt.Errorf("%d threads do not stop", running)
		}
	}
}

// counters returns the instruction pointers of the stopped threads of a process.
func counters(pid int) []int64 {
	var out []int64
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/syscall", pid))
	for _, name := range files {
		text, _ := os.ReadFile(name)
		if fields := strings.Fields(string(text)); len(fields) > 0 {
			if pc, err := strconv.ParseInt(strings.TrimPrefix(fields[len(fields)-1], "0x"), 16, 64); err == nil {
				out = append(out, pc)
			}
		}
	}
	return out
}
