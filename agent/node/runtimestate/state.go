// Package runtimestate remembers the container runtime's facts about itself: its name, its release,
// its abilities, and whether it answers.
//
// Purpose: the agent asks a runtime once at the first contact, and again when the runtime comes
// back, perhaps as another release. The agent reports a runtime that does not answer any more:
// otherwise people would take what was last known for what is.
//
// Truth owned: none; the runtime owns it. Concurrency: a [State] is safe for concurrent use.
package runtimestate

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/node"
	"github.com/berthd/berth/agent/node/doctor"
	"github.com/berthd/berth/internal/notify"
	"github.com/berthd/berth/internal/retry"
	"github.com/berthd/berth/status"
)

// Runtime has the calls that return a runtime's state; every cri.Runtime has them.
type Runtime interface {
	Version(ctx context.Context) (*runtimeapi.VersionResponse, error)
	Status(ctx context.Context, verbose bool) (*runtimeapi.StatusResponse, error)
}

// Deps are what a state works with.
type Deps struct {
	Runtime Runtime
	// Node receives the runtime's abilities.
	Node interface {
		SetRuntimeFeatures(supplementalGroupsPolicy bool, handlers map[string]node.Handler)
	}
	// Changed is called after the runtime has reported its state, and after a silence was reported
	// or has ended.
	Changed func()
	// Event records an event about the node.
	Event  func(kind, reason, message string)
	Logger *slog.Logger
}

// State has the last facts that the runtime reported about itself. Make it with [New].
type State struct {
	deps    Deps
	version atomic.Pointer[runtimeapi.VersionResponse]
	status  atomic.Pointer[runtimeapi.StatusResponse]
	watch   watch
}

// New returns the state of a runtime that was not asked yet.
func New(deps Deps) *State { return &State{deps: deps, watch: watch{doubt: notify.New()}} }

// Meet asks the runtime for its name and its abilities, and reports whether the runtime answered
// both questions. If an answer is missing, the earlier answer stays in force; without an earlier
// one, the ability counts as missing.
func (s *State) Meet(ctx context.Context) bool {
	log := s.deps.Logger
	v, err := s.deps.Runtime.Version(ctx)
	if err != nil {
		log.Warn("the runtime does not say its version", "err", err)
	} else {
		s.version.Store(v)
		log.Info("container runtime", "name", v.RuntimeName, "version", v.RuntimeVersion, "api", v.RuntimeApiVersion)
		if holes := doctor.Holes(v.RuntimeName, v.RuntimeVersion); len(holes) > 0 {
			log.Warn("the runtime has known vulnerabilities: update it, unless your distribution has fixed them in "+
				"this version",
				"name", v.RuntimeName, "version", v.RuntimeVersion, "holes", holes)
		}
	}
	st, statusErr := s.deps.Runtime.Status(ctx, false)
	if statusErr != nil {
		log.Warn("the runtime does not say what it can do", "err", statusErr)
		return false
	}
	handlers := map[string]node.Handler{}
	for _, h := range st.GetRuntimeHandlers() {
		handlers[h.Name] = node.Handler{
			RecursiveReadOnly: h.GetFeatures().GetRecursiveReadOnlyMounts(),
			UserNamespaces:    h.GetFeatures().GetUserNamespaces(),
		}
	}
	s.status.Store(st)
	s.deps.Changed()
	s.deps.Node.SetRuntimeFeatures(st.GetFeatures().GetSupplementalGroupsPolicy(), handlers)
	return err == nil
}

// Is returns the runtime's name and release as the runtime reported them last; empty before its
// first answer.
func (s *State) Is() (name, release string) {
	v := s.version.Load()
	return v.GetRuntimeName(), v.GetRuntimeVersion()
}

// Faults asks the runtime for its conditions, and returns those that are not true; see [FaultsOf].
func (s *State) Faults(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	st, err := s.deps.Runtime.Status(ctx, false)
	if err != nil {
		return nil, fmt.Errorf("asking the container runtime for its state: %w", err)
	}
	return FaultsOf(st), nil
}

// Name returns the runtime's name, which is the scheme of container ids.
func (s *State) Name() string {
	if v := s.version.Load(); v != nil {
		return v.RuntimeName
	}
	return status.DefaultRuntimeName
}

// Release returns the runtime's name and release in the form of a Node object.
func (s *State) Release() string {
	if v := s.version.Load(); v != nil {
		return v.RuntimeName + "://" + v.RuntimeVersion
	}
	return "unknown://Unknown"
}

// Status returns the runtime's last report of its abilities; nil before the first report.
func (s *State) Status() *runtimeapi.StatusResponse { return s.status.Load() }

// FaultsOf returns the CRI's two conditions that are not true, as the runtime reports them, in the
// kubelet's words. The runtime's other conditions are for people.
func FaultsOf(st *runtimeapi.StatusResponse) []string {
	var out []string
	for _, kind := range [][2]string{
		{runtimeapi.RuntimeReady, "container runtime not ready: "},
		{runtimeapi.NetworkReady, "container runtime network not ready: "},
	} {
		for _, c := range st.GetStatus().GetConditions() {
			if c.Type == kind[0] && !c.Status {
				out = append(out, fmt.Sprintf("%s%s=false reason:%s message:%s", kind[1], c.Type, c.Reason, c.Message))
			}
		}
	}
	return out
}

// Answers returns nil if the runtime answers now.
func (s *State) Answers(ctx context.Context) error {
	_, err := s.deps.Runtime.Version(ctx)
	return err
}

// awaitPeriod is the time between two questions of [State.Await].
const awaitPeriod = 100 * time.Millisecond

// Await waits until the runtime answers, and returns its last error if ctx ends first.
func (s *State) Await(ctx context.Context) error {
	var last error
	for {
		err := s.Answers(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() == nil || last == nil {
			last = err
		}
		if !retry.Sleep(ctx, awaitPeriod) {
			return last
		}
	}
}

// ImageVolumes returns the reason why the runtime cannot mount images as volumes; empty if the
// runtime can, or does not report its release. The CRI has no other way to find this out: older
// releases ignore an image in a mount.
func (s *State) ImageVolumes() string {
	v := s.version.Load()
	if v == nil {
		return ""
	}
	least := map[string][2]int{"containerd": {2, 1}, "cri-o": {1, 33}}
	want, known := least[strings.ToLower(v.RuntimeName)]
	major, minor, ok := release(v.RuntimeVersion)
	if !known || !ok || major > want[0] || major == want[0] && minor >= want[1] {
		return ""
	}
	return fmt.Sprintf("image volumes need %s %d.%d or later, and this is %s", v.RuntimeName, want[0], want[1],
		v.RuntimeVersion)
}

// release reads the first two numbers of a release such as v2.4.2 or 1.6.20~ds1.
func release(version string) (major, minor int, ok bool) {
	first, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	second := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
	major, err1 := strconv.Atoi(first)
	minor, err2 := strconv.Atoi(second)
	return major, minor, err1 == nil && err2 == nil
}
