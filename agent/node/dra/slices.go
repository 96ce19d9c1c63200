package dra

import (
	"context"
	"maps"
	"slices"
	"time"

	"google.golang.org/grpc/connectivity"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/berthd/berth/internal/retry"
)

// deleting is how long the manager waits after ResourceSlices could not be deleted.
var deleting = retry.Backoff{First: time.Second, Most: 5 * time.Minute}

// begin begins to watch the drivers. The ResourceSlices of drivers that do not come back after the
// agent's start are deleted: else pods would be scheduled that wait for those drivers.
func (m *Manager) begin(ctx context.Context) {
	d := &m.drivers
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running, d.absent, d.answered = ctx, map[string]context.CancelFunc{}, map[string]bool{}
	for _, list := range d.byName {
		for _, p := range list {
			m.watch(p)
		}
	}
	d.loops.Go(func() { m.expire(ctx) })
	if m.deps.API != nil {
		d.loops.Go(func() { m.wipe(ctx, m.unregistered) })
	}
}

// end ends what begin has begun. ResourceSlices stay: the drivers outlive the agent.
func (m *Manager) end() {
	d := &m.drivers
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running = nil
}

// watch watches the connection to a plugin while Run runs. The caller holds drivers.mu.
func (m *Manager) watch(p *plugin) {
	if m.drivers.running == nil {
		return
	}
	var ctx context.Context
	ctx, p.stop = context.WithCancel(m.drivers.running)
	if m.cfg.Health {
		m.drivers.loops.Go(func() { m.hears(ctx, p) })
	}
	m.drivers.loops.Go(func() {
		for {
			state := p.conn.GetState()
			if state == connectivity.Idle {
				p.conn.Connect()
			}
			m.noteDriver(p.driver)
			if !p.conn.WaitForStateChange(ctx, state) {
				return
			}
		}
	})
}

// noteDriver notes whether a driver has a connected plugin. While it has none, the time runs after
// which its ResourceSlices are deleted.
func (m *Manager) noteDriver(driver string) {
	d := &m.drivers
	d.mu.Lock()
	defer d.mu.Unlock()
	cancel, absent := d.absent[driver]
	switch here := slices.ContainsFunc(d.byName[driver], (*plugin).connected); {
	case d.running == nil || m.deps.API == nil:
	case here && absent:
		cancel()
		delete(d.absent, driver)
	case !here && !absent:
		ctx, cancel := context.WithCancel(d.running)
		d.absent[driver] = cancel
		d.loops.Go(func() {
			defer cancel()
			m.wipe(ctx, func() fields.Selector {
				return fields.OneTermEqualSelector(resourcev1.ResourceSliceSelectorDriver, driver)
			})
		})
	}
}

// unregistered selects the ResourceSlices of all drivers that are not registered.
func (m *Manager) unregistered() fields.Selector {
	m.drivers.mu.Lock()
	defer m.drivers.mu.Unlock()
	var others []fields.Selector
	for _, driver := range slices.Sorted(maps.Keys(m.drivers.byName)) {
		others = append(others, fields.OneTermNotEqualSelector(resourcev1.ResourceSliceSelectorDriver, driver))
	}
	return fields.AndSelectors(others...)
}

// wipe deletes ResourceSlices after the time that drivers have to come back, unless ctx ends.
func (m *Manager) wipe(ctx context.Context, of func() fields.Selector) {
	if !retry.Sleep(ctx, m.cfg.AbsentGrace) {
		return
	}
	for failures := 1; ; failures++ {
		selector := of()
		err := m.deps.API.DeleteResourceSlices(ctx, selector)
		if err == nil {
			m.log.Info("the ResourceSlices of drivers that are not here are deleted", "drivers", selector.String())
			return
		}
		if ctx.Err() == nil {
			m.log.Debug("the ResourceSlices of drivers that are not here are not deleted; this is tried again", "in",
				deleting.Delay(failures), "err", err)
		}
		if !deleting.Wait(ctx, failures) {
			return
		}
	}
}
