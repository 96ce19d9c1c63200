package cgroups

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/cgroups/manager"
	"github.com/opencontainers/cgroups/systemd"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Config says where pods are placed and what limits them.
type Config struct {
	// Driver makes the cgroups. It must be the runtime's driver.
	Driver Driver
	// Root is the cgroup that holds all pods; see [Layout.Root].
	Root string
	// CgroupsPerQOS enables cgroups of pods. If it is false, every method succeeds and does
	// nothing, and the runtime chooses where sandboxes are placed.
	CgroupsPerQOS bool
	// Allocatable is what all pods together may use: cpu, memory, pid, hugepages-*. nil means no
	// limit (enforceNodeAllocatable without "pods").
	Allocatable corev1.ResourceList
	// RefuseV1 makes New fail on a host without cgroup v2 (failCgroupV1).
	RefuseV1 bool
	// Options are the settings that a pod's limits depend on. New sets Version and HugePageSizes.
	Options Options
}

// Deps are what a Manager needs from others.
type Deps struct {
	Logger *slog.Logger
	// Observe is called after each operation on a cgroup (create, update, destroy) with how long it
	// took. It may be nil.
	Observe func(operation string, took time.Duration)
	// NodeLimited is called after each attempt to set the limits of all pods together. err is nil
	// once they are set; there are no calls after that. It may be nil.
	NodeLimited func(err error)
	// Claim is called by Setup with a directory of the cgroup that holds all pods, before anything
	// is made in it. Its error ends Setup: somebody else uses the cgroup. It may be nil.
	Claim func(dir string) error
}

// Manager makes and removes the cgroups of pods.
type Manager struct {
	config Config
	layout Layout
	host   hierarchies
	log    *slog.Logger
	// limited is Deps.NodeLimited, and observe is Deps.Observe.
	limited func(error)
	observe func(operation string, took time.Duration)
	// claim is Deps.Claim.
	claim func(dir string) error

	mu sync.Mutex
	// made has the pods whose limits this process has written, so that a sync of an unchanged pod
	// takes only a few stat calls. It is only a cache, and is empty after a restart.
	made map[types.UID]podCgroup
	// nodeLimited says whether the limits of all pods together are set.
	nodeLimited bool
}

// The kubelet's names of operations on cgroups.
const (
	opCreate  = "create"
	opUpdate  = "update"
	opDestroy = "destroy"
)

// podCgroup is what EnsurePod wrote last.
type podCgroup struct {
	path   string
	limits string
	paths  []string
}

// New checks the configuration against the host. It changes nothing on the host.
func New(config Config, deps Deps) (*Manager, error) {
	m := &Manager{
		config:  config,
		layout:  Layout{Driver: config.Driver, Root: config.Root},
		log:     deps.Logger,
		limited: deps.NodeLimited,
		observe: deps.Observe,
		claim:   deps.Claim,
		made:    map[types.UID]podCgroup{},
	}
	if m.log == nil {
		m.log = slog.New(slog.DiscardHandler)
	}
	if m.limited == nil {
		m.limited = func(error) {}
	}
	if m.observe == nil {
		m.observe = func(string, time.Duration) {}
	}
	if m.claim == nil {
		m.claim = func(string) error { return nil }
	}
	if err := m.layout.Validate(); err != nil {
		return nil, err
	}
	host, err := detect()
	if err != nil {
		return nil, err
	}
	if config.RefuseV1 && host.version != V2 {
		return nil, fmt.Errorf("this host has cgroup %s and the configuration refuses it: set failCgroupV1: false, or "+
			"boot with systemd.unified_cgroup_hierarchy=1", host.version)
	}
	if config.CgroupsPerQOS && config.Driver == Systemd && !systemd.IsRunningSystemd() {
		return nil, errors.New("the cgroup driver is systemd, but systemd does not run on this host: set " +
			"cgroupDriver: cgroupfs, here and in the runtime")
	}
	m.host = host
	m.config.Options.Version = host.version
	m.config.Options.HugePageSizes = HugePageSizes()
	return m, nil
}

// Version returns the host's cgroup version.
func (m *Manager) Version() Version { return m.host.version }

// Layout returns the names that this manager uses.
func (m *Manager) Layout() Layout { return m.layout }

// Options returns the options, completed with the host's values, for [ContainerResources] and
// [SandboxResources].
func (m *Manager) Options() Options { return m.config.Options }

// Setup makes the root, the cgroup of all pods and the cgroups of the quality-of-service classes,
// and sets their limits. It may be called again at any time. The limits of all pods together cannot
// be set while the pods of an earlier run use more; Setup logs this, and [Manager.UpdateQoS] tries
// again.
func (m *Manager) Setup(ctx context.Context) error {
	if !m.config.CgroupsPerQOS {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	if root := m.layout.RootPath(); root != "/" {
		if err := m.apply(root, Limits{AnyHugePages: true}); err != nil {
			return fmt.Errorf("make cgroup root %s: %w", root, err)
		}
	}
	// One hierarchy is enough, if it is the same for all.
	if dirs := existing(slices.Sorted(slices.Values(m.host.dirs(m.layout.RootPath())))); len(dirs) > 0 {
		if err := m.claim(dirs[0]); err != nil {
			return err
		}
	}
	if err := m.create(m.layout.PodsPath()); err != nil {
		return fmt.Errorf("make cgroup of all pods: %w", err)
	}
	m.limitNode()
	for class, limits := range map[corev1.PodQOSClass]Limits{
		corev1.PodQOSBurstable:  {AnyHugePages: true},
		corev1.PodQOSBestEffort: {AnyHugePages: true, CPUShares: minShares},
	} {
		if err := m.apply(m.layout.ClassPath(class), limits); err != nil {
			return fmt.Errorf("make cgroup of %s pods: %w", class, err)
		}
	}
	return nil
}

// limitNode sets the limits of all pods together, unless they are set already, and takes back those
// of an earlier run.
func (m *Manager) limitNode() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.nodeLimited {
		return
	}
	err := m.set(m.layout.PodsPath(), m.lift(nodeLimits(m.config.Allocatable, runtime.NumCPU())))
	m.limited(err)
	if err != nil {
		m.log.Warn("The limits of all pods together are not in force, will try again", "cgroup", m.layout.PodsPath(),
			"err", err)
		return
	}
	m.nodeLimited = true
}

