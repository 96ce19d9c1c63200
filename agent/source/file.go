package source

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/internal/pods"
)

const (
	// DefaultRescan is how often the source looks through the directory, also without a notice of
	// the kernel (the kubelet's fileCheckFrequency).
	DefaultRescan = 20 * time.Second
	// retryFirst is the time until the first retry for a directory that could not be read, or for a
	// file that is being written. The time doubles with each retry, up to the rescan interval.
	retryFirst = 100 * time.Millisecond
)

// FileConfig is the configuration of a [File].
type FileConfig struct {
	// Path is the manifest directory (staticPodPath), or a single manifest file.
	Path string
	// NodeName is the node's name.
	NodeName string
	// Rescan is how often the source looks through the directory as a safety net. 0 means
	// DefaultRescan.
	Rescan time.Duration
	// Insecure takes files that everybody may write to, too.
	Insecure bool
}

// FileDeps are the dependencies of a [File].
type FileDeps struct {
	Logger *slog.Logger
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// LastGood, if not nil, returns the pods that a manifest held before this agent started. The
	// source calls LastGood for a manifest that is bad at the first read, so that the manifest
	// keeps its pods over a restart of the agent.
	LastGood func(file string) []*v1.Pod
}

// File is the source of a manifest directory. It is a [Source].
type File struct {
	path     string
	rescan   time.Duration
	insecure bool
	log      *slog.Logger

	// Run owns all fields below.
	out     func(Snapshot)
	known   *manifests
	watcher *watcher
	single  string // the only file that counts, if Path is a single file
	dirID   fileID
	ready   bool
	trouble string // why the directory cannot be read
	dirWarn []string
	retry   time.Duration
	last    *Snapshot
}

// NewFile returns a source for a manifest directory or file. The source does nothing until Run.
func NewFile(cfg FileConfig, deps FileDeps) *File {
	f := &File{
		path:     filepath.Clean(cfg.Path),
		rescan:   cfg.Rescan,
		insecure: cfg.Insecure,
		log:      deps.Logger,
	}
	if f.rescan <= 0 {
		f.rescan = DefaultRescan
	}
	if f.log == nil {
		f.log = slog.New(slog.DiscardHandler)
	}
	now := deps.Now
	if now == nil {
		now = time.Now
	}
	f.known = &manifests{
		decoder:  Decoder{NodeName: cfg.NodeName},
		now:      now,
		lastGood: deps.LastGood,
		files:    map[string]*manifest{},
	}
	return f
}

// Name returns [pods.SourceFile].
func (f *File) Name() string { return pods.SourceFile }

// Run reads the manifests and keeps them up to date until ctx ends. The caller calls Run once. Run
// never gives up: the snapshots' results name everything that cannot be read, and Run tries it
// again.
func (f *File) Run(ctx context.Context, out func(Snapshot)) error {
	f.out = out
	defer f.stopWatching()
	f.lookThrough()
	timer := time.NewTimer(f.wait())
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case batch := <-f.notices():
			waited := f.retry > 0
			f.handle(batch)
			if f.unsettled() && !waited {
				timer.Reset(f.wait())
			}
		case <-timer.C:
			f.lookThrough()
			timer.Reset(f.wait())
		}
		f.publish()
	}
}

// unsettled reports whether something needs a retry soon.
func (f *File) unsettled() bool {
	return f.trouble != "" || f.watcher == nil || f.known.anyBusy()
}

// wait returns the time until the next look through the directory.
func (f *File) wait() time.Duration {
	if !f.unsettled() {
		f.retry = 0
		return f.rescan
	}
	f.retry = min(max(2*f.retry, retryFirst), f.rescan)
	return f.retry
}

// notices returns the channel of the kernel's notices, or nil while nothing is watched.
func (f *File) notices() <-chan []notice {
	if f.watcher == nil {
		return nil
	}
	return f.watcher.notices
}

