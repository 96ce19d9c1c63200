package plugins

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"
)

// dirMode is the mode of the directory of sockets. It is the kubelet's, because everybody who may
// write there can register as any driver.
const dirMode = 0o750

// Plugin is what a plugin says about itself.
type Plugin struct {
	// Name is the plugin's name, for example a storage driver's.
	Name string
	// Endpoint is the socket on which it serves.
	Endpoint string
	// Versions are the versions of its API that it supports.
	Versions []string
	// Socket is the socket on which it registers. It distinguishes two registrations of one name.
	Socket string
}

// Handler registers the plugins of one type.
type Handler interface {
	// Register registers a plugin. The plugin gets the error, and it is asked again later.
	Register(ctx context.Context, p Plugin) error
	// Deregister undoes Register. It is not called when Run ends, because the plugins outlive the
	// agent.
	Deregister(p Plugin)
}

// Config configures a [Watcher].
type Config struct {
	// Dir is the directory of sockets, an absolute path. Run makes it if it is missing.
	Dir string
	// Handlers are the handlers, by the type of plugin.
	Handlers map[string]Handler
	Logger   *slog.Logger
}

// Watcher watches a directory of sockets. Make it with [New].
type Watcher struct {
	cfg     Config
	sockets map[string]*socket // only Run uses it
}

// socket is one socket that was found.
type socket struct {
	path string
	// id distinguishes it from another socket of the same name.
	id     identity
	cancel context.CancelFunc
	// done is closed when the socket's goroutine has ended. plugin is then the registered plugin;
	// nil if there is none.
	done   chan struct{}
	plugin *registered
}

// registered is a plugin with the handler that has registered it.
type registered struct {
	Plugin
	handler Handler
}

// identity differs between two sockets of the same name.
type identity struct {
	inode    uint64
	modified time.Time
}

// New returns a watcher; it does nothing until Run.
func New(cfg Config) *Watcher {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	return &Watcher{cfg: cfg, sockets: map[string]*socket{}}
}

// scanPeriod is how often the directory is scanned while it cannot be watched or read.
const scanPeriod = 2 * time.Second

// Run watches the directory until ctx ends. Registered plugins then stay registered, because they
// outlive the agent. Run never gives up: if the kernel has no watches left, or the directory cannot
// be read, Run scans it periodically, and registered plugins stay.
func (w *Watcher) Run(ctx context.Context) error {
	var watches *fsnotify.Watcher
	defer func() {
		if watches != nil {
			_ = watches.Close() // nothing is written through it
		}
	}()
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for logged := ""; ; {
		var unwatched error
		if watches == nil {
			watches, unwatched = fsnotify.NewWatcher()
		}
		if unwatched != nil {
			watches = nil
		}
		found, missed, err := w.scan(watches)
		if err == nil {
			w.reconcile(ctx, &all, found)
		}
		err = errors.Join(err, unwatched, missed)
		switch {
		case err == nil:
			logged = ""
		case err.Error() != logged:
			logged = err.Error()
			w.cfg.Logger.Warn("the directory of plugins' sockets cannot be watched; it is looked through instead, and "+
				"what is registered stays", "dir", w.cfg.Dir, "err", err)
		}
		if !w.await(ctx, watches, err != nil) {
			return nil
		}
	}
}

// await waits for an event of the kernel or, if the directory cannot be watched, for the next scan.
// It returns false if ctx has ended.
func (w *Watcher) await(ctx context.Context, watches *fsnotify.Watcher, unwatched bool) bool {
	var events <-chan fsnotify.Event
	var errs <-chan error
	if watches != nil {
		events, errs = watches.Events, watches.Errors
	}
	var again <-chan time.Time
	if unwatched {
		timer := time.NewTimer(scanPeriod)
		defer timer.Stop()
		again = timer.C
	}
	select {
	case <-ctx.Done():
		return false
	case <-again:
	case event := <-events:
		w.cfg.Logger.Debug("change among the plugins' sockets", "path", event.Name, "what", event.Op.String())
	case err := <-errs: // events were lost; the next scan finds what they were about
		w.cfg.Logger.Warn("the kernel's notices about plugins' sockets are incomplete", "dir", w.cfg.Dir, "err", err)
	}
	return true
}

// scan adds a watch for every directory and returns the sockets. missed says why a directory is not
// watched, or cannot be read: the sockets that were found in it before count as found, and those
// elsewhere must not suffer. Names that begin with a dot are ignored.
func (w *Watcher) scan(watches *fsnotify.Watcher) (found map[string]identity, missed, err error) {
	if err := os.MkdirAll(w.cfg.Dir, dirMode); err != nil {
		return nil, nil, err
	}
	found = map[string]identity{}
	err = filepath.WalkDir(w.cfg.Dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist) && path != w.cfg.Dir:
			return nil // it was removed meanwhile, and an event will follow
		case err != nil && path == w.cfg.Dir:
			return err
		case err != nil:
			missed = err
			for known, s := range w.sockets {
				if strings.HasPrefix(known, path+string(filepath.Separator)) {
					found[known] = s.id
				}
			}
		case entry.IsDir() && path != w.cfg.Dir && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		case entry.IsDir() && watches != nil:
			if err := watches.Add(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				missed = err
			}
		case entry.Type() == fs.ModeSocket && !strings.HasPrefix(entry.Name(), "."):
			if info, err := entry.Info(); err == nil {
				found[path] = identify(info)
			}
		}
		return nil
	})
	return found, missed, err
}

// reconcile starts and ends the goroutines of sockets according to the sockets that were found.
func (w *Watcher) reconcile(ctx context.Context, all *sync.WaitGroup, found map[string]identity) {
	for path, s := range w.sockets {
		if id, there := found[path]; there && id == s.id {
			continue
		}
		s.cancel()
		<-s.done
		if s.plugin != nil {
			w.cfg.Logger.Info("plugin is gone", "plugin", s.plugin.Name, "socket", path)
			s.plugin.handler.Deregister(s.plugin.Plugin)
		}
		delete(w.sockets, path)
	}
	for path, id := range found {
		if w.sockets[path] != nil || ctx.Err() != nil {
			continue
		}
		s := &socket{path: path, id: id, done: make(chan struct{})}
		var sctx context.Context
		sctx, s.cancel = context.WithCancel(ctx)
		w.sockets[path] = s
		all.Go(func() {
			defer close(s.done)
			defer s.cancel()
			w.register(sctx, s)
		})
	}
}
