package plan

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/internal/pods"
)

// world is a runtime in which everything that can happen between two decisions happens at random:
// processes end, sandboxes are lost, records are removed, calls fail before or after they took
// effect, the agent dies between two calls, the clock moves.
type world struct {
	t    *testing.T
	rng  *rand.Rand
	pod  *v1.Pod
	now  time.Time
	seq  int64
	log  []string
	calm bool // nothing bad happens any more
	// amnesia is an agent without a checkpoint. Then the runtime loses no record.
	amnesia bool

	sandboxes  []*runtimeapi.PodSandboxStatus
	containers []*Container
	busy       map[string]Operation
	stops      map[string]ContainerStop
	backoff    map[string]Backoff
	noted      string

	// started is the highest attempt of each container that was started.
	started map[string]uint32
	// done are the containers that ended and must not start again: Never, or OnFailure with 0.
	done map[string]bool
	// codes are the exit codes with which those in done ended.
	codes map[string]int32
	// ephem counts the starts of ephemeral containers.
	ephem    map[string]int
	finished bool
}

func newWorld(t *testing.T, seed uint64) *world {
	w := &world{
		t:       t,
		rng:     rand.New(rand.NewPCG(seed, 7)),
		now:     now,
		busy:    map[string]Operation{},
		stops:   map[string]ContainerStop{},
		backoff: map[string]Backoff{},
		started: map[string]uint32{},
		done:    map[string]bool{},
		codes:   map[string]int32{},
		ephem:   map[string]int{},
	}
	w.amnesia = w.rng.IntN(3) == 0
	policies := []string{"Always", "OnFailure", "Never"}
	text := []string{policies[w.rng.IntN(3)]}
	for i := range w.rng.IntN(4) {
		text = append(text, []string{"i:i", "s:s", "s:s", "i:i"}[w.rng.IntN(4)]+fmt.Sprint(i))
	}
	for i := range 1 + w.rng.IntN(3) {
		own := ""
		if w.rng.IntN(4) == 0 {
			own = "=" + policies[w.rng.IntN(3)]
		}
		text = append(text, fmt.Sprintf("a:a%d%s", i, own))
	}
	if w.rng.IntN(3) == 0 {
		text = append(text, "e:e")
	}
	w.pod = parsePod(t, strings.Join(text, " "))
	w.note("seed %d, amnesia %v: %s", seed, w.amnesia, strings.Join(text, " "))
	return w
}

func (w *world) note(format string, args ...any) {
	w.log = append(w.log, fmt.Sprintf(format, args...))
}

func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("%s\n%s", fmt.Sprintf(format, args...), strings.Join(w.log, "\n"))
}

// luck is true once in n, while things may go wrong.
func (w *world) luck(n int) bool { return !w.calm && w.rng.IntN(n) == 0 }

// input returns what the agent would know.
func (w *world) input() Input {
	maps.DeleteFunc(w.busy, func(id string, _ Operation) bool {
		return !slices.ContainsFunc(w.containers, func(c *Container) bool { return c.Id == id })
	})
	o := Observed{Sandboxes: slices.Clone(w.sandboxes), Containers: slices.Clone(w.containers)}
	o.Sort()
	ended := map[string]int32{}
	floors := map[string]uint32{}
	for name, n := range w.started {
		floors[name] = n + 1
	}
	for name := range w.done {
		ended[name] = w.codes[name]
	}
	if w.amnesia {
		floors, ended, w.noted = nil, nil, ""
	}
	return Input{
		Pod:           w.pod,
		Observed:      o,
		Hash:          hashOf,
		Busy:          w.busy,
		Stops:         w.stops,
		Backoff:       w.backoff,
		RestartFloor:  floors,
		Ended:         ended,
		InitializedIn: w.noted,
		Limits:        DefaultBackoffLimits(),
		Now:           w.now,
	}
}

