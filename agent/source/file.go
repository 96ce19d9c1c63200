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
)

const (
	// DefaultRescan is how often the directory is looked through whatever the kernel says, the kubelet's fileCheckFrequency.
	DefaultRescan = 20 * time.Second
	// retryFirst is how soon a directory that could not be read, or a file that is being written, is tried again; the time doubles up to the rescan's.
	retryFirst = 100 * time.Millisecond
)

// FileConfig is how a manifest directory is read.
type FileConfig struct {
	// Path is the manifest directory (staticPodPath), or a single manifest file.
	Path string
	// NodeName is the node's name.
	NodeName string
	// Rescan is how often the directory is looked through as a safety net; 0 means DefaultRescan.
	Rescan time.Duration
}

// FileDeps are what a file source needs.
type FileDeps struct {
	Logger *slog.Logger
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// LastGood, where not nil, returns the pods that a manifest last held before this agent started. It is asked about manifests that are bad when they are
	// first read, so that these keep their pods over a restart of the agent.
	LastGood func(file string) []*v1.Pod
}

// File is the source of a manifest directory. It is a [Source].
type File struct {
	path   string
	rescan time.Duration
	log    *slog.Logger

	// All below is Run's.
	out     func(Snapshot)
	known   *manifests
	watcher *watcher
	single  string // the only file that counts, in single file mode
	dirID   fileID
	ready   bool
	trouble string // why the directory cannot be read
	dirWarn []string
	retry   time.Duration
	last    *Snapshot
}

// NewFile returns a source for a manifest directory or file. It does nothing until Run.
func NewFile(cfg FileConfig, deps FileDeps) *File {
	f := &File{
		path:   filepath.Clean(cfg.Path),
		rescan: cfg.Rescan,
		log:    deps.Logger,
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
	f.known = &manifests{decoder: Decoder{NodeName: cfg.NodeName}, now: now, lastGood: deps.LastGood, files: map[string]*manifest{}}
	return f
}

// Name returns NameFile.
func (f *File) Name() string { return NameFile }

// Run reads the manifests and keeps them up to date until ctx ends. It is called once. It never gives up: whatever cannot be read is in the
// snapshots' verdicts and is tried again.
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

// unsettled reports whether something is to be tried again soon.
func (f *File) unsettled() bool {
	return f.trouble != "" || f.watcher == nil || f.known.anyBusy()
}

// wait is how long until the next look through the directory.
func (f *File) wait() time.Duration {
	if !f.unsettled() {
		f.retry = 0
		return f.rescan
	}
	f.retry = min(max(2*f.retry, retryFirst), f.rescan)
	return f.retry
}

// notices is where the kernel's notices come from, or nil while nothing is watched.
func (f *File) notices() <-chan []notice {
	if f.watcher == nil {
		return nil
	}
	return f.watcher.notices
}

// handle acts on the kernel's notices.
func (f *File) handle(batch []notice) {
	// Notices of an earlier watch, among them that it ended, mean nothing any more.
	batch = slices.DeleteFunc(batch, func(n notice) bool { return n.watch != f.watcher.watch && n.mask&unix.IN_Q_OVERFLOW == 0 })
	if len(batch) == 0 {
		return
	}
	if f.trouble != "" || slices.ContainsFunc(batch, f.beyondFiles) {
		f.lookThrough()
		return
	}
	dir, err := openDirectory(f.dir())
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

// beyondFiles reports whether a notice is a reason to look through everything: notices were lost, the directory itself changed or is not there yet, a
// directory that links lead through was swapped, or the single file may have become something else.
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

// incomplete reports whether a notice is of a file that was just created and will be written: another notice comes when it is closed. Links are complete
// when they are created, and so may be a file that had no name while it was written (O_TMPFILE): its close gives no notice under its name. While that is open,
// it is looked at again, as every file that is being written.
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

// dir is the directory that is read.
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

// lookThrough watches the directory, if that is not done yet or it was replaced, and brings what is known of every file up to date. Files that did not change
// are not read.
func (f *File) lookThrough() {
	defer f.publish()
	info, err := os.Stat(f.path)
	if err == nil && !info.IsDir() && !info.Mode().IsRegular() {
		err = fmt.Errorf("it is neither a directory nor a file but %s", kindOf(info.Mode()))
	}
	if errors.Is(err, fs.ErrNotExist) && f.single != "" {
		info, err = os.Stat(f.dir()) // the single file was deleted: that is how its pods are removed
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
	if err := f.readAll(); err != nil {
		f.troubled(err)
		return
	}
	f.ready, f.trouble = true, ""
}

// readAll brings what is known of every file up to date.
func (f *File) readAll() error {
	dir, err := openDirectory(f.dir())
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

// troubled notes that the directory cannot be read. What was read before stays.
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

// watch arms the watcher, unless it watches that very directory already.
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
		s.Verdicts = append([]Verdict{{File: f.path, Message: f.trouble}}, s.Verdicts...)
	case len(f.dirWarn) > 0:
		s.Verdicts = append([]Verdict{{File: f.dir(), Accepted: true, Warnings: f.dirWarn}}, s.Verdicts...)
	}
	f.known.date(&s)
	if f.last != nil && sameSnapshot(f.last, &s) {
		return
	}
	f.last = &s
	f.out(s)
}
