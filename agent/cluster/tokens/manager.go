package tokens

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/berthd/berth/agent/cluster/kube"
)

// patience is how long to wait for a pod's first token before the pod reports a problem.
const patience = time.Second

// requestTimeout limits a request.
const requestTimeout = 30 * time.Second

// ErrPending means that the API server is being asked for the token. The pod is woken by the
// answer.
var ErrPending = errors.New("being issued by the API server")

// Deps are the dependencies of a manager.
type Deps struct {
	// Core is a client of the API group core/v1.
	Core rest.Interface
	// Wake is called for a pod that got a new token, or whose first token could not be issued. It
	// must not block.
	Wake func(uid types.UID)
	// Ready waits, after a request that failed with err, until the API server is ready again, and
	// reports whether ctx lasted; nil does not wait.
	Ready  func(ctx context.Context, err error) bool
	Logger *slog.Logger
}

// Manager keeps the pods' tokens. Make it with [New].
type Manager struct {
	deps   Deps
	issue  issuer
	turns  *kube.Turns
	rounds sync.WaitGroup

	mu sync.Mutex
	// once are the tokens that are asked for when they are needed, by pod and audience.
	once map[types.UID]map[string]*token
	ctx  context.Context //nolint:containedctx // Run's, for pods that come while it runs; nil before and after
	pods map[types.UID]map[request]*entry
}

// issuer requests a token for a service account from the API server; tests have fakes.
type issuer func(ctx context.Context, namespace, account string,
	ask *authenticationv1.TokenRequest) (*authenticationv1.TokenRequest, error)

// request identifies one of a pod's tokens.
type request struct {
	audience string
	// seconds is how long the token should be valid; 0 leaves the choice to the API server.
	seconds int64
}

// entry is one token. The manager's mutex guards the fields that change.
type entry struct {
	request
	pod   *v1.Pod
	since time.Time
	// stop ends the entry's goroutine; nil while there is none.
	stop context.CancelFunc
	// token is the last one, nil before the first. err says why there is no newer one.
	token *token
	err   error
}

// New returns a manager. It makes no request before [Manager.Run].
func New(deps Deps) *Manager {
	return newManager(deps,
		func(ctx context.Context, namespace, account string,
			ask *authenticationv1.TokenRequest,
		) (*authenticationv1.TokenRequest, error) {
			quiet := klog.NewContext(ctx, klog.Logger{}) // the client library would log the body
			ctx, cancel := context.WithTimeout(quiet, requestTimeout)
			defer cancel()
			out := &authenticationv1.TokenRequest{}
			err := deps.Core.Post().Namespace(namespace).Resource("serviceaccounts").Name(account).SubResource("token").
				Body(ask).Do(ctx).Into(out)
			return out, err
		})
}

func newManager(deps Deps, issue issuer) *Manager {
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	if deps.Ready == nil {
		deps.Ready = func(context.Context, error) bool { return true }
	}
	return &Manager{
		deps: deps, issue: issue, turns: kube.NewTurns(),
		pods: map[types.UID]map[request]*entry{}, once: map[types.UID]map[string]*token{},
	}
}

// Run keeps the pods' tokens fresh until ctx ends.
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
	m.ctx = nil
	m.mu.Unlock()
	m.rounds.Wait()
	return nil
}

// Use requests the tokens that a pod's volumes name, unless that was done before.
func (m *Manager) Use(pod *v1.Pod) { m.use(pod, requestsOf(pod)) }

func (m *Manager) use(pod *v1.Pod, requests []request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range requests {
		entries := m.pods[pod.UID]
		if entries == nil {
			entries = map[request]*entry{}
			m.pods[pod.UID] = entries
		}
		if entries[r] == nil {
			entries[r] = &entry{request: r, pod: pod, since: time.Now()}
			m.begin(entries[r])
		}
	}
}

// Drop removes a pod's tokens.
func (m *Manager) Drop(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.pods[uid] {
		if e.stop != nil {
			e.stop()
		}
	}
	delete(m.pods, uid)
	delete(m.once, uid)
}

