package server

import (
	"bufio"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	v1 "k8s.io/api/core/v1"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/agent/telemetry/metrics"
)

func TestAllowed(t *testing.T) {
	me := uint32(os.Geteuid())
	for name, tc := range map[string]struct {
		gid  int
		peer peer
		want bool
	}{
		"root":                    {-1, peer{}, true},
		"the agent's own user":    {-1, peer{uid: me, gid: 7}, true},
		"somebody":                {5, peer{uid: me + 1, gid: 7}, false},
		"somebody, no group":      {-1, peer{uid: me + 1, gid: 7}, false},
		"by primary group":        {5, peer{uid: me + 1, gid: 5}, true},
		"by supplementary group":  {5, peer{uid: me + 1, gid: 7, groups: []uint32{6, 5}}, true},
		"in other groups":         {5, peer{uid: me + 1, gid: 7, groups: []uint32{6, 8}}, false},
		"a group that there's no": {-1, peer{uid: me + 1, gid: 7, groups: []uint32{1<<32 - 1}}, false},
	} {
		if got := (&socket{gid: tc.gid}).allowed(&tc.peer); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestPeers connects as other users, with few and with many groups, through a socket file that lets
// everybody in: the server asks the kernel.
func TestPeers(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can become another user")
	}
	dir, err := os.MkdirTemp("", "srv") //nolint:usetesting // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // others must come through
		t.Fatal(err)
	}
	const group = 54321
	f := &fixture{pods: []*v1.Pod{webPod()}}
	r := &rig{fixture: f, socket: filepath.Join(dir, "s")}
	r.server, err = New(Config{Socket: r.socket, SocketGroup: fmt.Sprint(group), Node: "node"}, f,
		Deps{
			Runtime: f,
			Stats:   f,
			Metrics: metrics.New("node", "v1"),
			Logger:  slog.New(slog.NewTextHandler(t.Output(), nil)),
		})
	if err != nil {
		t.Fatal(err)
	}
	r.run(t)
	if err := os.Chmod(r.socket, 0o666); err != nil { //nolint:gosec // the mode alone must not decide
		t.Fatal(err)
	}
	many := make([]uint32, 200)
	for i := range many {
		many[i] = uint32(60000 + i)
	}
	for name, tc := range map[string]struct {
		gid    int
		groups []uint32
		want   int
	}{
		"a stranger":           {65534, nil, http.StatusForbidden},
		"a member":             {group, nil, http.StatusOK},
		"a further member":     {65534, []uint32{1, group}, http.StatusOK},
		"member of others":     {65534, []uint32{1, 2}, http.StatusForbidden},
		"member of many":       {65534, slices.Concat(many, []uint32{group}), http.StatusOK},
		"member of many other": {65534, many, http.StatusForbidden},
	} {
		if code := askAs(t, r.socket, 65534, tc.gid, tc.groups); code != tc.want {
			t.Errorf("%s: %d, want %d", name, code, tc.want)
		}
	}
}

// askAs asks for the health as another user, and returns the answer's code.
func askAs(t *testing.T, socket string, uid, gid int, groups []uint32) int {
	t.Helper()
	connected := make(chan net.Conn, 1)
	go func() {
		defer close(connected)
		runtime.LockOSThread() // the thread is no other's any more, and ends with the goroutine
		if err := become(uid, gid, groups); err != nil {
			t.Errorf("become user %d: %v", uid, err)
			return
		}
		conn, err := net.Dial("unix", socket)
		if err != nil {
			t.Errorf("connect as user %d: %v", uid, err)
			return
		}
		connected <- conn
	}()
	conn, ok := <-connected
	if !ok {
		return 0
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	return resp.StatusCode
}

// become changes the calling thread's user and groups, and no other thread's.
func become(uid, gid int, groups []uint32) error {
	var first unsafe.Pointer
	if len(groups) > 0 {
		first = unsafe.Pointer(&groups[0])
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(groups)), uintptr(first), 0); errno != 0 {
		return errno
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESGID, uintptr(gid), uintptr(gid), uintptr(gid)); errno != 0 {
		return errno
	}
	if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
		return errno
	}
	return nil
}
