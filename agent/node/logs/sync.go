package logs

import (
	"context"
	"time"

	"github.com/berthd/berth/cri/logs"
	"github.com/berthd/berth/internal/retry"
)

// sync checks the logs that are due and starts jobs if there are free workers. It returns how long
// until the next check is due; 0 if none is.
func (m *Manager) sync(ctx context.Context, now time.Time) (next time.Duration) {
	room := m.cfg.NodeMax - m.total()
	for _, s := range m.sets {
		if s.dir != nil && (s.cancel == nil || s.compressing) && !s.due.IsZero() &&
			!s.due.After(now.Add(shortestWait/2)) {
			before := s.size
			m.check(s, now, room)
			room -= s.size - before
		}
	}
	m.enforceNodeMax(now)
	for _, s := range m.sets {
		m.startJob(ctx, s, now)
	}
	soonest := func(at time.Time) {
		if !at.IsZero() {
			if d := max(at.Sub(now), shortestWait/2); next == 0 || d < next {
				next = d
			}
		}
	}
	for _, s := range m.sets {
		soonest(s.due)
		if s.wanted() && s.retryAt.After(now) {
			soonest(s.retryAt)
		}
		if s.compressAt.After(now) {
			soonest(s.compressAt)
		}
	}
	return next
}

// check checks the size of a current log.
func (m *Manager) check(s *set, now time.Time, room int64) {
	s.due = time.Time{}
	size, err := s.dir.Size(s.live)
	if err != nil {
		s.stale = true // the log was renamed or removed; the job finds out
		return
	}
	v := m.policy.decide(observation{
		size:   size,
		before: s.size,
		since:  now.Sub(s.seen),
		others: s.total() - s.size,
		room:   room,
	})
	s.size, s.seen, s.rate = size, now, v.rate
	if v.rotate {
		s.rotate = true
		return
	}
	if v.wait > 0 {
		s.due = now.Add(v.wait)
		return
	}
	m.watchNextWrite(s, now)
}

// watchNextWrite has the kernel report the next write.
func (m *Manager) watchNextWrite(s *set, now time.Time) {
	f, err := s.dir.Open(s.live)
	if err != nil {
		s.stale = true
		return
	}
	defer f.Close()
	watch, err := m.watcher.add(f)
	if err != nil {
		s.due = now.Add(m.cfg.Interval) // the machine has no watches left
		return
	}
	m.watches[watch], s.watch = s.key, watch
	// something was written before the watch began
	if info, err := f.Stat(); err != nil || info.Size() != s.size {
		m.unwatch(s)
		s.due = now
	}
}

// lowWater is the part of the node's bound that stays in use after the bound was exceeded. The
// bound is then not exceeded again at once.
const lowWater = 0.9

// enforceNodeMax chooses what has to be removed if all logs together are too large. While jobs are
// about to make room, it waits for them.
func (m *Manager) enforceNodeMax(now time.Time) {
	if m.total() <= m.cfg.NodeMax {
		return
	}
	all := map[key]inventory{}
	for k, s := range m.sets {
		if s.retryAt.After(now) {
			continue // its last job failed, so it cannot give anything now
		}
		if len(s.relief.remove) > 0 || s.relief.rotate || s.cancel != nil && !s.compressing {
			return
		}
		all[k] = s.inventory()
	}
	for k, r := range relieve(all, int64(float64(m.cfg.NodeMax)*lowWater)) {
		m.sets[k].relief = r
	}
}

