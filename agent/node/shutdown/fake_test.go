package shutdown

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// machine is a fake systemd-logind, and the pods of its node. Each fault is an error that a call
// returns.
type machine struct {
	t *testing.T

	mu        sync.Mutex
	most      time.Duration
	preparing bool
	locks     int
	bus       *bus
	// missing, refused, silent and deaf are the faults of connecting, of taking a lock, of reading
	// properties, and of reading the configuration again.
	missing, refused, silent, deaf error
	// conf is the drop-in that a reload reads.
	conf string
	// takes is how long the pods take to end.
	takes time.Duration
	said  []string
}

func (m *machine) say(format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.said = append(m.said, fmt.Sprintf(format, args...))
}

// bus is a connection with the machine's logind.
type bus struct {
	*machine

	announced chan bool
	once      sync.Once
}

func (m *machine) connect(context.Context) (Bus, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.missing != nil {
		return nil, m.missing
	}
	m.bus = &bus{machine: m, announced: make(chan bool, 2)}
	return m.bus, nil
}

func (b *bus) Announced() <-chan bool { return b.announced }
func (b *bus) Close()                 { b.once.Do(func() { close(b.announced) }) }

func (b *bus) DelayMax(context.Context) (time.Duration, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.most, b.silent
}

func (b *bus) Preparing(context.Context) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.preparing, b.silent
}

// Reload reads the drop-in a second later, as logind does it in its own time.
func (b *bus) Reload(context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.deaf != nil {
		return b.deaf
	}
	time.AfterFunc(time.Second, func() {
		text, err := os.ReadFile(b.conf)
		if err != nil {
			b.t.Error(err)
			return
		}
		_, value, _ := strings.Cut(string(text), "InhibitDelayMaxSec=")
		delay, err := time.ParseDuration(strings.TrimSpace(value) + "s")
		if err != nil {
			b.t.Error(err)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.most = delay
	})
	return nil
}

func (b *bus) Inhibit(context.Context) (io.Closer, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.refused != nil {
		return nil, b.refused
	}
	b.locks++
	return &lock{b.machine}, nil
}

type lock struct{ m *machine }

func (l *lock) Close() error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	if l.m == nil || l.m.locks == 0 {
		return os.ErrClosed
	}
	l.m.locks--
	return nil
}

// announce announces a shutdown, or its cancellation, to who listens.
func (m *machine) announce(begins bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.preparing = begins
	m.bus.announced <- begins
}

func (m *machine) Shutdown(ctx context.Context) error       { return m.end(ctx, "systemd") }
func (m *machine) ShutdownInTime(ctx context.Context) error { return m.end(ctx, "logind") }
func (m *machine) Resume()                                  { m.say("resumed") }

func (m *machine) end(ctx context.Context, who string) error {
	m.say("ending for %s", who)
	m.mu.Lock()
	takes := m.takes
	m.mu.Unlock()
	select {
	case <-time.After(takes):
		m.say("ended")
		return nil
	case <-ctx.Done():
		m.say("cut off")
		return context.Cause(ctx)
	}
}

// times of the metrics, in seconds since the begin of the test.
func (m *machine) ShutdownTimes(start, end time.Time) {
	if !start.IsZero() {
		m.say("times %v %v", !start.IsZero(), !end.IsZero())
	}
}

func (m *machine) event(_, reason, message string) { m.say("%s: %s", reason, message) }

// heard returns what was said since the last call.
func (m *machine) heard() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := strings.Join(m.said, "; ")
	m.said = nil
	return out
}

// held returns how many locks are held.
func (m *machine) held() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.locks
}

// with changes the machine.
func (m *machine) with(change func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	change()
}

// follows runs a manager of 30 seconds on a machine, in fake time.
func follows(t *testing.T, before func(*machine), fn func(t *testing.T, m *machine, s *Manager)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		m := &machine{t: t, most: time.Minute, takes: 10 * time.Second, conf: filepath.Join(dir, "conf.d", "99.conf")}
		if before != nil {
			before(m)
		}
		s := New(Config{Delay: 30 * time.Second, StateFile: filepath.Join(dir, StateFile), LogindConf: m.conf}, Deps{
			Pods: m, Connect: m.connect, Event: m.event, Metrics: m, Logger: slog.New(slog.DiscardHandler),
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		time.Sleep(time.Second)
		synctest.Wait()
		fn(t, m, s)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if n := m.held(); n != 0 {
			t.Errorf("the manager ended with %d locks", n)
		}
	})
}

// expect waits, and compares what was said and how many locks are held.
func (m *machine) expect(after time.Duration, said string, locks int) {
	m.t.Helper()
	time.Sleep(after)
	synctest.Wait()
	if got := m.heard(); got != said {
		m.t.Errorf("got  %q\nwant %q", got, said)
	}
	if n := m.held(); n != locks {
		m.t.Errorf("%d locks are held, want %d", n, locks)
	}
}

var errFault = errors.New("fault")
