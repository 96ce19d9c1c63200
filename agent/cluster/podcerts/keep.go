package podcerts

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/cluster/kube"
	"github.com/berthd/berth/internal/pods"
	"github.com/berthd/berth/internal/retry"
)

// The values are the kubelet's. A certificate is refreshed up to jitter later than its signer says,
// so that not all pods of a deployment ask at once. overdue is how long after that a pod's event
// says that it is late. A request that was made so long ago, and that the API server does not have,
// is lost.
const (
	jitter  = 5 * time.Minute
	overdue = 10 * time.Minute
	lost    = 10 * time.Minute
)

const (
	// nap is the longest time between two looks at the clock, because the machine may have been
	// suspended.
	nap = 5 * time.Minute
	// leastLife is the shortest time between two requests, whatever a signer says.
	leastLife = time.Minute
)

// errDeleted means that a request went away before the signer answered.
var errDeleted = errors.New("it was deleted before the signer answered")

// refusal is a signer's final answer.
type refusal struct {
	request string
	// condition is Denied or Failed.
	condition *metav1.Condition
}

// Error names the request, and the signer's reason.
func (r *refusal) Error() string {
	verb := "was denied"
	if r.condition.Type == certificatesv1beta1.PodCertificateRequestConditionTypeFailed {
		verb = "failed"
	}
	return fmt.Sprintf("PodCertificateRequest %s %s, reason=%q, message=%q", r.request, verb, r.condition.Reason,
		r.condition.Message)
}

// state is the refusal's state in the metric.
func (r *refusal) state() string { return strings.ToLower(r.condition.Type) }

// follow reads the requests of this node until ctx ends.
func (m *Manager) follow(ctx context.Context) {
	type request = *certificatesv1beta1.PodCertificateRequest
	m.deps.Requests.Follow(ctx, "", "spec.nodeName="+m.deps.NodeName, kube.Handler[request]{
		Replace: func(items []request) {
			m.mu.Lock()
			defer m.mu.Unlock()
			clear(m.requests)
			for _, r := range items {
				m.requests[nameOf(r)] = r
			}
			for uid := range m.pods {
				m.tell(uid)
			}
		},
		Set: func(r request) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.requests[nameOf(r)] = r
			m.tell(r.Spec.PodUID)
		},
		Remove: func(r request) {
			m.mu.Lock()
			defer m.mu.Unlock()
			delete(m.requests, nameOf(r))
			m.tell(r.Spec.PodUID)
		},
		Ready: m.deps.Ready, Logger: m.deps.Logger,
	})
}

func nameOf(r metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: r.GetNamespace(), Name: r.GetName()}
}

// tell tells a pod's entries that a request has changed. The caller holds mu.
func (m *Manager) tell(uid types.UID) {
	for _, e := range m.pods[uid] {
		select {
		case e.changed <- struct{}{}:
		default:
		}
	}
}

// keep gets a certificate, and the next one when it is time, until ctx ends or a signer refuses.
func (m *Manager) keep(ctx context.Context, e *entry) {
	defer e.stop()
	forget := func() {} // ends the reminders about the last certificate
	defer func() { forget() }()
	for failures := 0; ; {
		next, err := m.obtain(ctx, e)
		if ctx.Err() != nil {
			return
		}
		if err == nil {
			failures = 0
			m.mu.Lock()
			e.held, e.err, e.asked = next, nil, ""
			m.mu.Unlock()
			m.deps.Wake(e.pod.UID)
			forget()
			forget = m.reminders(ctx, e, next)
			if !retry.Sleep(ctx, leastLife) || !until(ctx, next.refresh) {
				return
			}
			continue
		}
		m.failed(e, err)
		var refused *refusal
		if errors.As(err, &refused) {
			m.deps.Event(e.pod, "", v1.EventTypeWarning, refused.condition.Type, err.Error())
			return
		}
		failures++
		if !m.deps.Ready(ctx, err) || !retry.Sleep(ctx, kube.Retry.Delay(failures, err)) {
			return
		}
	}
}

// until waits for a time, and reports whether ctx lasted.
func until(ctx context.Context, t time.Time) bool {
	for left := time.Until(t); left > 0; left = time.Until(t) {
		if !retry.Sleep(ctx, min(left, nap)) {
			return false
		}
	}
	return true
}

// reminders starts the reminders about a certificate, and returns what ends them.
func (m *Manager) reminders(ctx context.Context, e *entry, c *certificate) (forget func()) {
	ctx, forget = context.WithCancel(ctx)
	m.rounds.Go(func() { m.remind(ctx, e, c) })
	return forget
}

// remind reports that a certificate was not replaced in time, once, and that it has expired.
func (m *Manager) remind(ctx context.Context, e *entry, c *certificate) {
	if until(ctx, c.refresh.Add(overdue)) {
		m.deps.Event(e.pod, "", v1.EventTypeWarning, "CertificateOverdueForRefresh", fmt.Sprintf(
			"The certificate in volume %q was to be replaced at %s", e.volume, c.refresh.UTC().Format(time.RFC3339)))
	}
	if until(ctx, c.ends) {
		m.deps.Event(e.pod, "", v1.EventTypeWarning, "CertificateExpired", fmt.Sprintf(
			"The certificate in volume %q expired at %s", e.volume, c.ends.UTC().Format(time.RFC3339)))
	}
}

