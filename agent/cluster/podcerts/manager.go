package podcerts

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/cluster/kube"
)

// ErrPending means that the signer has not answered yet. The pod is woken by the answer.
var ErrPending = errors.New("not issued yet")

// Deps are the dependencies of a manager.
type Deps struct {
	// Requests is a client of PodCertificateRequests.
	Requests *kube.Client[certificatesv1beta1.PodCertificateRequest, *certificatesv1beta1.PodCertificateRequest]
	// NodeName is this node's name. NodeUID returns the UID of its Node object; empty if the API
	// server has none.
	NodeName string
	NodeUID  func() types.UID
	// Account asks the API server for a service account.
	Account func(ctx context.Context, namespace, name string) (*v1.ServiceAccount, error)
	// Wake is called for a pod that got a new certificate, or whose first one could not be had. It
	// must not block.
	Wake func(uid types.UID)
	// Ready waits, after a request that failed with err, until the API server is ready again, and
	// reports whether ctx lasted.
	Ready func(ctx context.Context, err error) bool
	// Event takes events about pods, with an empty container.
	Event  func(pod *v1.Pod, container, kind, reason, message string)
	Logger *slog.Logger
}

// Manager keeps the pods' certificates. Make it with [New].
type Manager struct {
	deps   Deps
	turns  *kube.Turns
	rounds sync.WaitGroup
	// making is held by the goroutine that makes a key. Keys take much of the processor, and one pod
	// may ask for any number of them.
	making chan struct{}

	mu  sync.Mutex
	ctx context.Context //nolint:containedctx // Run's, for pods that come while it runs; nil before and after
	// following says that the API server's requests are followed.
	following bool
	// requests are the API server's requests of this node.
	requests map[types.NamespacedName]*certificatesv1beta1.PodCertificateRequest
	pods     map[types.UID]map[place]*entry
}

// place is where a pod's volumes name a certificate.
type place struct {
	volume string
	// source is the index of the volume's source.
	source int
}

// entry is one certificate. The manager's mutex guards the fields that change.
type entry struct {
	place
	pod        *v1.Pod
	projection *v1.PodCertificateProjection
	// stop ends the entry's goroutines; nil while there are none.
	stop context.CancelFunc
	// changed tells the goroutine that a request of the pod has changed.
	changed chan struct{}
	// held is the last certificate, nil before the first. err says why there is no newer one.
	held *certificate
	err  error
	// asked is the name of the request that is waited for.
	asked string
}

// certificate is what a pod's files have.
type certificate struct {
	key, chain []byte
	// refresh is when to ask for the next one.
	refresh, ends time.Time
}

// String keeps the key out of logs and messages.
func (c certificate) String() string { return fmt.Sprintf("a certificate until %s", c.ends) }

// GoString keeps the key out of logs and messages, too.
func (c certificate) GoString() string { return c.String() }

// New returns a manager. It makes no request before [Manager.Run].
func New(deps Deps) *Manager {
	return &Manager{
		deps: deps, turns: kube.NewTurns(), making: make(chan struct{}, 1), pods: map[types.UID]map[place]*entry{},
		requests: map[types.NamespacedName]*certificatesv1beta1.PodCertificateRequest{},
	}
}

// Run keeps the pods' certificates fresh until ctx ends.
func (m *Manager) Run(ctx context.Context) error {
	m.mu.Lock()
	m.ctx = ctx
	for _, entries := range m.pods {
		for _, e := range entries {
			m.begin(e)
		}
	}
	m.mu.Unlock()
	<-ctx.Done()
	m.mu.Lock()
	m.ctx, m.following = nil, false
	m.mu.Unlock()
	m.rounds.Wait()
	return nil
}

// Use requests the certificates that a pod's volumes name, unless that was done before.
func (m *Manager) Use(pod *v1.Pod) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range pod.Spec.Volumes {
		v := &pod.Spec.Volumes[i]
		if v.Projected == nil {
			continue
		}
		for j := range v.Projected.Sources {
			if p := v.Projected.Sources[j].PodCertificate; p != nil {
				m.add(&entry{place: place{v.Name, j}, pod: pod, projection: p, changed: make(chan struct{}, 1)})
			}
		}
	}
}

// add adds an entry unless it is there. The caller holds mu.
func (m *Manager) add(e *entry) {
	entries := m.pods[e.pod.UID]
	if entries == nil {
		entries = map[place]*entry{}
		m.pods[e.pod.UID] = entries
	}
	if entries[e.place] == nil {
		entries[e.place] = e
		m.begin(e)
	}
}

// begin starts an entry's goroutine while the manager runs. The caller holds mu.
func (m *Manager) begin(e *entry) {
	if m.ctx == nil || m.ctx.Err() != nil {
		return
	}
	if !m.following {
		m.following = true
		all := m.ctx
		m.rounds.Go(func() { m.follow(all) })
	}
	ctx, cancel := context.WithCancel(m.ctx)
	e.stop = cancel
	m.rounds.Go(func() { m.keep(ctx, e) })
}

// Drop removes a pod's certificates.
func (m *Manager) Drop(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.pods[uid] {
		if e.stop != nil {
			e.stop()
		}
	}
	delete(m.pods, uid)
}

// Certificate returns the key and the certificate chain, both as PEM, of the source with that index
// of a pod's volume. The error is [ErrPending] while the first answer is waited for.
func (m *Manager) Certificate(pod *v1.Pod, volume string, source int) (key, chain []byte, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.pods[pod.UID][place{volume, source}]
	switch {
	case e == nil:
		return nil, nil, errors.New("nobody has asked for the certificate")
	case e.held != nil && (e.err == nil || time.Now().Before(e.held.ends)):
		return e.held.key, e.held.chain, nil
	case e.err != nil:
		return nil, nil, e.err
	case e.asked == "":
		return nil, nil, fmt.Errorf("the certificate of signer %s is %w", e.projection.SignerName, ErrPending)
	}
	return nil, nil, fmt.Errorf("PodCertificateRequest %s/%s of signer %s is %w", e.pod.Namespace, e.asked,
		e.projection.SignerName, ErrPending)
}

// Count calls add with the number of certificates of each signer in each state that the kubelet's
// metric podcertificate_states has: not_yet_issued, fresh, overdue_for_refresh, expired, denied and
// failed.
func (m *Manager) Count(add func(signer, state string, n int)) {
	type class struct{ signer, state string }
	m.mu.Lock()
	counts, now := map[class]int{}, time.Now()
	for _, entries := range m.pods {
		for _, e := range entries {
			counts[class{e.projection.SignerName, e.state(now)}]++
		}
	}
	m.mu.Unlock()
	for c, n := range counts {
		add(c.signer, c.state, n)
	}
}

// state returns the state of a certificate, as in the metric. The caller holds mu.
func (e *entry) state(now time.Time) string {
	var refused *refusal
	switch {
	case errors.As(e.err, &refused):
		return refused.state()
	case e.held == nil:
		return "not_yet_issued"
	case now.After(e.held.ends):
		return "expired"
	case now.After(e.held.refresh.Add(overdue)):
		return "overdue_for_refresh"
	}
	return "fresh"
}