// chaos does what happens without the agent.
func (w *world) chaos() {
	for _, c := range slices.Clone(w.containers) {
		switch {
		case c.State == runtimeapi.ContainerState_CONTAINER_RUNNING && (w.luck(4) || w.calm && w.runsOut(c)):
			w.exit(c, int32(w.rng.IntN(2)))
		case c.State == runtimeapi.ContainerState_CONTAINER_RUNNING && w.luck(40):
			c.State = runtimeapi.ContainerState_CONTAINER_UNKNOWN
			w.note("  ! %s unknown", c.Id)
		case !c.Running() && !w.amnesia && w.luck(40):
			w.drop(c)
			w.note("  ! %s's record removed", c.Id)
		case w.busy[c.Id] == Stopping && w.luck(4):
			delete(w.busy, c.Id) // a hook has ended, or the stop failed
		case w.busy[c.Id] == Stopping && (w.calm || w.rng.IntN(2) == 0):
			w.exit(c, 137)
			delete(w.busy, c.Id)
		case w.busy[c.Id] == PostStart && (w.calm || w.rng.IntN(2) == 0):
			delete(w.busy, c.Id)
		}
	}
	for _, s := range w.sandboxes {
		if s.State == runtimeapi.PodSandboxState_SANDBOX_READY && w.luck(15) {
			s.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
			w.note("  ! sandbox %s lost", s.Id)
		}
	}
	if !w.amnesia && w.luck(60) {
		w.note("  ! everything is forgotten")
		for _, c := range w.containers {
			w.exit(c, 255)
		}
		w.sandboxes, w.containers = nil, nil
	}
	if w.luck(30) {
		w.note("  ! agent restarts")
		clear(w.busy)
		if w.amnesia {
			clear(w.stops)
		}
	}
	w.now = w.now.Add(time.Duration(w.rng.IntN(100)) * time.Second)
}

// runsOut reports whether a container ends by itself in calm times: init containers do, and the
// apps of pods that can finish.
func (w *world) runsOut(c *Container) bool {
	spec, _ := FindContainer(w.pod, c.Name())
	d := newDecision(Input{Pod: w.pod})
	for i := range w.pod.Spec.InitContainers {
		if &w.pod.Spec.InitContainers[i] == spec {
			return !pods.Sidecar(spec)
		}
	}
	return spec.Name != "e" && !d.restarts(spec, 0)
}

func (w *world) exit(c *Container, code int32) {
	if !c.Running() {
		return
	}
	if w.calm {
		code = 0
	}
	c.State, c.ExitCode, c.FinishedAt = runtimeapi.ContainerState_CONTAINER_EXITED, code, w.now.UnixNano()
	w.note("  ! %s ended with %d", c.Id, code)
	spec, _ := FindContainer(w.pod, c.Name())
	for i := range w.pod.Spec.Containers {
		if &w.pod.Spec.Containers[i] == spec && !newDecision(Input{Pod: w.pod}).restarts(spec, code) {
			w.done[spec.Name], w.codes[spec.Name] = true, code
		}
	}
}

func (w *world) drop(c *Container) {
	w.containers = slices.DeleteFunc(w.containers, func(x *Container) bool { return x == c })
}

// call makes one call to the runtime. The call may fail before it took effect or after; that ends
// the sync, as the agent's death would.
func (w *world) call(effect func()) bool {
	if w.luck(12) {
		w.note("  ! call failed")
		return false
	}
	effect()
	if w.luck(20) {
		w.note("  ! call took effect and failed")
		return false
	}
	return true
}

// act carries out what was decided, in the order of the steps.
func (w *world) act(a Actions) {
	w.stop(a)
	if !w.sandboxStep(&a) {
		return
	}
	for _, c := range a.RemoveContainers {
		if c.Running() {
			w.fail("%s is removed while it runs", c.Id)
		}
		if !w.call(func() { w.drop(c) }) {
			return
		}
	}
	for _, s := range a.Start {
		if w.luck(6) {
			w.note("  ! image of %s is missing", s.Container.Name)
			continue
		}
		if !w.start(a, s) {
			return
		}
	}
}

