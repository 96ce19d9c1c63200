package server

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

// A request waits for a place for at most waitTimeout: on a busy machine, the answers of others
// take long. enterPeriod is how often it looks for a caller that has to leave. readTimeout is how
// long a caller may take to read its answer while others wait.
const (
	waitTimeout = 20 * time.Second
	enterPeriod = 50 * time.Millisecond
	readTimeout = 500 * time.Millisecond
)

// places are how many requests of each cost a listener answers at the same time. reserved of them
// are for the first requests of connections: who connects anew, as commands do, is not behind the
// many requests of those who stay.
var (
	places   = map[cost]int64{quick: maxQuick, slow: maxSlow, lasting: maxLasting}
	reserved = map[cost]int64{quick: maxQuick / 4, slow: maxSlow / 4}
)

// kind is a kind of lasting work.
type kind string

// The kinds of lasting work. In pods: the reading of logs, and commands and streams of any
// protocol. In none: the node's own logs, and profiles of the agent.
const (
	readingLogs kind = "read the logs"
	inContainer kind = "have commands or streams"
	readingNode kind = "read the node's logs"
	profiling   kind = "take profiles"
)

// maxOfPod are how many requests may do such work in one pod, and maxOfKind altogether: no pod's
// callers take the places of the others', and no kind those of the others, or of watches.
// maxOfNamespace are how many may do each in the pods of one namespace: its users leave places to
// those of others even if they do as much as they can of both.
var (
	maxOfPod  = map[kind]int{readingLogs: 32, inContainer: 64}
	maxOfKind = map[kind]int{readingLogs: 192, inContainer: 192, readingNode: 16, profiling: 16}
)

const maxOfNamespace = 112

// share is a kind of lasting work, in the pod namespace/name if it is one of pods; the zero share
// is none.
type share struct {
	kind kind
	pod  string
}

// group is a kind of lasting work in all pods of a namespace.
type group struct {
	kind      kind
	namespace string
}

func (s share) group() group {
	namespace, _, _ := strings.Cut(s.pod, "/")
	return group{s.kind, namespace}
}

// budget is what one listener works on at the same time. Each listener has its own, so that callers
// without authentication take nothing from root's socket, whatever they do.
type budget struct {
	// waitTimeout is how long a request waits for a place.
	waitTimeout time.Duration
	// slots and reserve give places in the order in which the requests came.
	slots, reserve map[cost]*semaphore.Weighted

	mu sync.Mutex
	// seats are the requests that do not last, by their cost, and whose places they have.
	seats map[cost]map[*seat]*semaphore.Weighted
	// kinds are the requests with lasting work; shares and namespaces are those of them in a pod, and
	// in the pods of a namespace.
	shares     map[share]int
	kinds      map[kind]int
	namespaces map[group]int
}

func newBudget(waitTimeout time.Duration) *budget {
	b := &budget{
		waitTimeout: waitTimeout,
		slots:       map[cost]*semaphore.Weighted{},
		reserve:     map[cost]*semaphore.Weighted{},
		seats:       map[cost]map[*seat]*semaphore.Weighted{quick: {}, slow: {}},
		shares:      map[share]int{},
		kinds:       map[kind]int{},
		namespaces:  map[group]int{},
	}
	for c, most := range places {
		b.slots[c] = semaphore.NewWeighted(most - reserved[c])
		b.reserve[c] = semaphore.NewWeighted(reserved[c])
	}
	return b
}

