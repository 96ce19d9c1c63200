package dra

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	draapi "k8s.io/kubelet/pkg/apis/dra/v1"
)

// Unprepare gives back the claims of a pod whose containers have all ended. Drivers are asked only
// for claims that no other pod has. If a driver fails, its claims stay the pod's.
func (m *Manager) Unprepare(ctx context.Context, uid types.UID) error {
	began := time.Now()
	err := m.unprepare(ctx, uid)
	m.deps.Metrics.ClaimsWorkedOn("UnprepareResources", err != nil, time.Since(began))
	if err != nil {
		return fmt.Errorf("unprepare dynamic resources: %w", err)
	}
	return nil
}

func (m *Manager) unprepare(ctx context.Context, uid types.UID) error {
	names := m.heldBy(uid)
	release, err := m.take(ctx, names)
	if err != nil {
		return err
	}
	defer release()
	last, drivers := m.lastOf(uid, names)
	for _, driver := range drivers {
		request := &draapi.NodeUnprepareResourcesRequest{Claims: m.requestOf(driver, last)}
		p, err := m.drivers.get(driver)
		if err != nil {
			return err
		}
		response, err := p.unprepare(ctx, request)
		if err != nil {
			return fmt.Errorf("NodeUnprepareResources: %w", err)
		}
		if err := answered("NodeUnprepareResources", request.GetClaims(), response.GetClaims()); err != nil {
			return err
		}
	}
	m.forget(uid, names)
	return m.save()
}

// lastOf returns those of the claims that no other pod has, and their drivers. They count as
// prepared no more.
func (m *Manager) lastOf(uid types.UID, names []types.NamespacedName) (last []*claim, drivers []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range sorted(names) {
		c := m.claims[name]
		if c == nil || !c.PodUIDs.Has(uid) || len(c.PodUIDs) > 1 {
			continue
		}
		c.prepared = false
		last = append(last, c)
		drivers = slices.AppendSeq(drivers, maps.Keys(c.DriverState))
	}
	slices.Sort(drivers)
	return last, slices.Compact(drivers)
}

// forget takes a pod from claims, and drops the claims that no pod has any more.
func (m *Manager) forget(uid types.UID, names []types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range names {
		c := m.claims[name]
		if c == nil {
			continue
		}
		if c.PodUIDs.Delete(uid); len(c.PodUIDs) == 0 {
			delete(m.claims, name)
		}
	}
}
