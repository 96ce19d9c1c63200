package images

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/images/credentials"
	"github.com/berthd/berth/agent/images/records"
	"github.com/berthd/berth/cri"
)

const (
	// recheck is when to look again for an image that may appear without any notification.
	recheck = 30 * time.Second
	// failureShown is how long a failure itself is shown before the back-off.
	failureShown = 2 * time.Second
	// maxLooks limits how often one Ensure starts again because an image came meanwhile.
	maxLooks = 3
)

// Request asks for the image of one container or of one image volume.
type Request struct {
	Pod *v1.Pod
	// Container is the container's name; empty for a volume.
	Container string
	// Volume is the name of the image volume; empty for a container.
	Volume string
	// Image is the image as the pod writes it.
	Image string
	// Policy is the pull policy; empty means the API's default.
	Policy v1.PullPolicy
	// Attempt is the container's restart count. With PullAlways each attempt pulls once.
	Attempt uint32
	// Sandbox is the config of the pod's sandbox. Some runtimes need it for a pull.
	Sandbox *runtimeapi.PodSandboxConfig
}

// key identifies what needs the image. The name of a container has no slash.
func (r Request) key() wantKey {
	if r.Volume != "" {
		return wantKey{r.Pod.UID, "volume/" + r.Volume}
	}
	return wantKey{r.Pod.UID, r.Container}
}

// Result says that the image is ready, or what the container waits for.
type Result struct {
	// Ready says that the image may be used. Image is then what to create the container with.
	Ready bool
	Image cri.Image
	// Reason and Message are for the container's waiting state. During the first pull, the reason
	// is the one that the API uses for every new container.
	Reason, Message string
	// RetryAt is when to ask again if the pod is not woken before. Zero means that the pod will be
	// woken.
	RetryAt time.Time
}

// Ensure reports whether the container may use its image now. It queues a pull if the pull policy
// or the node's policy about credentials demands one. It makes at most a few calls to the runtime,
// and never waits for a pull. Call it again with the same request when the pod is woken, or at
// RetryAt.
func (m *Manager) Ensure(ctx context.Context, req Request) Result {
	name, err := FullName(req.Image)
	if err != nil {
		return m.refuse(req, "", refusal{
			reason: ReasonInvalidName, event: eventInspectFailed,
			message: fmt.Sprintf("Failed to apply default image tag %q: %v", req.Image, err),
		})
	}
	a := m.askOf(req, name)
	policy := policyOf(req.Policy, name)
	for range maxLooks {
		last, removing := m.look(a)
		if removing {
			return Result{Reason: ReasonCreating, Message: fmt.Sprintf("Image %q is being removed", req.Image)}
		}
		done, present := last.pulled != "", unknown
		if policy != v1.PullAlways || done {
			image, err := m.deps.Runtime.ImageStatus(ctx, specOf(req, last.pulled))
			if err != nil {
				return m.refuse(req, name, refusal{
					reason: ReasonInspect, event: eventInspectFailed, after: m.cfg.BackoffInitial,
					message: fmt.Sprintf("Failed to inspect image %q: %v", req.Image, err),
				})
			}
			if image != nil && (done || m.allowed(ctx, a, image)) {
				return m.ready(a, image)
			}
			if image == nil && done {
				m.forgetPulled(a)
			}
			if policy != v1.PullAlways {
				present = answerOf(image != nil)
			}
		}
		if res, decided := m.missing(a, policy, last.arrivals, present); decided {
			return res
		}
	}
	// Images keep coming between the lookups and the decisions: the pod tries again later.
	return Result{
		Reason:  ReasonCreating,
		Message: fmt.Sprintf("Looking for image %q", req.Image),
		RetryAt: time.Now().Add(time.Second),
	}
}

// allowed reports whether the pod may use an image that is on the node without asking the registry.
func (m *Manager) allowed(ctx context.Context, a ask, image *runtimeapi.Image) bool {
	return m.deps.Records == nil || m.deps.Records.Allowed(a.Image, image.GetId(), records.Pod{
		Own: a.own, Account: func() credentials.Source { return m.deps.Node.Account(ctx, a.Pod, repositoryOf(a.name)) },
	})
}