// handle acts on the kernel's notices.
func (f *File) handle(batch []notice) {
	// A notice of an earlier watch means nothing now. One of these notices says that the earlier
	// watch ended.
	batch = slices.DeleteFunc(batch, func(n notice) bool {
		return n.watch != f.watcher.watch && n.mask&unix.IN_Q_OVERFLOW == 0
	})
	if len(batch) == 0 {
		return
	}
	for _, n := range batch {
		if f.wanted(n.name) && n.mask&unix.IN_DELETE != 0 {
			f.known.deleted(n.name)
		}
	}
	if f.trouble != "" || slices.ContainsFunc(batch, f.beyondFiles) {
		f.lookThrough()
		return
	}
	dir, err := f.open()
	if err != nil {
		f.lookThrough()
		return
	}
	defer dir.close()
	for _, n := range batch {
		if f.wanted(n.name) && !f.incomplete(dir, n) {
			f.known.update(dir, n.name, n.mask&unix.IN_CLOSE_WRITE != 0)
		}
	}
	f.known.updateLinks(dir)
}

// beyondFiles reports whether a notice is a reason to look through everything. There are four
// reasons:
//   - The kernel lost notices.
//   - The directory itself changed, or does not exist yet.
//   - A directory that links lead through was swapped.
//   - The single file may now be something else.
func (f *File) beyondFiles(n notice) bool {
	switch {
	case n.mask&unix.IN_Q_OVERFLOW != 0:
		f.log.Warn("inotify lost notices, looking through all manifests", "path", f.path)
		return true
	case n.mask&(unix.IN_DELETE_SELF|unix.IN_MOVE_SELF|unix.IN_UNMOUNT|unix.IN_IGNORED) != 0:
		f.watcher.disarm() // the directory may come back, even with the same inode number
		return true
	case f.single != "":
		return n.name == f.single && n.mask&unix.IN_CLOSE_WRITE == 0
	default:
		return f.watcher.watched != f.dir() || n.name == "" || strings.HasPrefix(n.name, "..")
	}
}

// incomplete reports whether a notice is about a file that was just created and will be written.
// For such a file another notice comes when it is closed.
//
// A link is complete when it is created. A file that had no name while it was written (O_TMPFILE)
// may be complete, too: its close gives no notice under its name. While such a file is open, the
// source looks at it again, like at every file that is being written.
func (f *File) incomplete(dir *directory, n notice) bool {
	if n.mask&unix.IN_CREATE == 0 {
		return false
	}
	info, err := dir.root.Lstat(n.name)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && st.Nlink == 1 && dir.unwritten(n.name)
}

// dir returns the directory that is read.
func (f *File) dir() string {
	if f.single != "" {
		return filepath.Dir(f.path)
	}
	return f.path
}

// wanted reports whether a name in the directory counts.
func (f *File) wanted(name string) bool {
	if f.single != "" {
		return name == f.single
	}
	return isManifestName(name)
}

// lookThrough watches the directory, unless the current directory is already watched. Then it
// updates the state of every file, and does not read files that did not change.
func (f *File) lookThrough() {
	defer f.publish()
	info, err := os.Stat(f.path)
	if err == nil && !info.IsDir() && !info.Mode().IsRegular() {
		err = fmt.Errorf("it is neither a directory nor a file but %s", kindOf(info.Mode()))
	}
	if errors.Is(err, fs.ErrNotExist) && f.single != "" {
		// The user deleted the single file to remove its pods.
		info, err = os.Stat(f.dir())
	} else if err == nil {
		f.single = ""
	}
	if err != nil {
		f.watch(fileID{})
		f.troubled(err)
		return
	}
	if info.Mode().IsRegular() {
		f.single = filepath.Base(f.path)
		if info, err = os.Stat(f.dir()); err != nil {
			f.troubled(err)
			return
		}
	}
	f.watch(identify(info))
	f.dirWarn = ownerWarnings(info)
	if err := f.checkAbove(info); err != nil {
		f.troubled(err)
		return
	}
	if err := f.readAll(); err != nil {
		f.troubled(err)
		return
	}
	f.ready, f.trouble = true, ""
}