// failed records an error, and wakes the pod for the first one.
func (m *Manager) failed(e *entry, err error) {
	m.mu.Lock()
	first := e.err == nil && e.held == nil
	renewing := e.err == nil && e.held != nil
	e.err, e.asked = err, ""
	m.mu.Unlock()
	if renewing {
		m.deps.Logger.Warn("a pod's certificate cannot be renewed; the pod keeps the one that it has until that ends",
			"pod", pods.FullName(e.pod), "volume", e.volume, "signer", e.projection.SignerName, "err", err)
	}
	if first {
		m.deps.Wake(e.pod.UID)
	}
}

// obtain makes a key, requests a certificate for it, and waits for the signer's answer.
func (m *Manager) obtain(ctx context.Context, e *entry) (*certificate, error) {
	key, made, err := m.request(ctx, e)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	e.asked = made.Name
	first := e.held == nil
	m.mu.Unlock()
	if first {
		m.deps.Wake(e.pod.UID) // it says what it waits for
	}
	status, err := m.answer(ctx, e, nameOf(made))
	if err != nil {
		return nil, err
	}
	chain := chainOf(status.CertificateChain)
	if len(chain) == 0 || status.BeginRefreshAt == nil || status.NotAfter == nil {
		return nil, fmt.Errorf("PodCertificateRequest %s is issued without a certificate or its times", nameOf(made))
	}
	return &certificate{
		key: key, chain: chain, refresh: status.BeginRefreshAt.Add(rand.N(jitter)), ends: status.NotAfter.Time,
	}, nil
}

// request makes a key and a request for its certificate, once it is the pod's turn. The turn does
// not last until the signer's answer.
func (m *Manager) request(
	ctx context.Context, e *entry,
) (key []byte, made *certificatesv1beta1.PodCertificateRequest, err error) {
	turn := m.turns.Queue(e.pod.UID)
	defer turn.End()
	if err := turn.Wait(ctx); err != nil {
		return nil, nil, err
	}
	account, err := m.deps.Account(ctx, e.pod.Namespace, e.pod.Spec.ServiceAccountName)
	if err != nil {
		return nil, nil, fmt.Errorf("reading service account %s/%s: %w", e.pod.Namespace, e.pod.Spec.ServiceAccountName, err)
	}
	node := m.deps.NodeUID()
	if node == "" {
		return nil, nil, errors.New("the API server has no Node object of this node yet")
	}
	key, proof, err := m.newKey(ctx, e.projection.KeyType)
	if err != nil {
		return nil, nil, err
	}
	made, err = m.deps.Requests.Create(ctx, &certificatesv1beta1.PodCertificateRequest{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: e.pod.Namespace, GenerateName: "req-",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: e.pod.Name, UID: e.pod.UID}},
		},
		Spec: certificatesv1beta1.PodCertificateRequestSpec{
			SignerName: e.projection.SignerName, PodName: e.pod.Name, PodUID: e.pod.UID,
			ServiceAccountName: e.pod.Spec.ServiceAccountName, ServiceAccountUID: account.UID,
			NodeName: types.NodeName(m.deps.NodeName), NodeUID: node,
			MaxExpirationSeconds: e.projection.MaxExpirationSeconds, StubPKCS10Request: proof,
			UnverifiedUserAnnotations: e.projection.UserAnnotations,
		},
	})
	return key, made, err
}

// newKey is [newKey] for one goroutine after the other.
func (m *Manager) newKey(ctx context.Context, kind string) (key, proof []byte, err error) {
	select {
	case m.making <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, context.Cause(ctx)
	}
	defer func() { <-m.making }()
	return newKey(kind)
}

// answer waits until a request is issued, and returns its status then.
func (m *Manager) answer(
	ctx context.Context, e *entry, name types.NamespacedName,
) (*certificatesv1beta1.PodCertificateRequestStatus, error) {
	limit := time.NewTimer(lost)
	defer limit.Stop()
	for seen := false; ; {
		m.mu.Lock()
		r := m.requests[name]
		m.mu.Unlock()
		if r == nil && seen {
			return nil, fmt.Errorf("PodCertificateRequest %s: %w", name, errDeleted)
		}
		if r != nil {
			seen = true
			limit.Stop()
			for i := range r.Status.Conditions {
				switch c := &r.Status.Conditions[i]; c.Type {
				case certificatesv1beta1.PodCertificateRequestConditionTypeIssued:
					return &r.Status, nil
				case certificatesv1beta1.PodCertificateRequestConditionTypeDenied,
					certificatesv1beta1.PodCertificateRequestConditionTypeFailed:
					return nil, &refusal{name.String(), c}
				}
			}
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-e.changed:
		case <-limit.C:
			return nil, fmt.Errorf("PodCertificateRequest %s: %w", name, errDeleted)
		}
	}
}
