package dra

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/berthd/berth/agent/node/dra/state"
	"github.com/berthd/berth/agent/pod/tasks"
	"github.com/berthd/berth/internal/notify"
	"github.com/berthd/berth/internal/retry"
)

// The values are the kubelet's: how long a driver has to answer, how long it may be away before its
// devices are taken from the cluster, and how often the manager looks for pods that are gone.
const (
	callTimeout   = 45 * time.Second
	absentGrace   = 30 * time.Second
	orphansPeriod = time.Minute
)

// Config configures a [Manager].
type Config struct {
	// Root is the agent's root directory, which has the state file.
	Root string
	// ExtendedResources says that a claim may stand for extended resources of a pod.
	ExtendedResources bool
	// Health says that the pods' statuses have the health of devices, HealthMessages that they have
	// the drivers' messages about it.
	Health, HealthMessages bool
	// CallTimeout bounds a request to a driver; 0 means 45 seconds.
	CallTimeout time.Duration
	// AbsentGrace is how long a driver may be away before its ResourceSlices are deleted; 0 means
	// 30 seconds.
	AbsentGrace time.Duration
}

// API has the objects of the API server that the manager works on.
type API interface {
	// ResourceClaim reads a ResourceClaim.
	ResourceClaim(ctx context.Context, namespace, name string) (*resourcev1.ResourceClaim, error)
	// DeleteResourceSlices deletes those of this node's ResourceSlices that a selector of their
	// fields selects.
	DeleteResourceSlices(ctx context.Context, of fields.Selector) error
}

// Metrics are the manager's metrics.
type Metrics interface {
	// ClaimsWorkedOn measures PrepareResources and UnprepareResources, DRADriverAsked a request.
	ClaimsWorkedOn(operation string, failed bool, took time.Duration)
	DRADriverAsked(driver, method, code string, took time.Duration)
	// ResourceClaims takes the function that counts the claims in use.
	ResourceClaims(count func(add func(driver string, n int)))
}

// Deps are what a manager calls.
type Deps struct {
	// API is nil on a node without a cluster.
	API API
	// Present returns the pods that have a worker or wait for one. Known is false while pods of an
	// earlier run may be missing: then no claim is given back for want of its pods.
	Present func() map[types.UID]bool
	Known   func() bool
	// Wake makes a sync of a pod whose devices have another health.
	Wake func(uid types.UID)
	// Event records an event about the node.
	Event   func(kind, reason, message string)
	Metrics Metrics
	Logger  *slog.Logger
}

// Manager has the resource claims of the node's pods. Make it with [New].
type Manager struct {
	cfg     Config
	deps    Deps
	log     *slog.Logger
	drivers drivers

	// turns lets one operation at a time work on a claim. saving is held while the file is written,
	// so that the last content wins.
	turns  tasks.Turns[types.NamespacedName]
	saving sync.Mutex
	// expiry makes the manager look again when the next report of a device is too old.
	expiry notify.Signal

	mu     sync.Mutex
	claims map[types.NamespacedName]*claim
}

// claim is a claim that pods of the node have. prepared says that its drivers have prepared it
// since the agent's start.
type claim struct {
	state.Claim

	prepared bool
}

// New returns a manager with what the state file has. A file that cannot be read is reported, and
// the next change replaces it: pods that run then have their claims prepared anew.
func New(cfg Config, deps Deps) *Manager {
	cfg.CallTimeout, cfg.AbsentGrace = cmp.Or(cfg.CallTimeout, callTimeout), cmp.Or(cfg.AbsentGrace, absentGrace)
	m := &Manager{cfg: cfg, deps: deps, log: deps.Logger, claims: map[types.NamespacedName]*claim{}, expiry: notify.New()}
	list, err := state.Read(m.file())
	if err != nil {
		m.log.Error("which pods have which resource claims is not known: devices of pods that are gone stay prepared",
			"err", err)
		deps.Event(v1.EventTypeWarning, "DRAStateUnreadable", err.Error())
	}
	for _, c := range list {
		if c.PodUIDs == nil {
			c.PodUIDs = sets.New[types.UID]()
		}
		m.claims[nameOf(&c)] = &claim{Claim: c}
	}
	deps.Metrics.ResourceClaims(m.count)
	return m
}

