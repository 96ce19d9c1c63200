package history

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/pod/timeline"
	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/internal/loglimit"
	"github.com/berthd/berth/internal/notify"
	"github.com/berthd/berth/internal/retry"
)

const (
	// delay is how long records are collected before they are written together.
	delay = 3 * time.Second
	// maxQueue limits the records that wait to be written; the oldest ones are dropped.
	maxQueue = 10000
)

// Config says where the history is and how much of it is kept.
type Config struct {
	// Dir is the directory of the segments, which nobody else uses.
	Dir string
	// MaxBytes limits all segments together, and MaxAge the age of the records.
	MaxBytes int64
	MaxAge   time.Duration
}

// ConfigFrom reads the agent's config, whose validation has checked the quantity.
func ConfigFrom(cfg *configs.Config) Config {
	size, _ := resource.ParseQuantity(cfg.Berth.History.MaxSize)
	return Config{
		Dir: filepath.Join(cfg.RootDir, "berth", "history"), MaxBytes: size.Value(),
		MaxAge: cfg.Berth.History.MaxAge.Duration,
	}
}

// Life is what a pod's worker did in one run of the agent, or a part of that.
type Life struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	UID       types.UID `json:"uid"`
	// Run is when the agent of that time began.
	Run time.Time `json:"run"`
	// Whole says that Entries are the whole timeline, which replaces the parts before it.
	Whole bool `json:"whole,omitempty"`
	// Gone says that the pod was removed then.
	Gone bool `json:"gone,omitempty"`
	// Status is the pod's status of that time: its reason or its phase.
	Status  string           `json:"status,omitempty"`
	Entries []timeline.Entry `json:"entries"`
}

// record is one line of a segment.
type record struct {
	At    time.Time `json:"at"`
	Event *v1.Event `json:"event,omitempty"`
	Life  *Life     `json:"life,omitempty"`
}

// Pod is a pod as the history names it.
type Pod struct{ Namespace, Name, Status string }

// Deps are where the history comes from.
type Deps struct {
	Timeline *timeline.Recorder
	// Pod returns the pod with a UID, and false for a pod that nobody knows.
	Pod    func(uid types.UID) (Pod, bool)
	Logger *slog.Logger
}

// lock is a mutex whose callers can give up. Make it with room for one.
type lock chan struct{}

// lock takes the lock, or returns the error of ctx when ctx ends before.
func (l lock) lock(ctx context.Context) error {
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (l lock) unlock() { <-l }

// Recorder keeps the history. Make it with [New].
type Recorder struct {
	cfg  Config
	deps Deps
	run  time.Time
	news notify.Signal

	mu    sync.Mutex
	queue []record
	// disk guards the segments. It is taken before mu. Its holder may wait for the disk.
	disk     lock
	segments segments
	failures loglimit.Limiter
}

// New returns a recorder, which writes nothing before [Recorder.Run].
func New(cfg Config, deps Deps) *Recorder {
	return &Recorder{
		cfg: cfg, deps: deps, run: time.Now(), news: notify.New(), disk: make(lock, 1),
		segments: segments{dir: cfg.Dir, maxBytes: cfg.MaxBytes, maxAge: cfg.MaxAge, append: (*os.File).Write},
	}
}

// Event records an event. A repeat of an event replaces the event when the history is read. Event
// never blocks.
func (r *Recorder) Event(e v1.Event) {
	if r != nil {
		r.add(record{At: time.Now(), Event: &e})
	}
}

// End records the whole timeline of a pod that is removed.
func (r *Recorder) End(uid types.UID) {
	if r == nil {
		return
	}
	if l := r.life(uid, r.deps.Timeline.Get(uid)); l != nil {
		l.Whole, l.Gone = true, true
		r.add(record{At: time.Now(), Life: l})
	}
}

// life returns a record of a pod with these entries; nil if there are none, or nobody knows the
// pod.
func (r *Recorder) life(uid types.UID, entries []timeline.Entry) *Life {
	p, ok := r.deps.Pod(uid)
	if !ok || len(entries) == 0 {
		return nil
	}
	return &Life{
		Namespace: p.Namespace, Name: p.Name, UID: uid, Run: r.run, Status: p.Status, Entries: entries,
	}
}

func (r *Recorder) add(rec record) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) >= maxQueue {
		r.queue = slices.Delete(r.queue, 0, maxQueue/10)
	}
	r.queue = append(r.queue, rec)
	r.news.Notify()
}

// Run writes what is recorded until ctx ends; then it writes the timelines of all pods.
func (r *Recorder) Run(ctx context.Context) error {
	changed := r.deps.Timeline.Changed()
	for {
		select {
		case <-ctx.Done():
		case <-r.news:
		case <-changed:
		}
		if ctx.Err() != nil || !retry.Sleep(ctx, delay) {
			break
		}
		r.flush(r.parts())
	}
	var lives []record
	for uid, entries := range r.deps.Timeline.All() {
		if l := r.life(uid, entries); l != nil {
			l.Whole = true
			lives = append(lives, record{At: time.Now(), Life: l})
		}
	}
	r.flush(lives)
	_ = r.disk.lock(context.WithoutCancel(ctx)) // it has no end
	defer r.disk.unlock()
	r.segments.close()
	return nil
}

// parts returns what was added to the timelines since the last call.
func (r *Recorder) parts() []record {
	var out []record
	for uid, entries := range r.deps.Timeline.Take() {
		if l := r.life(uid, entries); l != nil {
			out = append(out, record{At: time.Now(), Life: l})
		}
	}
	return out
}

// flush writes the queue, and these records behind it.
func (r *Recorder) flush(more []record) {
	_ = r.disk.lock(context.Background()) // it has no end
	defer r.disk.unlock()
	r.mu.Lock()
	queue := r.queue
	r.queue = nil
	r.mu.Unlock()
	var text []byte
	for _, rec := range append(queue, more...) {
		line, err := json.Marshal(rec)
		if err == nil && len(line) < maxLine { // no reader takes a longer one
			text = append(append(text, line...), '\n')
		}
	}
	if len(text) == 0 {
		return
	}
	now := time.Now()
	switch err := r.segments.write(text, now); {
	case err == nil && r.failures.Recovered():
		r.deps.Logger.Info("the history of pods is kept again", "dir", r.cfg.Dir)
	case err != nil && r.failures.Allow(err, now):
		r.deps.Logger.Warn("a part of the history of pods is lost", "dir", r.cfg.Dir, "err", err)
	}
}
