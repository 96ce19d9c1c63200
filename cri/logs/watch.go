package logs

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"

	"github.com/fsnotify/fsnotify"
)

// watch tells that a log changed: that it was written, renamed or made anew.
type watch struct {
	changed chan struct{} // holds one token at most: look again
	watcher *fsnotify.Watcher
	done    sync.WaitGroup
}

// newWatch watches a log's directory. Where the machine has no watches left, nothing is told, and the caller's own interval must do.
func newWatch(d *dir, name string, log *slog.Logger) *watch {
	w := &watch{changed: make(chan struct{}, 1)}
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		// Through the descriptor, it is the directory that the log was opened in, whatever its name leads to now.
		if err = watcher.Add(fmt.Sprintf("/proc/self/fd/%d", d.fd)); err != nil {
			_ = watcher.Close()
		}
	}
	if err != nil {
		log.Warn("Following a log slowly, because its directory cannot be watched", "err", err)
		return w
	}
	w.watcher = watcher
	w.done.Go(func() { w.forward(name) })
	return w
}

// forward turns events into tokens until the watcher is closed.
func (w *watch) forward(name string) {
	for {
		select {
		case e, open := <-w.watcher.Events:
			if !open {
				return
			}
			if !strings.HasPrefix(filepath.Base(e.Name), name) {
				continue
			}
		case _, open := <-w.watcher.Errors: // too many events at once: some are lost
			if !open {
				return
			}
		}
		select {
		case w.changed <- struct{}{}:
		default:
		}
	}
}

func (w *watch) close() {
	if w.watcher != nil {
		_ = w.watcher.Close()
		w.done.Wait()
	}
}