// enter takes a place for a request of that cost. A request that lasts has no seat. The error says
// what there are too many of.
func (b *budget) enter(ctx context.Context, c cost, of share, s *seat) (leave func(), err error) {
	if err := b.count(of); err != nil {
		return nil, err
	}
	slots, ok := b.take(ctx, c, s)
	if !ok {
		b.uncount(of)
		return nil, failure(http.StatusTooManyRequests,
			"the agent answers %d such requests already: try again later", places[c])
	}
	if s == nil {
		return func() { slots.Release(1); b.uncount(of) }, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.seats[c][s] = slots
	return func() {
		s.leave()
		b.mu.Lock()
		delete(b.seats[c], s)
		b.mu.Unlock()
		slots.Release(1)
	}, nil
}

// take waits for a place, and returns whose it is. Meanwhile it takes the place of the caller that
// reads its answer for the longest time. Requests that last take only free places.
func (b *budget) take(ctx context.Context, c cost, s *seat) (slots *semaphore.Weighted, ok bool) {
	slots = b.slots[c]
	if slots.TryAcquire(1) {
		return slots, true
	}
	if s == nil {
		return nil, false
	}
	if s.first {
		slots = b.reserve[c]
	}
	ctx, cancel := context.WithTimeout(ctx, b.waitTimeout)
	defer cancel()
	entered := make(chan error, 1)
	go func() { entered <- slots.Acquire(ctx, 1) }()
	look := time.NewTicker(enterPeriod)
	defer look.Stop()
	var leaves *seat
	for {
		select {
		case err := <-entered:
			return slots, err == nil
		case <-look.C:
		}
		if leaves == nil || leaves.gone() {
			leaves = b.displace(c, slots)
		}
	}
}

// displace ends the answer on one of these places that has been sent for the longest time, if that
// is over [readTimeout], and returns its seat. No other request displaces the same one.
func (b *budget) displace(c cost, slots *semaphore.Weighted) *seat {
	b.mu.Lock()
	defer b.mu.Unlock()
	var slowest *seat
	var longest time.Duration
	for s, of := range b.seats[c] {
		if took := s.sending(); of == slots && took > max(longest, readTimeout) {
			slowest, longest = s, took
		}
	}
	if slowest != nil {
		slowest.cut()
		delete(b.seats[c], slowest)
	}
	return slowest
}

// count counts a request with lasting work of a kind.
func (b *budget) count(of share) error {
	if of.kind == "" {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if of.pod == "" {
		if n := b.kinds[of.kind]; n >= maxOfKind[of.kind] {
			return failure(http.StatusTooManyRequests, "%d requests %s already: try again later", n, of.kind)
		}
		b.kinds[of.kind]++
		return nil
	}
	if n := b.shares[of]; n >= maxOfPod[of.kind] {
		return failure(http.StatusTooManyRequests, "%d requests %s of pod %s already: try again later", n, of.kind, of.pod)
	}
	if n := b.kinds[of.kind]; n >= maxOfKind[of.kind] {
		return failure(http.StatusTooManyRequests, "%d requests %s of pods already: try again later", n, of.kind)
	}
	in := of.group()
	if n := b.namespaces[in]; n >= maxOfNamespace {
		return failure(http.StatusTooManyRequests, "%d requests %s of pods of namespace %s already: try again later", n,
			in.kind, in.namespace)
	}
	b.shares[of]++
	b.kinds[of.kind]++
	b.namespaces[in]++
	return nil
}

// uncount ends what count has counted.
func (b *budget) uncount(of share) {
	if of.kind == "" {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kinds[of.kind]--
	if of.pod == "" {
		return
	}
	in := of.group()
	if b.namespaces[in]--; b.namespaces[in] == 0 {
		delete(b.namespaces, in)
	}
	if b.shares[of]--; b.shares[of] == 0 {
		delete(b.shares, of)
	}
}

// seat is the ResponseWriter of a request that has a place. A caller that reads its answer slowly
// keeps the place only until another request needs it.
type seat struct {
	http.ResponseWriter
	// first says that the request is the first one of its connection.
	first bool

	mu sync.Mutex
	// since is when the answer's first byte was sent. left is true after the request has ended.
	since time.Time
	left  bool
}

// Unwrap is for http.ResponseController.
func (s *seat) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// Write sends a part of the answer.
func (s *seat) Write(p []byte) (int, error) {
	s.mu.Lock()
	if s.since.IsZero() {
		s.since = time.Now()
	}
	s.mu.Unlock()
	return s.ResponseWriter.Write(p)
}

// sending returns for how long the answer has been sent; 0 if no byte was sent.
func (s *seat) sending() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.since.IsZero() {
		return 0
	}
	return time.Since(s.since)
}

// cut makes the sending of the answer fail. The connection does not outlast that.
func (s *seat) cut() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.left {
		_ = http.NewResponseController(s.ResponseWriter).SetWriteDeadline(time.Unix(1, 0))
	}
}

// gone reports whether the request has ended.
func (s *seat) gone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.left
}

// leave ends the request: its ResponseWriter is not valid any more.
func (s *seat) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.left = true
}
