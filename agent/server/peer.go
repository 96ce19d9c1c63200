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
	uid, gid uint32
	// groups are its supplementary groups, if the kernel reports them (since 4.13).
	groups []uint32
}

// peerKey is the key of a connection's peer in a context.
type peerKey struct{}

// withPeer records the connection, and the process at the other end of a unix connection. It asks
// the kernel once for each connection, and reads no list of users.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	if secure, ok := c.(*tls.Conn); ok {
		c = secure.NetConn()
	}
	if t, ok := c.(*trackedConn); ok {
		ctx = context.WithValue(ctx, connKey{}, t)
		c = t.Conn
	}
	u, ok := c.(*net.UnixConn)
	if !ok {
		return ctx
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return ctx
	}
	var p *peer
	var peerErr error
	if err := raw.Control(func(fd uintptr) { p, peerErr = peerOf(int(fd)) }); err != nil || peerErr != nil {
		return ctx
	}
	return context.WithValue(ctx, peerKey{}, p)
}

// peerOf asks the kernel who is at the other end of a connected unix socket.
func peerOf(fd int) (*peer, error) {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return nil, err
	}
	groups, err := peerGroups(fd)
	if err != nil && !errors.Is(err, unix.ENOPROTOOPT) {
		return nil, err
	}
	return &peer{uid: cred.Uid, gid: cred.Gid, groups: groups}, nil
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
		p, ok := r.Context().Value(peerKey{}).(*peer)
		if !ok || !s.allowed(p) {
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
