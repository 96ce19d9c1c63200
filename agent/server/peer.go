package server

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"os"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// peer is the process at the other end of a unix connection, as it was when it connected.
type peer struct {
	// pid is 0 for a process in a PID namespace that is not below this one.
	pid      int32
	uid, gid uint32
	// groups are its supplementary groups, if the kernel reports them (since 4.13).
	groups []uint32
}

// withConn records the connection of a request.
func withConn(ctx context.Context, c net.Conn) context.Context {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	return context.WithValue(ctx, connKey{}, c)
}

// peerOf asks the kernel who is at the other end of a unix connection, and reads no list of users.
// It returns nil for another connection, and if the kernel does not say it.
func peerOf(c net.Conn) *peer {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return nil
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return nil
	}
	var p *peer
	var peerErr error
	if err := raw.Control(func(fd uintptr) { p, peerErr = peerAt(int(fd)) }); err != nil || peerErr != nil {
		return nil
	}
	return p
}

// peerAt asks the kernel who is at the other end of a connected unix socket.
func peerAt(fd int) (*peer, error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return nil, err
	}
	groups, err := peerGroups(fd)
	if err != nil && !errors.Is(err, unix.ENOPROTOOPT) {
		return nil, err
	}
	return &peer{pid: cred.Pid, uid: cred.Uid, gid: cred.Gid, groups: groups}, nil
}

// peerGroups returns the supplementary groups of the process at the other end (unix(7),
// SO_PEERGROUPS).
func peerGroups(fd int) ([]uint32, error) {
	groups := make([]uint32, 32)
	for {
		size := uint32(len(groups)) * uint32(unsafe.Sizeof(groups[0]))
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&groups[0])), uintptr(unsafe.Pointer(&size)), 0)
		count := size / uint32(unsafe.Sizeof(groups[0]))
		switch {
		case errno == 0:
			return groups[:count], nil
		// the kernel returns how many groups there are
		case errno == unix.ERANGE && int(count) > len(groups):
			groups = make([]uint32, count)
		default:
			return nil, errno
		}
	}
}

// allow admits only root, the agent's own user and the socket's group, whatever mode the file has.
func (s *socket) allow(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, ok := r.Context().Value(connKey{}).(*trackedConn)
		if !ok || c.peer == nil || !s.allowed(c.peer) {
			fail(w, http.StatusForbidden, "only root and the socket's group may use %s", s.path)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// allowed decides about one peer. A process is in a group if the kernel says so, as for file modes.
func (s *socket) allowed(p *peer) bool {
	if p.uid == 0 || int(p.uid) == os.Geteuid() {
		return true
	}
	return s.gid >= 0 && (int(p.gid) == s.gid || slices.Contains(p.groups, uint32(s.gid)))
}