// startJob starts a job for a set that needs one, if a worker is free.
func (m *Manager) startJob(ctx context.Context, s *set, now time.Time) {
	switch {
	case s.cancel != nil:
		if s.compressing && s.wanted() {
			s.cancel() // rotation is more urgent
		}
	case s.wanted() && !s.retryAt.After(now) && m.rotating < max(1, m.cfg.Workers):
		m.rotating++
		m.unwatch(s)
		s.due = time.Time{}
		j := job{
			dirPath: string(s.key), id: s.id, live: s.live, relief: s.relief, policy: m.policy, rotate: s.rotate,
		}
		s.stale, s.rotate, s.relief = false, false, relief{}
		m.start(ctx, s, j)
	case !s.wanted() && m.compressing == 0 && !s.compressAt.After(now) && !m.policy.tooFast(s.rate):
		if c := s.inventory().compressible(); len(c) > 0 {
			m.compressing++
			s.compressing = true
			m.start(ctx, s, job{dirPath: string(s.key), live: s.live, compress: c[0].Name, policy: m.policy})
		}
	}
}

// start runs a job in a goroutine of its own.
func (m *Manager) start(ctx context.Context, s *set, j job) {
	ctx, s.cancel = context.WithCancel(ctx)
	m.jobs.Go(func() {
		r := j.run(ctx, m.cfg.Root, m.deps.Runtime)
		r.set = s
		m.results <- r
	})
}

// finished takes in the result of a job.
func (m *Manager) finished(r result) {
	if r.job.compress != "" {
		m.compressing--
	} else {
		m.rotating--
	}
	s := r.set
	if m.sets[s.key] != s { // the pod is gone
		if r.dir != nil {
			_ = r.dir.Close()
		}
		return
	}
	s.cancel()
	s.cancel, s.compressing = nil, false
	if r.entries != nil {
		s.entries = r.entries
	}
	m.reopened(s, r.dir)
	if r.job.compress != "" {
		m.compressed(s, r)
		return
	}
	if r.err != nil {
		m.failed(s, r)
		return
	}
	if s.failures > 0 {
		m.log.Info("Container logs are kept small again", "logs", s.key, "after", s.failures)
	}
	s.failures, s.retryAt = 0, time.Time{}
	if r.job.id == s.id && s.live != "" {
		s.size, s.seen = sizeOf(s.entries, s.live), time.Now()
		s.due = s.seen
		if r.rotated { // the container goes on writing; the next check shows how fast
			s.due = s.due.Add(shortestWait)
		}
	}
}

// reopened replaces the directory that checks use.
func (m *Manager) reopened(s *set, dir *logs.Directory) {
	if dir == nil {
		return
	}
	s.close()
	if s.live == "" {
		_ = dir.Close()
		return
	}
	s.dir = dir
}

const (
	// firstRetry is the wait after the first failed job of a set. The wait doubles up to lastRetry,
	// and it is never longer than the interval of the config.
	firstRetry = 100 * time.Millisecond
	lastRetry  = firstRetry << 10
)

// failed schedules a failed job again. The wait is long enough to cause no load, and short enough
// not to be late.
func (m *Manager) failed(s *set, r result) {
	s.failures++
	backoff := retry.Backoff{First: firstRetry, Most: min(lastRetry, m.cfg.Interval)}
	s.retryAt = time.Now().Add(backoff.Delay(s.failures))
	s.stale, s.rotate = true, s.rotate || r.job.rotate && !r.rotated
	if s.failures == 1 {
		m.log.Warn("Container logs not kept small; it is tried again", "logs", s.key, "err", r.err)
	}
}

// compressed takes in the result of a compression. If a part cannot be compressed, for example
// because the disk is full, it stays as it is for a while.
func (m *Manager) compressed(s *set, r result) {
	if r.err == nil {
		s.compressAt = time.Time{}
	} else if !r.canceled {
		s.compressAt = time.Now().Add(m.cfg.Interval)
		m.log.Warn("Rotated container log not compressed; it is tried again", "logs", s.key, "err", r.err)
	}
	if s.live != "" && s.watch == noWatch && s.due.IsZero() {
		s.due = time.Now()
	}
}

func sizeOf(entries []logs.Entry, name string) int64 {
	for _, e := range entries {
		if e.Name == name {
			return e.Size
		}
	}
	return 0
}