// specOf returns the image's name for the runtime: ref, if the image was pulled as ref, otherwise
// the pod's name of it. It says for which pod the image is: while a node changes its container
// runtime, a pod's images are in the runtime that has the pod's sandbox.
func specOf(req Request, ref string) *runtimeapi.ImageSpec {
	spec := &runtimeapi.ImageSpec{
		Image: ref, UserSpecifiedImage: req.Image, Annotations: map[string]string{cri.LabelPodUID: string(req.Pod.UID)},
	}
	if ref == "" {
		spec.Image = withTag(req.Image)
		maps.Copy(spec.Annotations, req.Sandbox.GetAnnotations())
	}
	return spec
}

// wantKey is a container that needs an image.
type wantKey struct {
	pod       types.UID
	container string
}

// want is what is known of a container's need.
type want struct {
	name     string // the image's full name
	attempt  uint32
	pulled   string // the reference that this attempt's pull returned; empty before the pull
	lastWait string // the last event about a wait, so that not every sync repeats it
	reported bool   // the event about the image's presence was recorded
}

// wantOf returns the container's want; for another attempt or image it makes a new one. The lock is
// held.
func (m *Manager) wantOf(req Request, name string) *want {
	key := req.key()
	w := m.wants[key]
	if w == nil || w.attempt != req.Attempt || w.name != name {
		w = &want{name: name, attempt: req.Attempt}
		m.wants[key] = w
	}
	return w
}

// known is what is known of an image before the runtime is asked for it.
type known struct {
	// arrivals is how many images came so far. pulled is the reference that this attempt's pull
	// returned; empty before the pull.
	arrivals uint64
	pulled   string
}

// look returns what is known of the image. It makes the container's want known, so that no removal
// of the image begins from here on. If a removal is under way, the pod is woken at its end.
func (m *Manager) look(a ask) (k known, removing bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.wantOf(a.Request, a.name)
	return known{arrivals: m.arrivals, pulled: w.pulled}, m.awaitRemoval(a)
}

// forgetPulled records that the image that this attempt pulled has been removed.
func (m *Manager) forgetPulled(a ask) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if w := m.wants[a.key()]; w != nil {
		w.pulled, w.reported = "", false
	}
}

// ready returns the result for an image that is there.
func (m *Manager) ready(a ask, image *runtimeapi.Image) Result {
	first, pulled := m.present(a)
	m.dispatch()
	if first && !pulled {
		m.ensured(a.Request, yes, no)
	}
	if first {
		m.deps.Events(a.Pod, a.Container, v1.EventTypeNormal, eventPulled,
			fmt.Sprintf("Container image %q already present on machine and can be accessed by the pod", a.Image))
	}
	return Result{Ready: true, Image: cri.ImageOf(image.GetId(), image)}
}

// present records that the container's image is there. It reports whether that is the first time
// for the attempt, and whether the attempt has pulled the image.
func (m *Manager) present(a ask) (first, pulled bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	w := m.wantOf(a.Request, a.name)
	first, pulled = !w.reported, w.pulled != ""
	w.reported, w.lastWait = true, ""
	delete(m.backoffs, a.backoff())
	m.leave(a)
	return first, pulled
}

// missing decides what a container waits for if its image is not there, or may not be used before
// the registry has agreed. It decides nothing if an image came since arrivals was counted, because
// that may be this image. present says whether the image is there.
func (m *Manager) missing(
	a ask, policy v1.PullPolicy, arrivals uint64, present answer,
) (res Result, decided bool) {
	c := m.course(a, policy, arrivals)
	switch {
	case c.overtaken:
		return Result{}, false
	case c.importing:
		return Result{
			Reason:  ReasonCreating,
			Message: fmt.Sprintf("Image %q: waiting for the import of %s", a.Image, m.cfg.ImagesDir),
		}, true
	case c.backOff != nil:
		if c.backOff.Reason == ReasonBackOff {
			m.reportBackOff(a)
		}
		return *c.backOff, true
	case c.pull == nil:
		return m.refuse(a.Request, a.name, refusal{
			reason: ReasonNeverPull, event: ReasonNeverPull, after: recheck, present: present,
			message: fmt.Sprintf("Container image %q is not present with pull policy of Never", a.Image),
		}), true
	}
	if c.joined {
		m.ensured(a.Request, present, yes)
		m.reportSecrets(a)
	}
	m.dispatch()
	return m.waiting(a, c.pull, c.last), true
}

