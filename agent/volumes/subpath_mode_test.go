package volumes

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Nothing changes the mode of a directory after it was made: by then, a container may have put
// another one in its place.
func TestSubPathChangesNoMode(t *testing.T) {
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	parent, err := os.Open(t.TempDir())
	must(t, err)
	defer parent.Close()
	must(t, parent.Chmod(0o700))
	watch, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	must(t, err)
	defer closeFD(watch)
	_, err = unix.InotifyAddWatch(watch, parent.Name(), unix.IN_ATTRIB|unix.IN_ONLYDIR)
	must(t, err)
	made, err := makeDirAt(int(parent.Fd()), "made", 0o2775)
	must(t, err)
	defer closeFD(made)
	if n, err := unix.Read(watch, make([]byte, 4096)); err != unix.EAGAIN {
		t.Errorf("attributes were changed: %d bytes of events, %v", n, err)
	}
	var stat unix.Stat_t
	must(t, unix.Fstat(made, &stat))
	if mode := stat.Mode & 0o7777; mode != 0o775 {
		t.Errorf("the mode is %o", mode)
	}
	if now := unix.Umask(0o077); now != 0o077 {
		t.Errorf("the umask is %o", now)
	}
}
