package dra

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/fields"

	"github.com/berthd/berth/test/dradriver"
	"github.com/berthd/berth/test/env"
)

// run runs the manager until stop is called.
func (b *bed) run() (stop func()) {
	ctx, cancel := context.WithCancel(b.t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	stop = func() {
		if cancel(); done != nil {
			if err := <-done; err != nil {
				b.t.Error(err)
			}
			done = nil
		}
	}
	b.t.Cleanup(stop)
	return stop
}

func (b *bed) deletes(want string) {
	b.t.Helper()
	if got := <-b.deleted; got != want {
		b.t.Errorf("the slices of %q are deleted, want %q", got, want)
	}
}

// The slices of drivers that do not come back after the agent's start are deleted, and those of a
// driver that dies or is removed. The end of the agent deletes none.
func TestSlicesOfAbsentDrivers(t *testing.T) {
	b := start(t, shortDir(t))
	b.plug(dradriver.Config{Name: "early"})
	stop := b.run()
	dies := b.plug(dradriver.Config{Name: "dies"})
	goes := b.plug(dradriver.Config{Name: "goes"})
	b.deletes("spec.driver!=dies,spec.driver!=early,spec.driver!=goes")
	dies.Stop()
	b.deletes("spec.driver=dies")
	again := b.plugAt("dies", filepath.Join(b.root, "other.sock"))
	env.Eventually(t, "the driver to count again", func() error {
		b.drivers.mu.Lock()
		defer b.drivers.mu.Unlock()
		if n := len(b.drivers.absent); n > 0 {
			return fmt.Errorf("%d drivers are absent", n)
		}
		return nil
	})
	again.Stop()
	b.deletes("spec.driver=dies")
	b.Deregister(found(goes, "goes", filepath.Join(b.root, "goes.sock")))
	b.deletes("spec.driver=goes")
	stop()
	if len(b.deleted) > 0 {
		t.Errorf("the slices of %q are deleted", <-b.deleted)
	}
}

// plugAt starts a plugin of a driver at an endpoint.
func (b *bed) plugAt(name, endpoint string) *dradriver.Driver {
	b.t.Helper()
	return b.plug(dradriver.Config{Name: name, Endpoint: endpoint})
}

// refusing is an API server that refuses for some time.
type refusing struct {
	API

	left int
	at   []time.Duration
	from time.Time
}

func (r *refusing) DeleteResourceSlices(context.Context, fields.Selector) error {
	r.at = append(r.at, time.Since(r.from))
	if r.left--; r.left >= 0 {
		return errors.New("not now")
	}
	return nil
}

// The deletion begins 30 seconds after the start, and is tried again until the API server takes it.
func TestSlicesAreDeletedAtLast(t *testing.T) {
	root := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		api := &refusing{left: 2, from: time.Now()}
		b := start(t, root)
		b.deps.API, b.cfg.AbsentGrace = api, absentGrace
		stop := b.run()
		time.Sleep(10 * time.Minute)
		stop()
		if got := fmt.Sprint(api.at); got != "[30s 31s 33s]" {
			t.Errorf("deleted at %s", got)
		}
	})
}
