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

// dirMode is the mode of the directory of sockets, as the kubelet's: whoever may write there can register as any driver.
const dirMode = 0o750

// Plugin is a plugin as it presents itself.
type Plugin struct {
	// Name is the plugin's own, a storage driver's for example.
	Name string
	// Endpoint is the socket on which it serves.
	Endpoint string
	// Versions are those of its API that it speaks.
	Versions []string
	// Socket is where it registers; it tells two registrations of one name apart.
	Socket string
}

// Handler takes the plugins of one type.
type Handler interface {
	// Register takes a plugin. After an error the plugin is told, and asked again later.
	Register(ctx context.Context, p Plugin) error
	// Deregister gives back a plugin that was taken. The end of Run does not: the plugins outlive it.
	Deregister(p Plugin)
}

// Config is what a [Watcher] is told once.
type Config struct {
	// Dir is the directory of sockets, an absolute path. It is made where it is missing.
	Dir string
	// Handlers are those who take plugins, by type.
	Handlers map[string]Handler
	Logger   *slog.Logger
}

// Watcher watches a directory of sockets. Make it with [New].
type Watcher struct {
	cfg     Config
	sockets map[string]*socket // Run's own
}

// socket is one socket that was found.
type socket struct {
	path string
	// id tells it from another one of the same name.
	id     identity
	cancel context.CancelFunc
	// done is closed when its goroutine has ended; plugin is then what was registered, nil where nothing was.
	done   chan struct{}
	plugin *taken
}

// taken is a plugin with who has taken it.
type taken struct {
	Plugin
	handler Handler
}

// identity is what a new socket of an old name does not share with it.
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

// lookAgain is how often the directory is looked through where the kernel does not tell of its changes, or it cannot be read.
const lookAgain = 2 * time.Second

// Run watches until ctx ends. Plugins that are registered then stay so: the agent's end is none of theirs. It never gives up: where the kernel has no watches left, or
// the directory cannot be read, it is looked at by the clock, and what is registered stays.
func (w *Watcher) Run(ctx context.Context) error {
	var notices *fsnotify.Watcher
	defer func() {
		if notices != nil {
			_ = notices.Close() // nothing is written through it
		}
	}()
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for trouble := ""; ; {
		var unwatched error
		if notices == nil {
			notices, unwatched = fsnotify.NewWatcher()
		}
		if unwatched != nil {
			notices = nil
		}
		found, missed, err := w.scan(notices)
		if err == nil {
			w.settle(ctx, &all, found)
		}
		err = errors.Join(err, unwatched, missed)
		switch {
		case err == nil:
			trouble = ""
		case err.Error() != trouble:
			trouble = err.Error()
			w.cfg.Logger.Warn("the directory of plugins' sockets cannot be watched; it is looked through instead, and what is registered stays", "dir", w.cfg.Dir, "err", err)
		}
		if !w.await(ctx, notices, err != nil) {
			return nil
		}
	}
}

// await waits for a reason to look again: a notice, or where there is trouble the time. It reports whether ctx let it.
func (w *Watcher) await(ctx context.Context, notices *fsnotify.Watcher, trouble bool) bool {
	var events <-chan fsnotify.Event
	var errs <-chan error
	if notices != nil {
		events, errs = notices.Events, notices.Errors
	}
	var again <-chan time.Time
	if trouble {
		timer := time.NewTimer(lookAgain)
		defer timer.Stop()
		again = timer.C
	}
	select {
	case <-ctx.Done():
		return false
	case <-again:
	case event := <-events:
		w.cfg.Logger.Debug("change among the plugins' sockets", "path", event.Name, "what", event.Op.String())
	case err := <-errs: // notices were lost: the scan sees what they were about
		w.cfg.Logger.Warn("the kernel's notices about plugins' sockets are incomplete", "dir", w.cfg.Dir, "err", err)
	}
	return true
}

// scan has all directories watched and returns the sockets in them; missed is why one is not watched. Names that begin with a dot are not looked at.
func (w *Watcher) scan(notices *fsnotify.Watcher) (found map[string]identity, missed, err error) {
	if err := os.MkdirAll(w.cfg.Dir, dirMode); err != nil {
		return nil, nil, err
	}
	found = map[string]identity{}
	err = filepath.WalkDir(w.cfg.Dir, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist) && path != w.cfg.Dir:
			return nil // it went meanwhile, of which there will be a notice
		case err != nil:
			return err
		case entry.IsDir() && path != w.cfg.Dir && strings.HasPrefix(entry.Name(), "."):
			return fs.SkipDir
		case entry.IsDir() && notices != nil:
			if err := notices.Add(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
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

// settle brings the goroutines in line with the sockets that were found.
func (w *Watcher) settle(ctx context.Context, all *sync.WaitGroup, found map[string]identity) {
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
