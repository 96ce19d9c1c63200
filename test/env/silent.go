package env

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

// Calls of the FUSE protocol that [SilentServer] answers or that want no answer, and the sizes of
// its messages (<linux/fuse.h>).
const (
	fuseLookup      = 1
	fuseForget      = 2
	fuseGetattr     = 3
	fuseStatfs      = 17
	fuseInit        = 26
	fuseOpendir     = 27
	fuseReaddir     = 28
	fuseReleasedir  = 29
	fuseInterrupt   = 36
	fuseBatchForget = 42

	fuseHeader  = 40 // of a request
	fuseReply   = 16 // the header of an answer
	fuseMaxRead = 1 << 17
)

// SilentServer is an empty file system whose server can fall silent, as one of NFS does that lost
// its network: who asks for something then waits until the server is closed.
type SilentServer struct {
	device *os.File
	silent atomic.Bool
	// dropped is how many requests got no answer.
	dropped atomic.Int32
	ended   chan struct{}
}

// MountSilent mounts the file system of a server that answers. It is closed and unmounted when the
// test ends.
func MountSilent(t testing.TB, dir string) *SilentServer {
	t.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("open FUSE: %v", err)
	}
	err = unix.Mount("silent", dir, "fuse", unix.MS_NOSUID|unix.MS_NODEV,
		fmt.Sprintf("fd=%d,rootmode=40755,user_id=0,group_id=0,allow_other", fd))
	if err != nil {
		_ = unix.Close(fd)
		t.Fatalf("mount a file system on %s: %v", dir, err)
	}
	// The device reports what there is to read only if it is asked after the mount.
	s := &SilentServer{device: os.NewFile(uintptr(fd), "/dev/fuse"), ended: make(chan struct{})}
	go s.serve()
	t.Cleanup(func() {
		s.Close()
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return s
}

// FallSilent makes the server answer nothing from now on.
func (s *SilentServer) FallSilent() { s.silent.Store(true) }

// Close ends the server: whatever waits for it fails.
func (s *SilentServer) Close() {
	_ = s.device.Close()
	<-s.ended
}

func (s *SilentServer) serve() {
	defer close(s.ended)
	buffer := make([]byte, fuseMaxRead)
	for {
		n, err := s.device.Read(buffer)
		if errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINTR) {
			continue // the request was interrupted
		}
		if err != nil {
			return
		}
		if n < fuseHeader || s.silent.Load() {
			s.dropped.Add(1)
			continue
		}
		if answer := s.answer(buffer[:n]); answer != nil {
			_, _ = s.device.Write(answer)
		}
	}
}

// answer returns the answer to a request, nil if it gets none.
func (s *SilentServer) answer(request []byte) []byte {
	le := binary.NativeEndian
	var body []byte
	var errno unix.Errno
	switch le.Uint32(request[4:]) {
	case fuseForget, fuseInterrupt, fuseBatchForget:
		return nil
	case fuseLookup:
		errno = unix.ENOENT
	case fuseInit:
		body = make([]byte, 64)
		le.PutUint32(body[0:], 7)       // the major version
		le.PutUint32(body[4:], 31)      // the minor version
		le.PutUint32(body[20:], 64<<10) // the most bytes of a write
		le.PutUint32(body[24:], 1)      // the granularity of times, in ns
		le.PutUint32(body[8:], 64<<10)  // the most bytes to read ahead
		le.PutUint16(body[16:], 12)     // the most requests in the background
		le.PutUint16(body[18:], 9)      // how many of these are many
	case fuseGetattr:
		body = make([]byte, 104)
		le.PutUint64(body[16:], 1)                  // the inode
		le.PutUint32(body[76:], unix.S_IFDIR|0o755) // the mode
		le.PutUint32(body[80:], 2)                  // the links
	case fuseStatfs:
		body = make([]byte, 80)
		le.PutUint64(body[0:], 1<<20)  // the blocks
		le.PutUint64(body[8:], 1<<19)  // those that are free
		le.PutUint64(body[16:], 1<<19) // those that are available
		le.PutUint32(body[40:], 4096)  // the size of a block
		le.PutUint32(body[44:], 255)   // the longest name
		le.PutUint32(body[48:], 4096)  // the size of a fragment
	case fuseOpendir:
		body = make([]byte, 16)
	case fuseReaddir, fuseReleasedir:
	default:
		errno = unix.ENOSYS
	}
	out := make([]byte, fuseReply, fuseReply+len(body))
	le.PutUint32(out[0:], uint32(fuseReply+len(body)))
	le.PutUint32(out[4:], uint32(-int32(errno)))
	copy(out[8:16], request[8:16]) // which request is answered
	return append(out, body...)
}
