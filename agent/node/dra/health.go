package dra

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	healthapi "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"

	"github.com/berthd/berth/agent/node/dra/state"
	"github.com/berthd/berth/internal/retry"
)

// The values are the kubelet's: how long what a driver says of a device counts, unless the driver
// says another time, and how long the manager waits before it asks a driver again.
const (
	healthTimeout = 30 * time.Second
	healthRetry   = 5 * time.Second
)

// device identifies a device of a driver.
type device struct{ pool, name string }

// report is what a plugin said of a device. It counts until a time; over says that the pods know
// that it is over.
type report struct {
	health  v1.ResourceHealthStatus
	message string
	until   time.Time
	over    bool
}

// hears listens to what a plugin says of the health of its devices, until ctx ends. A plugin
// without the service for that is not asked again.
func (m *Manager) hears(ctx context.Context, p *plugin) {
	for {
		err := m.receive(ctx, p)
		m.silent(p)
		switch {
		case ctx.Err() != nil:
			return
		case grpcstatus.Code(err) == codes.Unimplemented:
			m.log.Debug("DRA driver says nothing of the health of its devices", "driver", p.driver)
			return
		}
		m.log.Debug("the health of a DRA driver's devices is not known; it is asked again", "driver", p.driver, "err", err)
		if !retry.Sleep(ctx, healthRetry) {
			return
		}
	}
}

func (m *Manager) receive(ctx context.Context, p *plugin) error {
	stream, err := healthapi.NewDRAResourceHealthClient(p.conn).NodeWatchResources(ctx,
		&healthapi.NodeWatchResourcesRequest{}, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	for {
		response, err := stream.Recv()
		if err != nil {
			return err
		}
		m.wake(p.driver, m.drivers.heard(p, response.GetDevices(), time.Now()))
		m.expiry.Notify()
	}
}

// silent drops what a plugin said, because it says nothing any more. At the agent's end the pods
// keep what they have.
func (m *Manager) silent(p *plugin) {
	d := &m.drivers
	d.mu.Lock()
	if d.running == nil || d.running.Err() != nil {
		d.mu.Unlock()
		return
	}
	p.reports, d.answered[p.driver] = nil, true
	d.mu.Unlock()
	m.wake(p.driver, anyDevice)
}

// heard takes what a plugin says of its devices, and returns which have another health now. Devices
// that the plugin does not name keep what it said before, until that is over.
func (d *drivers) heard(p *plugin, list []*healthapi.DeviceHealth, now time.Time) func(device) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if p.reports == nil {
		p.reports = map[device]*report{}
	}
	changed := sets.New[device]()
	for _, h := range list {
		id := device{h.GetDevice().GetPoolName(), h.GetDevice().GetDeviceName()}
		timeout := cmp.Or(time.Duration(max(h.GetHealthCheckTimeoutSeconds(), 0))*time.Second, healthTimeout)
		next := &report{health: healthOf(h.GetHealth()), message: shortened(h.GetMessage()), until: now.Add(timeout)}
		old := p.reports[id]
		if old == nil || old.over || old.health != next.health || old.message != next.message {
			changed.Insert(id)
		}
		p.reports[id] = next
	}
	if first := !d.answered[p.driver]; first {
		d.answered[p.driver] = true
		return anyDevice
	}
	return changed.Has
}

func healthOf(h healthapi.HealthStatus) v1.ResourceHealthStatus {
	switch h {
	case healthapi.HealthStatus_HEALTHY:
		return v1.ResourceHealthStatusHealthy
	case healthapi.HealthStatus_UNHEALTHY:
		return v1.ResourceHealthStatusUnhealthy
	default:
		return v1.ResourceHealthStatusUnknown
	}
}

// shortened returns a message that the API accepts.
func shortened(message string) string {
	const more = "..."
	if len(message) <= v1.ResourceHealthMessageMaxLength {
		return message
	}
	return strings.ToValidUTF8(message[:v1.ResourceHealthMessageMaxLength-len(more)], "") + more
}