// readAll updates the state of every file.
func (f *File) readAll() error {
	dir, err := f.open()
	if err != nil {
		return bare(err)
	}
	defer dir.close()
	names := []string{f.single}
	if f.single == "" {
		if names, err = dir.names(); err != nil {
			return bare(err)
		}
	}
	present := make(map[string]bool, len(names))
	for _, name := range names {
		present[name] = true
		f.known.update(dir, name, false)
	}
	for name := range f.known.files {
		if !present[name] {
			delete(f.known.files, name)
		}
	}
	return nil
}

// open opens the directory that is read. The caller closes it.
func (f *File) open() (*directory, error) {
	dir, err := openDirectory(f.dir())
	if err == nil {
		dir.check = f.checkWriters
	}
	return dir, err
}

// checkWriters returns an error if everybody may write to a file or directory, unless the config
// allows that.
func (f *File) checkWriters(info fs.FileInfo) error {
	if mode := info.Mode().Perm(); mode&0o002 != 0 && !f.insecure {
		return fmt.Errorf("its mode %04o lets everybody write to it, who can so run any pod on this node as root: "+
			"take that away (chmod o-w), or set insecureManifests: true", mode)
	}
	return nil
}

// checkAbove checks who may write to the manifest directory, and who may replace it: whoever may
// write to a directory above it, unless only owners may rename there (as in /tmp).
func (f *File) checkAbove(info fs.FileInfo) error {
	if err := f.checkWriters(info); err != nil || f.insecure {
		return err
	}
	path, err := filepath.EvalSymlinks(f.dir())
	if err != nil {
		return err
	}
	for path != "/" && path != "." {
		path = filepath.Dir(path)
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		if info.Mode()&fs.ModeSticky == 0 {
			if err := f.checkWriters(info); err != nil {
				return fmt.Errorf("%s is above it: %w", path, err)
			}
		}
	}
	return nil
}

// troubled records that the directory cannot be read. What was read before stays.
func (f *File) troubled(err error) {
	text := bare(err).Error()
	if errors.Is(err, fs.ErrNotExist) {
		text = "it does not exist"
	}
	if f.trouble != text {
		f.log.Warn("cannot read the manifests", "path", f.path, "err", text, "kept", len(f.known.files))
	}
	f.trouble = text
}

// watch arms the watcher, unless it already watches that very directory.
func (f *File) watch(id fileID) {
	if f.watcher == nil {
		w, err := newWatcher()
		if err != nil {
			f.log.Warn("cannot watch the manifests, looking through them instead", "path", f.path, "err", err)
			return
		}
		f.watcher = w
	}
	same := id.inode != 0 && id.inode == f.dirID.inode && id.device == f.dirID.device
	if same && f.watcher.watched == f.dir() {
		return
	}
	f.dirID = id
	if _, err := f.watcher.arm(f.dir()); err != nil {
		f.log.Warn("cannot watch the manifests, looking through them instead", "path", f.path, "err", err)
		f.stopWatching()
	}
}

func (f *File) stopWatching() {
	if f.watcher != nil {
		f.watcher.close()
		f.watcher = nil
	}
}

// publish hands out a snapshot if anything changed since the last one.
func (f *File) publish() {
	s := f.known.snapshot(f.dir())
	s.Ready = f.ready
	switch {
	case f.trouble != "":
		s.Results = append([]Result{{File: f.path, Message: f.trouble}}, s.Results...)
	case len(f.dirWarn) > 0:
		s.Results = append([]Result{{File: f.dir(), Accepted: true, Warnings: f.dirWarn}}, s.Results...)
	}
	f.known.date(&s)
	if f.last != nil && sameSnapshot(f.last, &s) {
		return
	}
	f.last = &s
	f.out(s)
}
