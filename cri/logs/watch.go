package logs

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"

	"github.com/fsnotify/fsnotify"

	"github.com/berthd/berth/internal/notify"
)

// mostWatches is how many followers of logs watch them; each more looks once in an interval. All of
// a user's programs have 128 instances of inotify together by default (max_user_instances in
// inotify(7)), and without one for itself, a containerd that starts leaves its CRI out.
const mostWatches = 24

// watches has an element for each follower that watches.
var watches = make(chan struct{}, mostWatches)

// watch reports changes of a log: the log was written, renamed or made again.
type watch struct {
	changed notify.Signal
	watcher *fsnotify.Watcher
	done    sync.WaitGroup
}

// newWatch watches a log's directory. If the machine has no watches left, or [mostWatches] are in
// use, the watch reports nothing, and the caller depends on its own interval.
func newWatch(d *dir, name string, log *slog.Logger) *watch {
	w := &watch{changed: notify.New()}
	select {
	case watches <- struct{}{}:
	default:
		return w
	}
	watcher, err := fsnotify.NewWatcher()
	if err == nil {
		// With the descriptor, the watch stays on the directory in which the log was opened, even
		// if the directory's name leads elsewhere now.
		if err = watcher.Add(fmt.Sprintf("/proc/self/fd/%d", d.fd)); err != nil {
			_ = watcher.Close()
		}
	}
	if err != nil {
		<-watches
		log.Warn("Following a log slowly, because its directory cannot be watched", "err", err)
		return w
	}
	w.watcher = watcher
	w.done.Go(func() { w.forward(name) })
	return w
}

// forward turns events into notifications until the watcher is closed.
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
		w.changed.Notify()
	}
}

func (w *watch) close() {
	if w.watcher != nil {
		_ = w.watcher.Close()
		w.done.Wait()
		<-watches
	}
}
