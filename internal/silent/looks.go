package silent

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/moby/sys/mountinfo"

	"github.com/berthd/berth/internal/mounttable"
)

// Looks gives looks at files their places. A look that finds none waits for one, without a thread.
// Looks at local disks take no places of servers, and looks at the agent's own files take none. A
// nil Looks has places for all.
type Looks struct {
	root   string
	mounts func() ([]*mountinfo.Info, error) // tests replace the kernel

	mu              sync.Mutex
	placed, waiting []*look
	// servers are those of the mounts, by mount point, as they were at readAt; empty for local
	// ones.
	servers map[string]string
	readAt  time.Time
}

// look is a look at a path. server is whom it may wait for: empty for a local disk, and until it is
// named. placed is closed when the look has its place.
type look struct {
	path, server string
	named        bool
	began        time.Time
	placed       chan struct{}
}

// NewLooks returns a Looks without looks. root is an absolute path. Paths beneath root have
// symbolic links at most in root itself, as far as mounts are named by them.
func NewLooks(root string) *Looks {
	return &Looks{root: root, mounts: func() ([]*mountinfo.Info, error) { return mounttable.Mounts(nil) }}
}

// Enter waits for a place for a look at path, until ctx ends. The look may begin when Enter
// returns, and calls leave at its end.
func (l *Looks) Enter(ctx context.Context, path string) (leave func(), err error) {
	path = filepath.Clean(path)
	if l == nil || l.own(path) {
		return func() {}, nil
	}
	k := &look{path: path, began: time.Now(), placed: make(chan struct{})}
	l.begin(k)
	select {
	case <-k.placed:
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		l.end(k)
		return nil, context.Cause(ctx)
	}
	return func() { l.end(k) }, nil
}

// own reports whether a path is one of the agent's own files. They are on the disk of its root
// directory, without which nothing goes on.
func (l *Looks) own(path string) bool {
	below, ok := strings.CutPrefix(path, l.root+"/")
	if !ok {
		return false
	}
	parts := strings.Split(below, "/")
	if parts[0] != "pods" {
		return parts[0] != "plugins" // where drivers mount
	}
	if len(parts) < 4 {
		return true
	}
	switch parts[2] { // pods, a pod's UID, what it has
	case "volume-subpaths", "volumeDevices":
		return false
	case "volumes":
		switch parts[3] {
		case "kubernetes.io~configmap", "kubernetes.io~downward-api", "kubernetes.io~projected", "kubernetes.io~secret":
			return true
		}
		return false
	}
	return true
}

// Full says why looks at path have no place; empty if they have or need none. It names no server:
// it is for a pod's status.
func (l *Looks) Full(path string) string {
	if l == nil {
		return ""
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	path = filepath.Clean(path)
	i := slices.IndexFunc(l.waiting, func(k *look) bool { return k.path == path })
	switch {
	case i < 0:
		return ""
	case l.waiting[i].server == "":
		return fmt.Sprintf("%d looks at local file systems are under way already", MostLocal)
	case l.of(l.waiting[i].server) < MostOfServer:
		return fmt.Sprintf("%d looks wait for servers already", MostInAll)
	}
	return fmt.Sprintf("%d looks wait for its server already", MostOfServer)
}

// Remember finds out whom the looks under way wait for. It is called before mounts are removed that
// some of them look at.
func (l *Looks) Remember() {
	if l != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.name()
	}
}

func (l *Looks) begin(k *look) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting = append(l.waiting, k)
	if len(l.placed) >= MostOfServer || len(l.waiting) > 1 {
		l.name()
	}
	l.admit()
}

func (l *Looks) end(k *look) {
	l.mu.Lock()
	defer l.mu.Unlock()
	is := func(other *look) bool { return other == k }
	l.placed, l.waiting = slices.DeleteFunc(l.placed, is), slices.DeleteFunc(l.waiting, is)
	l.admit()
}

// admit gives those who wait the places that there are, in the order in which they came. While
// anybody waits, all looks are named.
func (l *Looks) admit() {
	l.waiting = slices.DeleteFunc(l.waiting, func(k *look) bool {
		fits := len(l.placed) < MostOfServer
		switch local := l.of(""); {
		case fits:
		case k.server == "":
			fits = local < MostLocal
		default:
			fits = l.of(k.server) < MostOfServer && len(l.placed)-local < MostInAll
		}
		if fits {
			l.placed = append(l.placed, k)
			close(k.placed)
		}
		return fits
	})
}

// of returns how many looks a server has.
func (l *Looks) of(server string) (n int) {
	for _, k := range l.placed {
		if k.server == server {
			n++
		}
	}
	return n
}

// name finds the servers of all looks that have no name yet. It asks only the kernel's mount table,
// which is read at most once for all looks that wait for that. Without the table they are local.
func (l *Looks) name() {
	for _, k := range slices.Concat(l.placed, l.waiting) {
		if k.named {
			continue
		}
		if l.servers == nil || !l.readAt.After(k.began) {
			l.readAt, l.servers = time.Now(), map[string]string{}
			mounts, _ := l.mounts()
			for _, m := range mounts {
				l.servers[m.Mountpoint] = serverOf(m) // of several at one point, the last is on top
			}
		}
		k.named = true
		path := k.path
		if below, ok := strings.CutPrefix(path, l.root+"/"); ok {
			if real, err := filepath.EvalSymlinks(l.root); err == nil {
				path = filepath.Join(real, below)
			}
		}
		for dir := path; ; dir = filepath.Dir(dir) {
			server, found := l.servers[dir]
			if k.server = server; found || dir == filepath.Dir(dir) {
				break
			}
		}
	}
}

// serverOf returns who answers for a mount; empty if the kernel does. Of other file systems than
// NFS, each is its own.
func serverOf(m *mountinfo.Info) string {
	if strings.HasPrefix(m.FSType, "nfs") {
		return ServerOfNFS(m)
	}
	kind, _, _ := strings.Cut(m.FSType, ".")
	switch kind {
	case "9p", "afs", "autofs", "beegfs", "ceph", "cifs", "fuse", "fuseblk", "gpfs", "lustre", "smb3", "virtiofs":
		return fmt.Sprintf("%d:%d", m.Major, m.Minor)
	}
	return ""
}

// ServerOfNFS returns the address of an NFS mount's server: one server may have many names. Without
// an address it returns the name.
func ServerOfNFS(m *mountinfo.Info) string {
	for option := range strings.SplitSeq(m.VFSOptions, ",") {
		if address, ok := strings.CutPrefix(option, "addr="); ok {
			return address
		}
	}
	name, _, _ := strings.Cut(m.Source, ":/")
	return strings.ToLower(name)
}