// Now returns a token of the pod's service account for an audience. The API server chooses how long
// it is valid. Unlike [Manager.Ask], Now waits for the API server if there is no token, or if the
// last one is old, and renews no token by itself.
func (m *Manager) Now(ctx context.Context, pod *v1.Pod, audience string) (string, error) {
	m.mu.Lock()
	last := m.once[pod.UID][audience]
	m.mu.Unlock()
	if last != nil && last.age(time.Now()) < last.refresh {
		return last.text, nil
	}
	next, err := m.ask(ctx, &entry{request: request{audience: audience}, pod: pod})
	if err != nil {
		return "", err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for uid, tokens := range m.once { // of pods that were dropped while the API server was asked
		maps.DeleteFunc(tokens, func(_ string, t *token) bool { return t.age(next.got) > t.life })
		if len(tokens) == 0 {
			delete(m.once, uid)
		}
	}
	if m.once[pod.UID] == nil {
		m.once[pod.UID] = map[string]*token{}
	}
	m.once[pod.UID][audience] = next
	return next.text, nil
}

// Account asks the API server for a service account.
func (m *Manager) Account(ctx context.Context, namespace, name string) (*v1.ServiceAccount, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	out := &v1.ServiceAccount{}
	return out, m.deps.Core.Get().Namespace(namespace).Resource("serviceaccounts").Name(name).Do(ctx).Into(out)
}

// requestsOf returns the tokens that a pod's volumes name.
func requestsOf(pod *v1.Pod) []request {
	var out []request
	for i := range pod.Spec.Volumes {
		if pod.Spec.Volumes[i].Projected == nil {
			continue
		}
		for _, source := range pod.Spec.Volumes[i].Projected.Sources {
			if source.ServiceAccountToken != nil {
				out = append(out, requestOf(source.ServiceAccountToken))
			}
		}
	}
	return out
}

func requestOf(p *v1.ServiceAccountTokenProjection) request {
	r := request{audience: p.Audience}
	if p.ExpirationSeconds != nil {
		r.seconds = *p.ExpirationSeconds
	}
	return r
}

// begin starts an entry's goroutine while the manager runs. The caller holds mu.
func (m *Manager) begin(e *entry) {
	if m.ctx == nil || m.ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithCancel(m.ctx)
	e.stop, e.since = cancel, time.Now()
	m.rounds.Go(func() {
		defer cancel()
		m.keep(ctx, e)
	})
}

// Token returns the token of one of a pod's projections, as the file's content. The error is
// [ErrPending] while the first token is being issued.
func (m *Manager) Token(pod *v1.Pod, projection *v1.ServiceAccountTokenProjection) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.pods[pod.UID][requestOf(projection)]
	switch {
	case e == nil:
		return nil, errors.New("failed to fetch token: nobody has asked for it")
	case e.token != nil && (e.err == nil || e.token.age(time.Now()) <= e.token.life):
		return []byte(e.token.text), nil
	case e.token != nil:
		return nil, fmt.Errorf("token of service account %s expired and refresh failed: %w", e.account(), e.cause())
	case e.pending():
		return nil, ErrPending
	}
	return nil, fmt.Errorf("failed to fetch token: %w", e.cause())
}

// Ask returns a token of a pod's service account for an audience and a number of seconds, and when
// it expires. An empty audience and 0 leave the choice to the API server. The error is [ErrPending]
// while the first token is being issued, and the pod is woken by the answer.
func (m *Manager) Ask(pod *v1.Pod, audience string, seconds int64) (text string, expires time.Time, err error) {
	p := &v1.ServiceAccountTokenProjection{Audience: audience}
	if seconds != 0 {
		p.ExpirationSeconds = &seconds
	}
	m.use(pod, []request{requestOf(p)})
	data, err := m.Token(pod, p)
	if err != nil {
		return "", time.Time{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.pods[pod.UID][requestOf(p)]; e != nil && e.token != nil {
		expires = e.token.expires
	}
	return string(data), expires, nil
}

// Await returns until when a pod should wait for its first tokens. It returns zero if the pod has
// all tokens, or cannot get them.
func (m *Manager) Await(pod *v1.Pod) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.pods[pod.UID] {
		if e.pending() {
			return e.since.Add(patience)
		}
	}
	return time.Time{}
}

// pending reports whether the first answer is missing and not late. The caller holds the manager's
// mutex.
func (e *entry) pending() bool {
	return e.token == nil && e.err == nil && time.Since(e.since) < patience
}

// cause says why there is no token, or no newer one.
func (e *entry) cause() error {
	if e.err == nil {
		return errors.New("the API server has not answered")
	}
	return e.err
}

// account returns the service account as namespace/name.
func (e *entry) account() string { return e.pod.Namespace + "/" + e.pod.Spec.ServiceAccountName }