// count calls add with the number of prepared claims of each driver, and of any driver.
func (m *Manager) count(add func(driver string, n int)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	counts := map[string]int{anyDriver: 0}
	for _, c := range m.claims {
		if !c.used() {
			continue
		}
		counts[anyDriver]++
		for driver := range c.DriverState {
			counts[driver]++
		}
	}
	for driver, n := range counts {
		add(driver, n)
	}
}

// anyDriver stands for all drivers in the metric.
const anyDriver = "<any>"

// used reports whether the claim is prepared, by this agent or an earlier one.
func (c *claim) used() bool {
	for _, d := range c.DriverState {
		if len(d.Devices) > 0 {
			return true
		}
	}
	return c.prepared
}

// File returns the path of the state file in an agent's root directory.
func File(root string) string { return filepath.Join(root, state.File) }

func (m *Manager) file() string { return File(m.cfg.Root) }

func nameOf(c *state.Claim) types.NamespacedName {
	return types.NamespacedName{Namespace: c.Namespace, Name: c.ClaimName}
}

// Run watches the drivers, and gives back the claims of pods that are gone, until ctx ends.
func (m *Manager) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer m.drivers.loops.Wait()
	defer cancel()
	m.begin(ctx)
	defer m.end()
	for retry.Sleep(ctx, orphansPeriod) {
		m.giveBackOrphans(ctx)
	}
	return nil
}

// giveBackOrphans gives back the claims of the pods that are on the node no more, for instance
// because they ended before a kubelet's file was taken over.
func (m *Manager) giveBackOrphans(ctx context.Context) {
	if !m.deps.Known() {
		return
	}
	present := m.deps.Present()
	for _, uid := range m.pods() {
		if present[uid] {
			continue
		}
		if err := m.Unprepare(ctx, uid); err != nil && ctx.Err() == nil {
			m.log.Warn("the resource claims of a pod that is gone are not given back; this is tried again", "uid", uid,
				"err", err)
		}
	}
}

// pods returns the pods that have claims, sorted.
func (m *Manager) pods() []types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := sets.New[types.UID]()
	for _, c := range m.claims {
		all = all.Union(c.PodUIDs)
	}
	return slices.Sorted(maps.Keys(all))
}

// Holds reports whether a pod has claims that have to be given back.
func (m *Manager) Holds(uid types.UID) bool { return len(m.heldBy(uid)) > 0 }

// heldBy returns the names of a pod's claims.
func (m *Manager) heldBy(uid types.UID) []types.NamespacedName {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []types.NamespacedName
	for name, c := range m.claims {
		if c.PodUIDs.Has(uid) {
			out = append(out, name)
		}
	}
	return out
}

// take waits for the turns of claims. It takes them in one order, so that two users never wait for
// each other.
func (m *Manager) take(ctx context.Context, names []types.NamespacedName) (release func(), err error) {
	var releases []func()
	release = func() {
		for _, r := range slices.Backward(releases) {
			r()
		}
	}
	for _, name := range sorted(names) {
		r, err := m.turns.Take(ctx, name)
		if err != nil {
			release()
			return nil, err
		}
		releases = append(releases, r)
	}
	return release, nil
}

// sorted returns names in a steady order, each once.
func sorted(names []types.NamespacedName) []types.NamespacedName {
	return slices.Compact(slices.SortedFunc(slices.Values(names), compare))
}

func compare(a, b types.NamespacedName) int {
	return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// save writes the state file.
func (m *Manager) save() error {
	m.saving.Lock()
	defer m.saving.Unlock()
	return state.Write(m.file(), m.content())
}

// content returns the content of the state file, in a steady order. Its claims do not change any
// more.
func (m *Manager) content() []state.Claim {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := []state.Claim{}
	for _, name := range slices.SortedFunc(maps.Keys(m.claims), compare) {
		c := m.claims[name].Claim
		c.PodUIDs, c.DriverState = c.PodUIDs.Clone(), maps.Clone(c.DriverState)
		out = append(out, c)
	}
	return out
}