// course is what becomes of a container whose image is not there: one of these, or nothing if its
// policy is Never.
type course struct {
	// overtaken says that an image came meanwhile, importing that archives are being imported.
	overtaken, importing bool
	// backOff is the result during a back-off.
	backOff *Result
	// pull is the image's pull; joined says that the container did not wait for it before. last is
	// the message of the failure before this pull.
	pull   *pull
	joined bool
	last   string
}

// course decides for missing, and joins or queues the pull.
func (m *Manager) course(a ask, policy v1.PullPolicy, arrivals uint64) (c course) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.arrivals != arrivals {
		return course{overtaken: true}
	}
	if policy != v1.PullAlways && m.preload.pending {
		m.preload.waiters[a.Pod.UID] = true
		return course{importing: true}
	}
	if policy != v1.PullAlways {
		m.rescan()
	}
	if policy == v1.PullNever {
		return course{}
	}
	if res, waits := m.backingOff(a); waits {
		return course{backOff: &res}
	}
	c.pull, c.joined = m.join(a)
	if c.joined && c.pull.state != Queued {
		m.reportPulling(a)
	}
	if b := m.backoffs[a.backoff()]; b != nil { // taken before this pull, which may fail before this sync continues
		c.last = b.message(a.Image)
	}
	return c
}

// reportPulling records that the image's pull is under way. The lock is held, so that the event of
// the pull's end comes later.
func (m *Manager) reportPulling(a ask) {
	m.deps.Events(a.Pod, a.Container, v1.EventTypeNormal, eventPulling, pullingMessage(a.Image))
}

// reportBackOff records that the pod is in back-off for the image, once for each failure.
func (m *Manager) reportBackOff(a ask) {
	m.reportOnce(a.Request, a.name, ReasonBackOff, func() {
		m.deps.Events(a.Pod, a.Container, v1.EventTypeNormal, eventBackOff,
			fmt.Sprintf("Back-off pulling image %q", a.Image))
		m.deps.Events(a.Pod, a.Container, v1.EventTypeWarning, eventFailed, "Error: "+ReasonBackOff)
	})
}

// waiting returns the result for a container whose image is queued or being pulled. After a failure
// the result is still the failure, as in the kubelet: a pod whose pulls always fail does not look
// better during each new pull.
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

// refusal is why a container cannot have its image.
type refusal struct {
	reason, message, event string
	// after is when to ask again; 0 for never.
	after time.Duration
	// present says whether the image is there nevertheless.
	present answer
}

// refuse returns the result for a container that cannot have its image, and records the events
// once.
func (m *Manager) refuse(req Request, name string, why refusal) Result {
	res := Result{Reason: why.reason, Message: why.message}
	if why.after > 0 {
		res.RetryAt = time.Now().Add(why.after)
	}
	m.reportOnce(req, name, why.reason+why.message, func() {
		pull := unknown
		if why.present == yes { // it is there, and the registry would have to agree
			pull = yes
		}
		m.ensured(req, cmp.Or(why.present, unknown), pull)
		m.deps.Events(req.Pod, req.Container, v1.EventTypeWarning, why.event, why.message)
		m.deps.Events(req.Pod, req.Container, v1.EventTypeWarning, eventFailed, "Error: "+why.reason)
	})
	return res
}

// reportOnce calls events unless the container's last event was the same.
func (m *Manager) reportOnce(req Request, name, what string, events func()) {
	m.mu.Lock()
	w := m.wantOf(req, name)
	same := w.lastWait == what
	w.lastWait = what
	m.mu.Unlock()
	if !same {
		events()
	}
}
