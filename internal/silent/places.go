package silent

import (
	"context"
	"slices"
	"sync"
)

// spare is how many times as many places there are for those who have none: at one server for
// tenants without any there, in all for tenants without any.
const spare = 4

// tally counts who has a place, by server and by tenant. It is not safe for concurrent use.
type tally struct {
	ofServer, ofTenant, inAll int // the bounds

	all              int
	servers, tenants map[string]int
	both             map[pair]int
}

// pair is a tenant at a server.
type pair struct{ server, tenant string }

func newTally(ofServer, ofTenant, inAll int) tally {
	return tally{
		ofServer: ofServer, ofTenant: ofTenant, inAll: inAll,
		servers: map[string]int{}, tenants: map[string]int{}, both: map[pair]int{},
	}
}

// fits reports whether there is a place for one more.
func (t *tally) fits(server, tenant string) bool {
	ofServer, inAll := t.ofServer, t.inAll
	if t.both[pair{server, tenant}] == 0 {
		ofServer *= spare
	}
	if t.tenants[tenant] == 0 {
		inAll *= spare
	}
	return t.servers[server] < ofServer && t.tenants[tenant] < t.ofTenant && t.all < inAll
}

// add counts n more, or fewer.
func (t *tally) add(server, tenant string, n int) {
	t.all += n
	count(t.servers, server, n)
	count(t.tenants, tenant, n)
	count(t.both, pair{server, tenant}, n)
}

func count[K comparable](of map[K]int, key K, n int) {
	if of[key] += n; of[key] == 0 {
		delete(of, key)
	}
}

// Places are those of processes that may wait for servers.
type Places struct {
	mu    sync.Mutex
	taken tally
	// waiting are those who wait. All of one queue fit or none do. The queues have their turns one
	// after the other: who has many volumes does not keep others waiting behind all of them.
	waiting []*queue
	queues  map[pair]*queue
}

// queue are the turns of a tenant at a server, in the order in which they came. It has one at
// least.
type queue struct {
	pair
	turns []*turn
}

// turn is one who waits for a place. placed is closed when there is one.
type turn struct{ placed chan struct{} }

// NewPlaces returns the places, which all are free.
func NewPlaces() *Places {
	return &Places{taken: newTally(MostOfServer, MostOfTenant, MostProcesses), queues: map[pair]*queue{}}
}

// Try takes a place, if there is one. leave gives it back. all and same say how many processes wait
// already, and how many of them for the server.
func (p *Places) Try(server, tenant string) (leave func(), all, same int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all, same = p.taken.all, p.taken.servers[server]
	if !p.taken.fits(server, tenant) {
		return nil, all, same
	}
	p.taken.add(server, tenant, 1)
	return func() { p.leave(server, tenant) }, all, same
}

// Enter waits for a place, until ctx ends. leave gives it back.
func (p *Places) Enter(ctx context.Context, server, tenant string) (leave func(), err error) {
	t := p.begin(pair{server, tenant})
	select {
	case <-t.placed:
	case <-ctx.Done():
		if !p.giveUp(pair{server, tenant}, t) {
			p.leave(server, tenant)
		}
		return nil, context.Cause(ctx)
	}
	return func() { p.leave(server, tenant) }, nil
}

// begin takes a place if there is one, and waits in a queue if not.
func (p *Places) begin(of pair) *turn {
	t := &turn{placed: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	q := p.queues[of]
	switch {
	case q != nil:
		q.turns = append(q.turns, t)
	case p.taken.fits(of.server, of.tenant):
		p.taken.add(of.server, of.tenant, 1)
		close(t.placed)
	default:
		q = &queue{pair: of, turns: []*turn{t}}
		p.queues[of] = q
		p.waiting = append(p.waiting, q)
	}
	return t
}

// giveUp takes one who waits out of his queue. It returns false if he has a place meanwhile.
func (p *Places) giveUp(of pair, t *turn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	q := p.queues[of]
	if q == nil {
		return false
	}
	i := slices.Index(q.turns, t)
	if i < 0 {
		return false
	}
	if q.turns = slices.Delete(q.turns, i, i+1); len(q.turns) == 0 {
		delete(p.queues, of)
		p.waiting = slices.DeleteFunc(p.waiting, func(other *queue) bool { return other == q })
	}
	return true
}

// leave gives a place back, which lets at most one of each queue in.
func (p *Places) leave(server, tenant string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken.add(server, tenant, -1)
	var again []*queue
	p.waiting = slices.DeleteFunc(p.waiting, func(q *queue) bool {
		if !p.taken.fits(q.server, q.tenant) {
			return false
		}
		p.taken.add(q.server, q.tenant, 1)
		close(q.turns[0].placed)
		if q.turns = slices.Delete(q.turns, 0, 1); len(q.turns) > 0 {
			again = append(again, q)
		} else {
			delete(p.queues, q.pair)
		}
		return true
	})
	p.waiting = append(p.waiting, again...)
}
