package images

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/generate"
)

const (
	// recheck is when to look again for an image whose coming nothing announces.
	recheck = 30 * time.Second
	// failureShown is how long a failure itself is shown before the back-off.
	failureShown = 2 * time.Second
	// maxLooks bounds how often one Ensure looks again because some image came meanwhile.
	maxLooks = 3
)

// Request asks for the image of one container, or of one image volume.
type Request struct {
	Pod *v1.Pod
	// Container is the container's name, empty for a volume; Image is its image as the pod says it, Policy its pull policy; empty is the API's default.
	Container string
	// Volume is the name of the image volume; empty for a container.
	Volume string
	Image  string
	Policy v1.PullPolicy
	// Attempt is the container's restart count: under PullAlways each attempt pulls once.
	Attempt uint32
	// Sandbox is the config of the pod's sandbox, which some runtimes pull into.
	Sandbox *runtimeapi.PodSandboxConfig
}

// key is who wants the image. No container's name has a slash in it.
func (r Request) key() wantKey {
	if r.Volume != "" {
		return wantKey{r.Pod.UID, "volume/" + r.Volume}
	}
	return wantKey{r.Pod.UID, r.Container}
}

// Result is either Ready or says what the container waits for.
type Result struct {
	// Ready says that the image is there; Image is then what to create the container with.
	Ready bool
	Image generate.Image
	// Reason and Message are for the container's waiting state. While the first pull is under way the reason is the API's usual one.
	Reason, Message string
	// RetryAt is when to ask again if nobody wakes the pod before; zero means that somebody will.
	RetryAt time.Time
}

// Ensure answers whether the container may use its image now, and sees to its being pulled where its policy or the node's policy about credentials says so.
// It makes at most a few lookups in the runtime and never waits for a pull. Ask again when woken or at RetryAt, with the same request.
func (m *Manager) Ensure(ctx context.Context, req Request) Result {
	name, err := FullName(req.Image)
	if err != nil {
		return m.refuse(req, "", ReasonInvalidName, fmt.Sprintf("Failed to apply default image tag %q: %v", req.Image, err), eventInspectFailed, 0)
	}
	a := m.askOf(req, name)
	policy := policyOf(req.Policy, name)
	for range maxLooks {
		before, ref, done := m.look(a)
		if policy != v1.PullAlways || done {
			image, err := m.deps.Runtime.ImageStatus(ctx, specOf(req, ref))
			if err != nil {
				return m.refuse(req, name, ReasonInspect, fmt.Sprintf("Failed to inspect image %q: %v", req.Image, err), eventInspectFailed, m.cfg.BackoffInitial)
			}
			if image != nil && (done || m.allowed(a, image)) {
				return m.ready(a, image)
			}
			if image == nil && done {
				m.forgetPulled(a)
			}
		}
		if res, decided := m.missing(a, policy, before); decided {
			return res
		}
	}
	// Images keep coming between our lookups and our decisions: let the pod try again.
	return Result{Reason: ReasonCreating, Message: fmt.Sprintf("Looking for image %q", req.Image), RetryAt: time.Now().Add(time.Second)}
}

// allowed says whether the pod may use an image that is there without asking the registry.
func (m *Manager) allowed(a ask, image *runtimeapi.Image) bool {
	return m.deps.Records == nil || m.deps.Records.Allowed(a.Image, image.GetId(), a.own)
}

// specOf names the image to the runtime: by ref where it was pulled, else as the pod does.
func specOf(req Request, ref string) *runtimeapi.ImageSpec {
	if ref != "" {
		return &runtimeapi.ImageSpec{Image: ref, UserSpecifiedImage: req.Image}
	}
	return &runtimeapi.ImageSpec{Image: withTag(req.Image), UserSpecifiedImage: req.Image, Annotations: req.Pod.Annotations}
}

// wantKey is a container that wants an image.
type wantKey struct {
	pod       types.UID
	container string
}

// want is what is known of a container's want.
type want struct {
	name     string // the image's full name
	attempt  uint32
	pulled   string // what the image was pulled as for this attempt; empty before
	told     string // the last event about a wait, so as not to repeat it each pass
	reported bool   // the image's presence was told
}

// wantOf returns the container's record, a new one for another attempt or image. The lock is held.
func (m *Manager) wantOf(req Request, name string) *want {
	key := req.key()
	w := m.wants[key]
	if w == nil || w.attempt != req.Attempt || w.name != name {
		w = &want{name: name, attempt: req.Attempt}
		m.wants[key] = w
	}
	return w
}

// look returns how many images came so far and, where this attempt pulled its image, as what.
func (m *Manager) look(a ask) (arrivals uint64, ref string, done bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.wantOf(a.Request, a.name)
	return m.arrivals, w.pulled, w.pulled != ""
}

