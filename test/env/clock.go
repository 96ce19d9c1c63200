package env

import (
	"errors"
	"maps"
	"os"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/berthd/berth/test/clock"
)

// lookForShims is the interval between searches for shims that were started after the clock was
// moved.
const lookForShims = 100 * time.Millisecond

// Clock is the wall clock of an environment's machine: the clock of containerd, of the running
// agents, and of the shims, also of those that start later. [Env.Clock] makes it.
type Clock struct {
	env  *Env
	stop chan struct{}
	done chan struct{}

	mu    sync.Mutex
	ahead time.Duration
	moved map[int]time.Duration // by process
}

// Clock returns the clock, so that a test can move it. Containers, the times of files, and agents
// that start later keep the time of the real machine.
func (e *Env) Clock(t testing.TB) *Clock {
	t.Helper()
	c := &Clock{env: e, stop: make(chan struct{}), done: make(chan struct{}), moved: map[int]time.Duration{}}
	go c.follow()
	t.Cleanup(func() {
		close(c.stop)
		<-c.done
	})
	return c
}

// Move sets the clock to d ahead of the real one, or behind it if d is negative, as if somebody had
// set the machine's clock. The programs and their monotonic clocks go on.
func (c *Clock) Move(t testing.TB, d time.Duration) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead = d
	pids := []int{c.env.ContainerdPID()}
	c.env.mu.Lock()
	for _, a := range c.env.agents {
		if a.Running() {
			pids = append(pids, a.PID())
		}
	}
	c.env.mu.Unlock()
	for _, pid := range pids {
		if err := clock.Move(pid, d); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.moveShims(); err != nil {
		t.Fatal(err)
	}
}

// follow moves the clock of shims that start later.
func (c *Clock) follow() {
	defer close(c.done)
	tick := time.NewTicker(lookForShims)
	defer tick.Stop()
	for {
		select {
		case <-c.stop:
			return
		case <-tick.C:
		}
		c.mu.Lock()
		_ = c.moveShims() // shims with an error are tried again
		c.mu.Unlock()
	}
}

// moveShims moves the clock of the shims whose clock differs. The caller holds c.mu. Shims may
// start and end meanwhile.
func (c *Clock) moveShims() error {
	var errs []error
	pids := c.env.ShimPIDs()
	for _, pid := range pids {
		if c.moved[pid] == c.ahead {
			continue
		}
		err := clock.Move(pid, c.ahead)
		switch {
		case err == nil:
			c.moved[pid] = c.ahead
		case !errors.Is(err, os.ErrProcessDone) && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, syscall.ESRCH):
			errs = append(errs, err)
		}
	}
	maps.DeleteFunc(c.moved, func(pid int, _ time.Duration) bool { return !slices.Contains(pids, pid) })
	return errors.Join(errs...)
}
