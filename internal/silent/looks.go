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
	// remote and local count those of the placed that are named.
	remote, local tally
	// answerers are those of the mounts, by mount point, as they were at readAt.
	answerers map[string]answerer
	readAt    time.Time
}

// answerer is who answers for a file system: a server, or the kernel for a local disk.
type answerer struct {
	name  string
	local bool
}

// look is a look at a path. of is whom it may wait for, once it is named. placed is closed when the
// look has its place.
type look struct {
	path   string
	of     answerer
	named  bool
	began  time.Time
	placed chan struct{}
}

// NewLooks returns a Looks without looks. root is an absolute path. Paths beneath root have
// symbolic links at most in root itself, as far as mounts are named by them.
func NewLooks(root string) *Looks {
	return newLooks(root, mounttable.Mounts)
}

func newLooks(root string, mounts func() ([]*mountinfo.Info, error)) *Looks {
	return &Looks{
		root: root, mounts: mounts, remote: newTally(MostOfServer, MostOfServer, MostLooks),
		local: newTally(MostOfDisk, MostOfDisk, MostLocal),
	}
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
	if i < 0 {
		return ""
	}
	of := l.waiting[i].of
	switch t := l.tally(of); {
	case of.local:
		return fmt.Sprintf("%d looks at local file systems are under way already", t.all)
	case t.servers[of.name] < MostOfServer:
		return fmt.Sprintf("%d looks wait for servers already", t.all)
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
	if i := slices.Index(l.placed, k); i >= 0 {
		l.placed = slices.Delete(l.placed, i, i+1)
		if k.named {
			l.tally(k.of).add(k.of.name, k.of.name, -1)
		}
	}
	l.waiting = slices.DeleteFunc(l.waiting, func(other *look) bool { return other == k })
	l.admit()
}

// admit gives those who wait the places that there are, in the order in which they came. While
// anybody waits, all looks are named.
func (l *Looks) admit() {
	l.waiting = slices.DeleteFunc(l.waiting, func(k *look) bool {
		if len(l.placed) >= MostOfServer && !l.tally(k.of).fits(k.of.name, k.of.name) {
			return false
		}
		l.placed = append(l.placed, k)
		if k.named {
			l.tally(k.of).add(k.of.name, k.of.name, 1)
		}
		close(k.placed)
		return true
	})
}

// tally returns the count in which looks of an answerer are.
func (l *Looks) tally(of answerer) *tally {
	if of.local {
		return &l.local
	}
	return &l.remote
}

// name finds the servers of all looks that have no name yet. It asks only the kernel's mount table,
// which is read at most once for all looks that wait for that. Without the table they are local.
func (l *Looks) name() {
	for i, k := range slices.Concat(l.placed, l.waiting) {
		if k.named {
			continue
		}
		if l.answerers == nil || !l.readAt.After(k.began) {
			l.readAt, l.answerers = time.Now(), map[string]answerer{}
			mounts, _ := l.mounts()
			for _, m := range mounts {
				l.answerers[m.Mountpoint] = answererOf(m) // of several at one point, the last is on top
			}
		}
		k.named, k.of = true, l.answererAt(k.path)
		if i < len(l.placed) {
			l.tally(k.of).add(k.of.name, k.of.name, 1)
		}
	}
}

// answererAt returns who answers for a path.
func (l *Looks) answererAt(path string) answerer {
	if below, ok := strings.CutPrefix(path, l.root+"/"); ok {
		if real, err := filepath.EvalSymlinks(l.root); err == nil {
			path = filepath.Join(real, below)
		}
	}
	for dir := path; ; dir = filepath.Dir(dir) {
		if of, found := l.answerers[dir]; found {
			return of
		}
		if dir == filepath.Dir(dir) {
			return answerer{local: true}
		}
	}
}

// locals are the file systems for which the kernel answers, on disks or in memory. Others may have
// a server.
var locals = strings.Fields(`bcachefs binfmt_misc bpf btrfs cgroup cgroup2 configfs debugfs devpts devtmpfs efivarfs
	erofs exfat ext2 ext3 ext4 f2fs fusectl hugetlbfs iso9660 jfs mqueue msdos nsfs ntfs3 overlay proc pstore ramfs
	reiserfs rootfs securityfs selinuxfs squashfs sysfs tmpfs tracefs ubifs udf vfat xfs zfs`)

// answererOf returns who answers for a mount. Of other file systems than NFS and SMB, each is its
// own.
func answererOf(m *mountinfo.Info) answerer {
	switch m.FSType {
	case "nfs", "nfs4":
		return answerer{name: ServerOfNFS(m)}
	case "cifs", "smb3":
		host, _, _ := strings.Cut(strings.TrimLeft(m.Source, "/"), "/")
		if server := addressOf(m, host); server != "" {
			return answerer{name: server}
		}
	}
	return answerer{name: fmt.Sprintf("%d:%d", m.Major, m.Minor), local: slices.Contains(locals, m.FSType)}
}

// ServerOfNFS returns the address of an NFS mount's server: one server may have many names. Without
// an address it returns the name.
func ServerOfNFS(m *mountinfo.Info) string {
	name, _, _ := strings.Cut(m.Source, ":/")
	return addressOf(m, name)
}

// addressOf returns the address of a mount's server, or its name if there is none in the options.
func addressOf(m *mountinfo.Info, name string) string {
	for option := range strings.SplitSeq(m.VFSOptions, ",") {
		if address, ok := strings.CutPrefix(option, "addr="); ok {
			return address
		}
	}
	return strings.ToLower(name)
}