// stop begins the stops that were decided. Containers held back may have a hook to run.
func (w *world) stop(a Actions) {
	for _, k := range a.Kill {
		_, begun := w.stops[k.Container.Id]
		w.stops[k.Container.Id] = ContainerStop{Since: w.now}
		if !k.Held || !begun && w.luck(2) {
			w.busy[k.Container.Id] = Stopping
		}
	}
}

func (w *world) sandboxStep(a *Actions) bool {
	for _, id := range a.StopSandboxes {
		if !w.call(func() { w.stopSandbox(id) }) {
			return false
		}
	}
	for _, id := range a.RemoveSandboxes {
		if !w.call(func() {
			w.stopSandbox(id)
			w.sandboxes = slices.DeleteFunc(w.sandboxes, func(s *runtimeapi.PodSandboxStatus) bool {
				return s.Id == id
			})
			w.containers = slices.DeleteFunc(w.containers, func(c *Container) bool { return c.SandboxID == id })
		}) {
			return false
		}
	}
	if !a.CreateSandbox {
		if a.Initialized {
			w.noted = a.SandboxID
		}
		return a.SandboxID != ""
	}
	ok := w.call(func() {
		for _, s := range w.sandboxes {
			if s.State == runtimeapi.PodSandboxState_SANDBOX_READY {
				w.fail("sandbox made beside %s", s.Id)
			}
			if s.Metadata.Attempt >= a.SandboxAttempt {
				w.fail("sandbox attempt %d after %s", a.SandboxAttempt, s.Id)
			}
		}
		w.seq++
		s := parseSandbox(w.t, fmt.Sprintf("S%d", a.SandboxAttempt), "ready")
		s.Id, s.CreatedAt = fmt.Sprintf("S%d.%d", a.SandboxAttempt, w.seq), w.seq
		w.sandboxes = append(w.sandboxes, s)
	})
	if !ok {
		return false
	}
	a.SandboxID = w.sandboxes[len(w.sandboxes)-1].Id
	return true
}

func (w *world) stopSandbox(id string) {
	for _, s := range w.sandboxes {
		if s.Id == id {
			s.State = runtimeapi.PodSandboxState_SANDBOX_NOTREADY
		}
	}
	for _, c := range w.containers {
		if c.SandboxID == id && c.Running() {
			w.fail("sandbox %s is stopped under %s", id, c.Id)
		}
	}
}

// start creates and starts a container, and checks all that must hold then.
func (w *world) start(a Actions, s Start) bool {
	name := s.Container.Name
	if w.done[name] {
		w.fail("%s runs again although it ended for good", name)
	}
	w.checkOrder(a, s)
	var c *Container
	if !w.call(func() {
		for _, other := range w.containers {
			switch {
			case other.Name() != name:
			case other.Running():
				w.fail("%s#%d is made while %s runs", name, s.Attempt, other.Id)
			case other.Attempt() == s.Attempt:
				w.fail("%s#%d is made while its name is reserved", name, s.Attempt)
			}
		}
		if s.Previous != nil && s.Previous.Exited() {
			end := End{Finished: time.Unix(0, s.Previous.FinishedAt)}
			w.backoff[name] = w.backoff[name].Next(end, BackoffKey(s.Container), DefaultBackoffLimits())
		}
		w.seq++
		c = parseContainer(w.t, name, s.Attempt, a.SandboxID,
			[]string{fmt.Sprintf("%s#%d.%d", name, s.Attempt, w.seq), "created"})
		c.CreatedAt = w.seq
		w.containers = append(w.containers, c)
	}) {
		return false
	}
	return w.call(func() {
		if last, ok := w.started[name]; ok && s.Attempt <= last {
			w.fail("%s#%d is started after #%d", name, s.Attempt, last)
		}
		w.started[name] = s.Attempt
		if s.Kind == Ephemeral {
			if w.ephem[name]++; w.ephem[name] > 1 {
				w.fail("ephemeral container %s runs twice", name)
			}
		}
		c.State = runtimeapi.ContainerState_CONTAINER_RUNNING
		if w.luck(3) && s.Kind == App {
			w.busy[c.Id] = PostStart
		}
	})
}

