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
	mu      sync.Mutex
	taken   tally
	waiting []*turn // in the order in which they came
}

// turn is one who waits for a place. placed is closed when there is one.
type turn struct {
	server, tenant string
	placed         chan struct{}
}

// NewPlaces returns the places, which all are free.
func NewPlaces() *Places {
	return &Places{taken: newTally(MostOfServer, MostOfTenant, MostProcesses)}
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
	t := &turn{server: server, tenant: tenant, placed: make(chan struct{})}
	p.mu.Lock()
	p.waiting = append(p.waiting, t)
	p.admit()
	p.mu.Unlock()
	select {
	case <-t.placed:
	case <-ctx.Done():
		if !p.giveUp(t) {
			p.leave(server, tenant)
		}
		return nil, context.Cause(ctx)
	}
	return func() { p.leave(server, tenant) }, nil
}

// giveUp takes one who waits out of the queue. It returns false if he has a place meanwhile.
func (p *Places) giveUp(t *turn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.waiting, t)
	if i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
	}
	return i >= 0
}

func (p *Places) leave(server, tenant string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken.add(server, tenant, -1)
	p.admit()
}

// admit gives those who wait the places that there are.
func (p *Places) admit() {
	p.waiting = slices.DeleteFunc(p.waiting, func(t *turn) bool {
		fits := p.taken.fits(t.server, t.tenant)
		if fits {
			p.taken.add(t.server, t.tenant, 1)
			close(t.placed)
		}
		return fits
	})
}
