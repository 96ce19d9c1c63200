package logs

import (
	"context"
	"time"

	"github.com/berthd/berth/cri/logs"
)

// tend looks at what is due, starts what jobs it can, and returns how long until something is due; 0 if nothing is.
func (m *Manager) tend(ctx context.Context, now time.Time) (next time.Duration) {
	room := m.cfg.NodeMax - m.total()
	for _, s := range m.sets {
		if s.dir != nil && (s.cancel == nil || s.compressing) && !s.due.IsZero() && !s.due.After(now.Add(shortestWait/2)) {
			before := s.size
			m.look(s, now, room)
			room -= s.size - before
		}
	}
	m.economize(now)
	for _, s := range m.sets {
		m.employ(ctx, s, now)
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
		if s.wanted() && s.retry.After(now) {
			soonest(s.retry)
		}
		if s.compressAt.After(now) {
			soonest(s.compressAt)
		}
	}
	return next
}

// look looks at a log that is written.
func (m *Manager) look(s *set, now time.Time, room int64) {
	s.due = time.Time{}
	size, err := s.dir.Size(s.live)
	if err != nil {
		s.stale = true // renamed or removed; the job finds out
		return
	}
	v := m.policy.judge(sight{size: size, before: s.size, since: now.Sub(s.seen), others: s.total() - s.size, room: room})
	s.size, s.seen, s.rate = size, now, v.rate
	if v.rotate {
		s.rotate = true
		return
	}
	if v.wait > 0 {
		s.due = now.Add(v.wait)
		return
	}
	m.rest(s, now)
}

// rest has the kernel tell of the next write.
func (m *Manager) rest(s *set, now time.Time) {
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
	if info, err := f.Stat(); err != nil || info.Size() != s.size { // written before the kernel watched
		m.unwatch(s)
		s.due = now
	}
}

// lowWater is how much of the node's bound is left in use once it was exceeded, so that it is not exceeded again at once.
const lowWater = 0.9

// economize picks what has to go when all logs together take too much. While jobs are about to make room, they are waited for.
func (m *Manager) economize(now time.Time) {
	if m.total() <= m.cfg.NodeMax {
		return
	}
	all := map[key]inventory{}
	for k, s := range m.sets {
		if s.retry.After(now) {
			continue // it could not give anything a moment ago
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

// employ starts a job for a set that has something to do, if there is a worker.
func (m *Manager) employ(ctx context.Context, s *set, now time.Time) {
	switch {
	case s.cancel != nil:
		if s.compressing && s.wanted() {
			s.cancel() // rotating is more urgent
		}
	case s.wanted() && !s.retry.After(now) && m.rotating < max(1, m.cfg.Workers):
		m.rotating++
		m.unwatch(s)
		s.due = time.Time{}
		j := job{
			dirPath: string(s.key), id: s.id, live: s.live, relief: s.relief, policy: m.policy, rotate: s.rotate,
		}
		s.stale, s.rotate, s.relief = false, false, relief{}
		m.start(ctx, s, j)
	case !s.wanted() && m.compressing == 0 && !s.compressAt.After(now) && !m.policy.pressed(s.rate):
		if c := s.inventory().compressible(); len(c) > 0 {
			m.compressing++
			s.compressing = true
			m.start(ctx, s, job{dirPath: string(s.key), live: s.live, compress: c[0].Name, policy: m.policy})
		}
	}
}

// start runs a job beside Run.
func (m *Manager) start(ctx context.Context, s *set, j job) {
	ctx, s.cancel = context.WithCancel(ctx)
	m.jobs.Go(func() {
		r := j.run(ctx, m.cfg.Root, m.deps.Runtime)
		r.set = s
		m.results <- r
	})
}

// finished takes in what a job did.
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
	s.failures, s.retry = 0, time.Time{}
	if r.job.id == s.id && s.live != "" {
		s.size, s.seen = sizeOf(s.entries, s.live), time.Now()
		s.due = s.seen
		if r.rotated { // what filled one file writes on; how fast shows after a moment
			s.due = s.due.Add(shortestWait)
		}
	}
}

// reopened replaces the directory that looks are made in.
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

// failed has a job done again later, seldom enough to be no load and often enough not to be late.
func (m *Manager) failed(s *set, r result) {
	s.failures++
	wait := min(100*time.Millisecond<<min(s.failures-1, 10), m.cfg.Interval)
	s.retry = time.Now().Add(wait)
	s.stale, s.rotate = true, s.rotate || r.job.rotate && !r.rotated
	if s.failures == 1 {
		m.log.Warn("Container logs not kept small; it is tried again", "logs", s.key, "err", r.err)
	}
}

// compressed takes in how compressing went. A part that cannot be compressed, for want of room say, stays as it is for a while.
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