// checkOrder checks that the containers before a container in the pod were done in this sandbox, as
// far as there are records.
func (w *world) checkOrder(a Actions, s Start) {
	if s.Kind == Ephemeral || a.SandboxID == w.noted {
		return
	}
	for i := range w.pod.Spec.InitContainers {
		before := &w.pod.Spec.InitContainers[i]
		if before.Name == s.Container.Name {
			return
		}
		if pods.Sidecar(before) {
			continue
		}
		for _, c := range w.containers {
			if c.Name() == before.Name && c.SandboxID == a.SandboxID && c.Running() {
				w.fail("%s starts while init container %s runs", s.Container.Name, c.Id)
			}
		}
	}
}

// check checks what must hold at all times.
func (w *world) check() {
	running := map[string]string{}
	for _, c := range w.containers {
		if !c.Running() {
			continue
		}
		if other := running[c.Name()]; other != "" {
			w.fail("%s and %s run at once", other, c.Id)
		}
		running[c.Name()] = c.Id
	}
}

// stable reports whether nothing is left to do: everything that should run does.
func (w *world) stable(a Actions) bool {
	return len(a.Start)+len(a.Kill)+len(a.Wait)+len(a.StopSandboxes)+len(a.RemoveContainers)+
		len(a.RemoveSandboxes) == 0 &&
		!a.CreateSandbox && len(w.busy) == 0
}

// turn makes one decision and carries it out. It reports whether nothing is left to do for the pod.
func (w *world) turn() (rest bool) {
	if w.finished {
		a := DecideStop(w.input())
		w.note("stop: %s", summary(a))
		if len(a.Start) > 0 || a.CreateSandbox {
			w.fail("a pod that ends is brought up")
		}
		w.stop(a)
		w.sandboxStep(&a)
		return a.Stopped
	}
	a := Decide(w.input())
	w.note("%s", summary(a))
	if a.Finished {
		if len(a.Start)+len(a.Kill)+len(a.Wait) > 0 || a.CreateSandbox {
			w.fail("a finished pod goes on")
		}
		w.finished = true
		return false
	}
	for _, k := range a.Kill {
		if w.busy[k.Container.Id] == Stopping {
			w.fail("%s is stopped twice", k.Container.Id)
		}
	}
	rest = w.stable(a)
	w.act(a)
	return rest
}

func live(t *testing.T, seed uint64) {
	w := newWorld(t, seed)
	for range 60 {
		w.chaos()
		w.turn()
		w.check()
	}
	w.calm = true
	w.note("calm")
	rest := 0
	for range 120 {
		w.chaos()
		if w.turn() {
			rest++
		} else {
			rest = 0
		}
		w.check()
		if rest == 3 && (w.finished || w.allRun()) {
			return
		}
	}
	w.fail("it does not come to rest")
}

// allRun reports whether every app container runs or has ended for good.
func (w *world) allRun() bool {
	o := w.input().Observed
	for i := range w.pod.Spec.Containers {
		name := w.pod.Spec.Containers[i].Name
		if c := o.Latest(name); !w.done[name] && (c == nil || !c.Running()) {
			return false
		}
	}
	for i := range w.pod.Spec.InitContainers {
		spec := &w.pod.Spec.InitContainers[i]
		if c := o.Latest(spec.Name); pods.Sidecar(spec) && (c == nil || !c.Running()) {
			return false
		}
	}
	return true
}

// TestLivesOfPods lives many random lives and checks each. Two attempts never run at once, attempt
// numbers never fall, no reserved name is taken, and what ended for good stays ended. Once nothing
// happens any more, the pod runs or is finished.
func TestLivesOfPods(t *testing.T) {
	seeds := uint64(1500)
	if testing.Short() {
		seeds = 300
	}
	for seed := range seeds {
		live(t, seed)
	}
}

// FuzzLivesOfPods is TestLivesOfPods with seeds of the fuzzer's.
func FuzzLivesOfPods(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(live)
}
