package silent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/moby/sys/mountinfo"
)

// table is a mount table: two exports of one server, another server, file systems of programs, and
// local disks, one of them on an export.
func table() ([]*mountinfo.Info, error) {
	return []*mountinfo.Info{
		{Mountpoint: "/", FSType: "ext4", Source: "/dev/sda1", Major: 8, Minor: 1},
		{Mountpoint: "/pods/a/v", FSType: "nfs4", Source: "one:/x", VFSOptions: "rw,addr=192.0.2.1"},
		{Mountpoint: "/pods/b/v", FSType: "nfs4", Source: "ONE.example:/y", VFSOptions: "rw,addr=192.0.2.1,x"},
		{Mountpoint: "/pods/c/v", FSType: "nfs", Source: "[fd00::1]:/x"},
		{Mountpoint: "/fuse", FSType: "fuse.sshfs", Source: "s", Major: 0, Minor: 7},
		{Mountpoint: "/pods/a/v/disk", FSType: "ext4", Source: "/dev/sdb1", Major: 8, Minor: 17},
		{Mountpoint: "/disk", FSType: "ext4", Source: "/dev/sdb1", Major: 8, Minor: 17},
		{Mountpoint: "/disk", FSType: "cifs", Source: "//two/x", Major: 0, Minor: 8},
	}, nil
}

// crowd are looks that last.
type crowd struct {
	t      *testing.T
	looks  *Looks
	leaves []func()
}

// enter reports whether a look at path gets a place at once; if not, it waits no longer.
func (c *crowd) enter(path string) bool {
	ctx, cancel := context.WithCancel(c.t.Context())
	defer cancel()
	entered := make(chan func(), 1)
	go func() {
		leave, err := c.looks.Enter(ctx, path)
		if (err == nil) != (leave != nil) {
			c.t.Errorf("Enter: %v", err)
		}
		entered <- leave
	}()
	synctest.Wait()
	why := c.looks.Full(path)
	cancel()
	leave := <-entered
	if (leave == nil) != (why != "") {
		c.t.Errorf("a look at %s has a place: %v; %q", path, leave != nil, why)
	}
	if leave != nil {
		c.leaves = append(c.leaves, leave)
	}
	return leave != nil
}

// Each server has its bound, whichever of its files are looked at, and all have one together.
func TestLooksHavePlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{t: t, looks: newLooks("/nowhere", table)}
		for i := range MostOfServer {
			if path := []string{"/pods/a/v/in", "/pods/b/v"}[i%2]; !c.enter(path) {
				t.Errorf("look %d has no place", i)
			}
		}
		for path, free := range map[string]bool{
			"/pods/a/v": false, "/pods/b/v/x/../y": false, "/pods/c/v": true, "/fuse": true, "/pods/a/v/disk/x": true,
			"/disk": true, "/pods/a/va": true, "relative": true,
		} {
			if c.enter(path) != free {
				t.Errorf("a look at %s has a place: %v", path, !free)
			}
		}
		c.leaves[0]()
		if !c.enter("/pods/b/v") || c.enter("/pods/b/v") {
			t.Error("one place was given back")
		}
		c.leaves = c.leaves[1:]
		for range MostOfDisk - c.looks.local.servers["8:1"] {
			if !c.enter("/local") {
				t.Fatalf("no place at a local disk beside %d looks", len(c.leaves))
			}
		}
		if c.enter("/local") {
			t.Error("more places than there are for a local disk")
		}
		if !c.enter("/pods/a/v/disk/x") {
			t.Error("one disk takes the places of the others")
		}
		if !c.enter("/fuse") {
			t.Error("local disks take the places of servers")
		}
		for _, leave := range c.leaves {
			leave()
		}
		l := c.looks
		if n := len(l.placed) + len(l.waiting) + l.remote.all + l.local.all; n > 0 ||
			len(l.remote.servers)+len(l.local.tenants) > 0 {
			t.Errorf("nobody looks any more, and %+v has places, %+v waits", l.placed, l.waiting)
		}
	})
}

// Who waits comes in when a place is free, the first first, and says why it waits.
func TestLooksWaitInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{t: t, looks: newLooks("/nowhere", table)}
		for range MostOfServer {
			c.enter("/pods/a/v")
		}
		in := make(chan int, 2)
		for i := range 2 {
			go func() {
				if _, err := c.looks.Enter(t.Context(), "/pods/b/v"); err != nil {
					t.Error(err)
				}
				in <- i
			}()
			synctest.Wait()
		}
		if got := c.looks.Full("/pods/b/v"); got != "8 looks wait for its server already" {
			t.Error(got)
		}
		for i := range 2 {
			c.leaves[i]()
			if got := <-in; got != i {
				t.Errorf("look %d came in as number %d", got, i)
			}
		}
		if got := c.looks.Full("/pods/b/v"); got != "" {
			t.Error(got)
		}
	})
}

