package shutdown

import (
	"context"
	"time"
)

// callLimit bounds the calls to logind that set up a connection.
const callLimit = 30 * time.Second

// follow connects with logind and follows its announcements until the connection or ctx ends.
// worked reports whether the connection was set up.
func (m *Manager) follow(ctx context.Context, r *reaction) (worked bool, err error) {
	bus, err := m.deps.Connect(ctx)
	if err != nil {
		return false, err
	}
	defer bus.Close()
	preparing, err := m.setUp(ctx, bus)
	if err != nil {
		return false, err
	}
	if m.failing.Recovered() {
		m.log.Info("systemd-logind tells the agent of shutdowns again")
	}
	if preparing != m.announced() { // this happened when nobody listened
		r.to(ctx, bus, preparing)
	}
	for {
		select {
		case <-ctx.Done():
			return true, nil
		case begins, ok := <-bus.Announced():
			if !ok {
				return true, errBusGone
			}
			r.to(ctx, bus, begins)
		}
	}
}

// setUp makes logind wait long enough for the pods, and takes the lock. preparing reports whether
// logind has announced a shutdown already: then it gives no lock.
func (m *Manager) setUp(ctx context.Context, bus Bus) (preparing bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	if err := m.ensureDelay(ctx, bus); err != nil { // a delay that is too short is better than none
		m.log.Warn("systemd-logind may not wait for all pods at a shutdown", "wanted", m.cfg.Delay, "err", err)
	}
	if preparing, err = bus.Preparing(ctx); err != nil || preparing {
		return preparing, err
	}
	return false, m.inhibit(ctx, bus)
}

// reaction is what is done because of logind's announcements, over all connections.
type reaction struct {
	manager *Manager
	// ended is closed when the pods have ended; nil if they were not asked to. cancel cuts that
	// off.
	ended  chan struct{}
	cancel context.CancelFunc
}

// to reacts to an announcement.
func (r *reaction) to(ctx context.Context, bus Bus, begins bool) {
	m := r.manager
	switch {
	case !begins:
		r.stop()
		m.cancelled()
		ctx, cancel := context.WithTimeout(ctx, callLimit)
		defer cancel()
		if err := m.inhibit(ctx, bus); err != nil {
			m.log.Warn("the next shutdown may not wait for the pods", "err", err)
		}
	case r.ended == nil: // else it was announced twice
		r.start(ctx)
	}
}

// start begins to end the pods. The lock is released when they have ended, or had their time.
func (r *reaction) start(ctx context.Context) {
	m := r.manager
	ctx, r.cancel = context.WithCancel(ctx)
	ended := make(chan struct{})
	r.ended = ended
	go func() {
		defer close(ended)
		defer m.letShutDown()
		if err := m.end(ctx, m.deps.Pods.ShutdownInTime); err != nil && ctx.Err() == nil {
			m.log.Error("not all pods were stopped before the shutdown", "err", err)
		}
	}()
}

// stop cuts off the end of the pods, if it is under way, and joins it.
func (r *reaction) stop() {
	if r.ended == nil {
		return
	}
	r.cancel()
	<-r.ended
	r.ended = nil
}