// EnsurePod makes a pod's cgroup and sets its limits. It returns the path that the runtime takes as
// the sandbox's cgroup parent, which is empty without CgroupsPerQOS. If this process has made the
// pod's cgroup before and the pod has not changed, EnsurePod writes nothing. If a process died
// while it made the cgroup, EnsurePod completes it.
func (m *Manager) EnsurePod(ctx context.Context, pod *corev1.Pod) (parent string, err error) {
	if !m.config.CgroupsPerQOS {
		return "", nil
	}
	if err := errors.Join(ctx.Err(), validUID(pod.UID)); err != nil {
		return "", fmt.Errorf("make cgroup of pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	path := m.layout.PodPath(pod.UID, QOSClass(pod))
	limits := PodLimits(pod, m.config.Options)
	want := podCgroup{path: path, limits: fmt.Sprintf("%+v", limits)}
	m.mu.Lock()
	have := m.made[pod.UID]
	m.mu.Unlock()
	if have.path == want.path && have.limits == want.limits && allExist(have.paths) {
		return path, nil
	}
	begun, operation := time.Now(), opUpdate
	mgr, err := m.library(path, limits)
	if err == nil {
		if len(existing(m.host.dirs(path))) == 0 {
			operation = opCreate
		}
		err = create(mgr)
	}
	if err == nil {
		err = mgr.Set(m.host.resources(limits, m.config.Options.HugePageSizes))
	}
	m.observe(operation, time.Since(begun))
	if err != nil {
		return "", fmt.Errorf("make cgroup %s of pod %s/%s: %w", path, pod.Namespace, pod.Name, err)
	}
	// The library leaves out hierarchies in which it sets nothing (devices).
	want.paths = existing(slices.Collect(maps.Values(mgr.GetPaths())))
	m.mu.Lock()
	m.made[pod.UID] = want
	m.mu.Unlock()
	return path, nil
}

// UpdateQoS sets the weight of the Burstable pods to the sum of their requests, and the weight of
// the BestEffort pods to the kernel's least. pods are all pods that have a cgroup or will have one.
// A weight that is already right is not written.
func (m *Manager) UpdateQoS(ctx context.Context, pods []*corev1.Pod) error {
	if !m.config.CgroupsPerQOS {
		return nil
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	m.limitNode()
	var errs []error
	for class, shares := range map[corev1.PodQOSClass]uint64{
		corev1.PodQOSBurstable:  burstableShares(pods),
		corev1.PodQOSBestEffort: minShares,
	} {
		path := m.layout.ClassPath(class)
		if m.hasShares(path, shares) {
			continue
		}
		if err := m.apply(path, Limits{CPUShares: shares, AnyHugePages: true}); err != nil {
			errs = append(errs, fmt.Errorf("set weight of %s pods: %w", class, err))
		}
	}
	return errors.Join(errs...)
}

// hasShares reports whether a cgroup has this weight.
func (m *Manager) hasShares(path string, shares uint64) bool {
	file, want := "cpu.shares", shares
	if m.host.version == V2 {
		file, want = "cpu.weight", cpuWeight(shares)
	}
	data, err := os.ReadFile(filepath.Join(m.host.controllers["cpu"], path, file))
	return err == nil && strings.TrimSpace(string(data)) == strconv.FormatUint(want, 10)
}

// apply makes a cgroup and sets its limits.
func (m *Manager) apply(path string, l Limits) error {
	begun, operation := time.Now(), opUpdate
	if len(existing(m.host.dirs(path))) == 0 {
		operation = opCreate
	}
	defer func() { m.observe(operation, time.Since(begun)) }()
	if err := m.create(path); err != nil {
		return err
	}
	return m.set(path, l)
}

func (m *Manager) create(path string) error {
	mgr, err := m.library(path, Limits{AnyHugePages: true})
	if err != nil {
		return err
	}
	return create(mgr)
}

// create makes the directories in all hierarchies, and missing directories above them. For the
// library -1 means "move no process".
func create(mgr cgroups.Manager) error { return mgr.Apply(-1) }

func (m *Manager) set(path string, l Limits) error {
	mgr, err := m.library(path, l)
	if err != nil {
		return err
	}
	return mgr.Set(m.host.resources(l, m.config.Options.HugePageSizes))
}

func (m *Manager) library(path string, l Limits) (cgroups.Manager, error) {
	return manager.New(m.layout.cgroup(path, m.host.resources(l, m.config.Options.HugePageSizes)))
}

func allExist(paths []string) bool {
	for _, path := range paths {
		if _, err := os.Stat(path); err != nil {
			return false
		}
	}
	return len(paths) > 0
}