// A look keeps its server when the mount is gone. Without a mount table, looks are bounded in all.
func TestLooksRemember(t *testing.T) {
	target := t.TempDir()
	root := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(target, root); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		l := newLooks(root, func() ([]*mountinfo.Info, error) {
			if reads++; reads > 1 {
				return nil, errors.New("no table")
			}
			return []*mountinfo.Info{{Mountpoint: target + "/plugins/v", FSType: "nfs4", Source: "one:/x"}}, nil
		})
		c := &crowd{t: t, looks: l}
		c.enter(root + "/plugins/v")
		l.Remember()
		l.Remember()
		if got := fmt.Sprint(l.placed[0].of.name, reads); got != "one1" {
			t.Error(got)
		}
		for len(c.leaves) <= MostOfDisk {
			c.enter(root + "/plugins/v")
		}
		if c.enter("/x") || l.remote.servers["one"] != 1 {
			t.Errorf("%+v, %+v", l.remote, l.local)
		}
	})
}

// All servers have a bound together, which keeps nobody from local disks, from the agent's own
// files, and from a server that nobody waits for yet.
func TestManySilentServers(t *testing.T) {
	const silent = MostLooks / MostOfServer
	volume := func(server int) string { return fmt.Sprintf("/agent/pods/u/volumes/kubernetes.io~nfs/%d", server) }
	synctest.Test(t, func(t *testing.T) {
		c := &crowd{t: t, looks: newLooks("/agent", func() ([]*mountinfo.Info, error) {
			out := []*mountinfo.Info{{Mountpoint: "/", FSType: "ext4"}}
			for i := range silent + 1 {
				out = append(out, &mountinfo.Info{
					Mountpoint: volume(i), FSType: "nfs4", Source: fmt.Sprintf("s%d:/x", i),
				})
			}
			return out, nil
		})}
		for i := range MostLooks {
			if !c.enter(volume(i % silent)) {
				t.Fatalf("look %d has no place", i)
			}
		}
		if c.enter(volume(0)) {
			t.Error("a server has more than its places")
		}
		if !c.enter(volume(silent)) || c.enter(volume(silent)) {
			t.Error("a server that nobody waits for has one place")
		}
		for _, path := range []string{
			"/local", "/agent/pods/u/etc-hosts", "/agent/pods/u/containers/c/message",
			"/agent/pods/u/volumes/kubernetes.io~projected/token", "/agent/pods/u/volumes/kubernetes.io~empty-dir/e",
		} {
			if !c.enter(path) {
				t.Errorf("a look at %s has no place", path)
			}
		}
		if got := len(c.looks.placed); got != MostLooks+3 {
			t.Errorf("%d looks have places: the agent's own files need none", got)
		}
	})
}

// Who answers for a file system.
func TestAnswerers(t *testing.T) {
	for want, mounts := range map[answerer][]mountinfo.Info{
		{name: "192.0.2.1"}: {
			{FSType: "nfs", Source: "one:/x", VFSOptions: "rw,addr=192.0.2.1"},
			{FSType: "nfs4", Source: "two:/x", VFSOptions: "addr=192.0.2.1"},
			{FSType: "cifs", Source: "//three/x", VFSOptions: "rw,addr=192.0.2.1,soft"},
		},
		{name: "nas.example"}: {
			{FSType: "cifs", Source: "//NAS.example/a"}, {FSType: "smb3", Source: "//nas.example/b"},
		},
		{name: "0:9"}: {
			{FSType: "fuse.s3", Minor: 9}, {FSType: "wekafs", Minor: 9}, {FSType: "cifs", Minor: 9},
		},
		{name: "8:1", local: true}:  {{FSType: "ext4", Major: 8, Minor: 1}, {FSType: "xfs", Major: 8, Minor: 1}},
		{name: "0:40", local: true}: {{FSType: "tmpfs", Minor: 40}, {FSType: "overlay", Minor: 40}},
	} {
		for _, m := range mounts {
			if got := answererOf(&m); got != want {
				t.Errorf("%+v is %+v, want %+v", m, got, want)
			}
		}
	}
}

// A look at what was just mounted waits for that, not for what the mount is on.
func TestLooksKnowNewMounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mounted, _ := table()
		c := &crowd{t: t, looks: newLooks("/nowhere", func() ([]*mountinfo.Info, error) { return mounted, nil })}
		for range MostOfServer {
			c.enter("/pods/a/v")
		}
		mounted = append(mounted, &mountinfo.Info{Mountpoint: "/pods/new", FSType: "nfs4", Source: "new:/x"})
		time.Sleep(time.Nanosecond)
		if !c.enter("/pods/new") || c.looks.remote.servers["new"] != 1 {
			t.Errorf("%+v, %+v", c.looks.remote, c.looks.local)
		}
	})
}

func TestNoLooks(t *testing.T) {
	var l *Looks
	leave, err := l.Enter(t.Context(), "/x")
	if err != nil || l.Full("/x") != "" {
		t.Error(err)
	}
	l.Remember()
	leave()
}