// forgetPulled notes that what this attempt pulled has gone again.
func (m *Manager) forgetPulled(a ask) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if w := m.wants[a.key()]; w != nil {
		w.pulled, w.reported = "", false
	}
}

// ready answers with an image that is there.
func (m *Manager) ready(a ask, image *runtimeapi.Image) Result {
	m.mu.Lock()
	w := m.wantOf(a.Request, a.name)
	tell := !w.reported
	w.reported, w.told = true, ""
	delete(m.backoffs, a.backoff())
	m.leave(a)
	m.mu.Unlock()
	m.dispatch()
	if tell {
		m.deps.Events(a.Pod, a.Container, v1.EventTypeNormal, eventPulled,
			fmt.Sprintf("Container image %q already present on machine and can be accessed by the pod", a.Image))
	}
	return Result{Ready: true, Image: generate.ImageOf(image.GetId(), image)}
}

// missing decides what a container waits for whose image is not there, or is not to be used before the registry has agreed. It decides nothing when an
// image came since arrivals was counted: it may be this one.
func (m *Manager) missing(a ask, policy v1.PullPolicy, arrivals uint64) (res Result, decided bool) {
	m.mu.Lock()
	if m.arrivals != arrivals {
		m.mu.Unlock()
		return Result{}, false
	}
	if policy != v1.PullAlways && m.preload.pending {
		m.preload.waiters[a.Pod.UID] = true
		m.mu.Unlock()
		return Result{Reason: ReasonCreating, Message: fmt.Sprintf("Image %q: waiting for the import of %s", a.Image, m.cfg.ImagesDir)}, true
	}
	if policy != v1.PullAlways {
		m.rescan()
	}
	if policy == v1.PullNever {
		m.mu.Unlock()
		message := fmt.Sprintf("Container image %q is not present with pull policy of Never", a.Image)
		return m.refuse(a.Request, a.name, ReasonNeverPull, message, ReasonNeverPull, recheck), true
	}
	if res, held := m.heldOff(a); held {
		m.mu.Unlock()
		if res.Reason == ReasonBackOff {
			m.tellBackOff(a)
		}
		return res, true
	}
	p, joined := m.join(a)
	if joined && p.state != Queued {
		m.tellPulling(a)
	}
	last := "" // as it is before this pull, which may fail before this pass goes on
	if b := m.backoffs[a.backoff()]; b != nil {
		last = b.message(a.Image)
	}
	m.mu.Unlock()
	if joined {
		m.tellSecrets(a)
	}
	m.dispatch()
	return m.waiting(a, p, last), true
}

// tellPulling records that the image's pull is under way. The lock is held: its end must not be told of before.
func (m *Manager) tellPulling(a ask) {
	m.deps.Events(a.Pod, a.Container, v1.EventTypeNormal, eventPulling, pullingMessage(a.Image))
}

// tellBackOff records that the pod holds off from the image, once for each failure.
func (m *Manager) tellBackOff(a ask) {
	m.tell(a.Request, a.name, ReasonBackOff, func() {
		m.deps.Events(a.Pod, a.Container, v1.EventTypeNormal, eventBackOff, fmt.Sprintf("Back-off pulling image %q", a.Image))
		m.deps.Events(a.Pod, a.Container, v1.EventTypeWarning, eventFailed, "Error: "+ReasonBackOff)
	})
}

// waiting answers for a container whose image is queued or being pulled: with its last failure, if it had one, as a kubelet does, so that
// a pod that cannot be helped does not look better each time it is tried again.
func (m *Manager) waiting(a ask, p *pull, last string) Result {
	if last != "" {
		return Result{Reason: ReasonBackOff, Message: last}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if p.state == Queued {
		return Result{Reason: ReasonCreating, Message: fmt.Sprintf("Image %q is queued for its pull", a.Image)}
	}
	return Result{Reason: ReasonCreating, Message: pullingMessage(a.Image)}
}

// refuse answers for a container whose image cannot be had, telling it once.
func (m *Manager) refuse(req Request, name, reason, message, event string, after time.Duration) Result {
	res := Result{Reason: reason, Message: message}
	if after > 0 {
		res.RetryAt = time.Now().Add(after)
	}
	m.tell(req, name, reason+message, func() {
		m.deps.Events(req.Pod, req.Container, v1.EventTypeWarning, event, message)
		m.deps.Events(req.Pod, req.Container, v1.EventTypeWarning, eventFailed, "Error: "+reason)
	})
	return res
}

// tell calls events unless the container was told the same last time.
func (m *Manager) tell(req Request, name, what string, events func()) {
	m.mu.Lock()
	w := m.wantOf(req, name)
	same := w.told == what
	w.told = what
	m.mu.Unlock()
	if !same {
		events()
	}
}
