package dra

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	draapi "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/berthd/berth/agent/node/dra/state"
)

// Wants reports whether a pod names claims, so that Prepare has to be called.
func (m *Manager) Wants(pod *v1.Pod) bool {
	return len(pod.Spec.ResourceClaims) > 0 || m.extended(pod) != nil
}

// Held reports whether it is noted that the pod has all the claims that it names.
func (m *Manager) Held(pod *v1.Pod) bool {
	wishes, err := m.wishes(pod)
	held := m.heldBy(pod.UID)
	return err == nil && !slices.ContainsFunc(wishes, func(w wish) bool { return !slices.Contains(held, w.name) })
}

// Prepare has the claims of a pod prepared by their drivers. Claims that are prepared already are
// only noted for the pod. Nothing is noted before it is sure that the pod may use all its claims
// and that their drivers are registered: a pod that fails before can be deleted without them.
func (m *Manager) Prepare(ctx context.Context, pod *v1.Pod) error {
	began := time.Now()
	err := m.prepare(ctx, pod)
	m.deps.Metrics.ClaimsWorkedOn("PrepareResources", err != nil, time.Since(began))
	if err != nil {
		return fmt.Errorf("prepare dynamic resources: %w", err)
	}
	return nil
}

func (m *Manager) prepare(ctx context.Context, pod *v1.Pod) error {
	if m.deps.API == nil {
		return errors.New("this node has no connection to an API server, which has the ResourceClaims")
	}
	wishes, err := m.wishes(pod)
	if err != nil {
		return err
	}
	names := make([]types.NamespacedName, len(wishes))
	for i, w := range wishes {
		names[i] = w.name
	}
	release, err := m.take(ctx, names)
	if err != nil {
		return err
	}
	defer release()
	claims, err := m.read(ctx, pod, wishes)
	if err != nil {
		return err
	}
	chosen, err := m.chosen(claims)
	if err != nil {
		return err
	}
	todo, err := m.note(pod.UID, claims)
	if err != nil {
		return err
	}
	if err := m.save(); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(chosen)) {
		if err := m.ask(ctx, chosen[name], todo); err != nil {
			return err
		}
	}
	return m.prepared(todo)
}

// read reads the claims from the API server, each once, and checks that the pod may use them.
func (m *Manager) read(ctx context.Context, pod *v1.Pod, wishes []wish) ([]*resourcev1.ResourceClaim, error) {
	byName := map[types.NamespacedName]*resourcev1.ResourceClaim{}
	var out []*resourcev1.ResourceClaim
	for _, w := range wishes {
		c := byName[w.name]
		if c == nil {
			var err error
			if c, err = m.deps.API.ResourceClaim(ctx, w.name.Namespace, w.name.Name); err != nil {
				return nil, fmt.Errorf("fetch ResourceClaim %s: %w", w.name.Name, err)
			}
			byName[w.name] = c
			out = append(out, c)
		}
		if err := check(pod, w, c); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// chosen returns the plugins of the drivers whose devices the scheduler chose for claims, by the
// driver's name.
func (m *Manager) chosen(claims []*resourcev1.ResourceClaim) (map[string]*plugin, error) {
	out := map[string]*plugin{}
	for _, c := range claims {
		for _, r := range c.Status.Allocation.Devices.Results {
			p, err := m.drivers.get(r.Driver)
			if err != nil {
				return nil, err
			}
			out[r.Driver] = p
		}
	}
	return out, nil
}

// note notes that a pod has these claims, and returns those that are not prepared yet.
func (m *Manager) note(uid types.UID, claims []*resourcev1.ResourceClaim) (todo []*claim, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range claims {
		name := types.NamespacedName{Namespace: c.Namespace, Name: c.Name}
		if old := m.claims[name]; old != nil && old.ClaimUID != c.UID {
			return nil, fmt.Errorf("old ResourceClaim with same name %s and different UID %s still exists "+
				"(previous pod force-deleted?!)", c.Name, old.ClaimUID)
		}
	}
	for _, c := range claims {
		name := types.NamespacedName{Namespace: c.Namespace, Name: c.Name}
		known := m.claims[name]
		if known == nil {
			known = &claim{Claim: state.Claim{
				ClaimUID: c.UID, ClaimName: c.Name, Namespace: c.Namespace, PodUIDs: sets.New[types.UID](),
				DriverState: map[string]state.Driver{},
			}}
			for _, r := range c.Status.Allocation.Devices.Results {
				known.DriverState[r.Driver] = state.Driver{}
			}
			m.claims[name] = known
		}
		known.PodUIDs.Insert(uid)
		if !known.prepared {
			todo = append(todo, known)
		}
	}
	return todo, nil
}

// ask has one driver prepare those of the claims that have its devices, and notes what it answers.
func (m *Manager) ask(ctx context.Context, p *plugin, todo []*claim) error {
	request := &draapi.NodePrepareResourcesRequest{Claims: m.requestOf(p.driver, todo)}
	if len(request.GetClaims()) == 0 {
		return nil
	}
	response, err := p.prepare(ctx, request)
	if err != nil {
		return fmt.Errorf("NodePrepareResources: %w", err)
	}
	answers := response.GetClaims()
	if err := answered("NodePrepareResources", request.GetClaims(), answers); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range todo {
		if answer, asked := answers[string(c.ClaimUID)]; asked {
			c.DriverState[p.driver] = state.Driver{Devices: devicesOf(answer)}
		}
	}
	return nil
}

// requestOf returns the claims that have devices of a driver, as a request names them.
func (m *Manager) requestOf(driver string, claims []*claim) []*draapi.Claim {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []*draapi.Claim
	for _, c := range claims {
		if _, has := c.DriverState[driver]; has {
			out = append(out, &draapi.Claim{Namespace: c.Namespace, Uid: string(c.ClaimUID), Name: c.ClaimName})
		}
	}
	return out
}

// failing is a driver's answer about one claim.
type failing interface{ GetError() string }

// answered says what is wrong with the answers of a driver: they must be about the claims of the
// request and about no others. The words are the kubelet's.
func answered[A failing](method string, asked []*draapi.Claim, answers map[string]A) error {
	names := map[string]string{}
	for _, c := range asked {
		names[c.GetUid()] = c.GetName()
	}
	for _, uid := range slices.Sorted(maps.Keys(answers)) {
		name, known := names[uid]
		switch {
		case !known:
			return fmt.Errorf("%s returned result for unknown claim UID %s", method, uid)
		case answers[uid].GetError() != "":
			return fmt.Errorf("%s failed for ResourceClaim %s: %s", method, name, answers[uid].GetError())
		}
	}
	if skipped := len(asked) - len(answers); skipped > 0 {
		return fmt.Errorf("%s skipped %d ResourceClaims", method, skipped)
	}
	return nil
}

func devicesOf(answer *draapi.NodePrepareResourceResponse) []state.Device {
	var out []state.Device
	for _, d := range answer.GetDevices() {
		out = append(out, state.Device{
			PoolName: d.GetPoolName(), DeviceName: d.GetDeviceName(), ShareID: (*types.UID)(d.ShareId),
			RequestNames: d.GetRequestNames(), CDIDeviceIDs: d.GetCdiDeviceIds(),
		})
	}
	return out
}

// prepared notes that claims are prepared.
func (m *Manager) prepared(todo []*claim) error {
	if len(todo) == 0 {
		return nil
	}
	m.mu.Lock()
	for _, c := range todo {
		c.prepared = true
	}
	m.mu.Unlock()
	return m.save()
}