// expire wakes the pods with devices of which too long nothing was said, until ctx ends.
func (m *Manager) expire(ctx context.Context) {
	for {
		over, next := m.drivers.over(time.Now())
		for driver, devices := range over {
			m.wake(driver, devices.Has)
		}
		var due <-chan time.Time
		if !next.IsZero() {
			due = time.After(time.Until(next))
		}
		select {
		case <-ctx.Done():
			return
		case <-due:
		case <-m.expiry:
		}
	}
}

// over returns the devices whose reports have just become too old, by driver, and when the next
// ones will; the zero time for never.
func (d *drivers) over(now time.Time) (over map[string]sets.Set[device], next time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	over = map[string]sets.Set[device]{}
	for driver, list := range d.byName {
		over[driver] = sets.New[device]()
		for _, p := range list {
			for id, r := range p.reports {
				switch {
				case r.over:
				case !now.Before(r.until):
					r.over = true
					over[driver].Insert(id)
				case next.IsZero() || r.until.Before(next):
					next = r.until
				}
			}
		}
	}
	return over, next
}

// anyDevice is true for each device.
func anyDevice(device) bool { return true }

// wake wakes the pods that have certain devices of a driver.
func (m *Manager) wake(driver string, has func(device) bool) {
	m.mu.Lock()
	pods := sets.New[types.UID]()
	for _, c := range m.claims {
		if slices.ContainsFunc(c.DriverState[driver].Devices, func(d state.Device) bool {
			return has(device{d.PoolName, d.DeviceName})
		}) {
			pods = pods.Union(c.PodUIDs)
		}
	}
	m.mu.Unlock()
	for uid := range pods {
		m.deps.Wake(uid)
	}
}

// Health returns the health of the devices of a pod's claims, for the pod's status: by the
// container's name, an entry for each claim of the container. Drivers that have not answered since
// the agent's start are left out, so that a restart of the agent changes no status.
func (m *Manager) Health(pod *v1.Pod) map[string][]v1.ResourceStatus {
	out := map[string][]v1.ResourceStatus{}
	for i := range pod.Spec.Containers {
		c := &pod.Spec.Containers[i]
		shares, err := m.shares(pod, c)
		if err != nil {
			continue // the claims are not even made
		}
		for _, s := range shares {
			if status := m.healthOf(pod.UID, s); len(status.Resources) > 0 {
				out[c.Name] = append(out[c.Name], status)
			}
		}
	}
	return out
}

// healthOf returns the health of what a container of a pod gets of a claim: of each device once,
// under its first CDI name if it has one. The names are the kubelet's.
func (m *Manager) healthOf(uid types.UID, s share) v1.ResourceStatus {
	name := "claim:" + s.entry
	if s.request != "" {
		name += "/" + s.request
	}
	out := v1.ResourceStatus{Name: v1.ResourceName(name)}
	m.mu.Lock()
	defer m.mu.Unlock()
	known := m.claims[s.name]
	if known == nil || !known.PodUIDs.Has(uid) || s.entry == "" {
		return out
	}
	seen := sets.New[v1.ResourceID]()
	for _, driver := range slices.Sorted(maps.Keys(known.DriverState)) {
		for _, d := range known.DriverState[driver].Devices {
			id := v1.ResourceID(strings.Join([]string{driver, d.PoolName, d.DeviceName}, "/"))
			if len(d.CDIDeviceIDs) > 0 {
				id = v1.ResourceID(d.CDIDeviceIDs[0])
			}
			health, answered := m.drivers.health(driver, device{d.PoolName, d.DeviceName}, m.cfg.HealthMessages)
			if s.has(d) && answered && !seen.Has(id) {
				seen.Insert(id)
				health.ResourceID = id
				out.Resources = append(out.Resources, health)
			}
		}
	}
	return out
}

// health returns what a driver's newest plugin that says something of a device says of it.
// answered is false for a driver that has not answered since the agent's start.
func (d *drivers) health(driver string, id device, messages bool) (out v1.ResourceHealth, answered bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	out.Health = v1.ResourceHealthStatusUnknown
	for _, p := range slices.Backward(d.byName[driver]) {
		r := p.reports[id]
		if r == nil || !time.Now().Before(r.until) {
			continue
		}
		out.Health = r.health
		if messages && r.message != "" {
			out.Message = &r.message
		}
		break
	}
	return out, d.answered[driver]
}
