package joint

import (
	"context"
	"fmt"
	"sync"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// pair is the runtimes that were chosen, and what the former of them has.
type pair struct {
	first *Member

	// calls is held for reading by each call of the former, and for writing by who ends it.
	calls sync.RWMutex
	// former is nil if there is none any more. It is read with calls held.
	former *Member

	mu sync.Mutex
	// ids are the former's sandboxes and containers.
	ids map[string]bool
	// pods are the UIDs of the pods whose sandbox the former has, and the first has not.
	pods map[string]bool
}

// usable returns an error after [Runtime.Close].
func (p *pair) usable() error {
	if p.first == nil {
		return fmt.Errorf("the container runtime was closed: %w", context.Canceled)
	}
	return nil
}

// close closes both.
func (p *pair) close() {
	p.calls.Lock()
	defer p.calls.Unlock()
	if p.former != nil {
		p.former.Close()
		p.former = nil
	}
	if p.first != nil {
		p.first.Close()
	}
}

// load reads what the former has.
func (p *pair) load(ctx context.Context) error {
	p.ids, p.pods = map[string]bool{}, map[string]bool{}
	if p.former == nil {
		return nil
	}
	sandboxes, err := p.former.ListPodSandbox(ctx, nil)
	if err != nil {
		return fmt.Errorf("look what %s has: %w", p.former.Name, err)
	}
	containers, err := p.former.ListContainers(ctx, nil)
	if err != nil {
		return fmt.Errorf("look what %s has: %w", p.former.Name, err)
	}
	anew, err := p.first.ListPodSandbox(ctx, nil)
	if err != nil {
		return fmt.Errorf("look what %s has: %w", p.first.Name, err)
	}
	for _, s := range sandboxes {
		p.ids[s.GetId()] = true
		p.pods[s.GetMetadata().GetUid()] = true
	}
	for _, c := range containers {
		p.ids[c.GetId()] = true
	}
	for _, s := range anew {
		delete(p.pods, s.GetMetadata().GetUid())
	}
	return nil
}

// empty reports whether the former is known to have nothing.
func (p *pair) empty() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.ids) == 0
}

// has reports whether the former has a sandbox or a container.
func (p *pair) has(id string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.ids[id]
}

// hasPod reports whether a pod's sandbox is in the former.
func (p *pair) hasPod(uid string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.pods[uid]
}

// made notes that the former has one more container.
func (p *pair) made(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ids[id] = true
}

// moved notes that the first has a sandbox of a pod.
func (p *pair) moved(uid string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.pods, uid)
}

// seen notes what a list of the former has.
func (p *pair) seen(sandboxes []*runtimeapi.PodSandbox) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range sandboxes {
		p.ids[s.GetId()] = true
	}
}

// seenContainers notes what a list of the former has.
func (p *pair) seenContainers(containers []*runtimeapi.Container) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range containers {
		p.ids[c.GetId()] = true
	}
}

// leave takes the former out if it has nothing, and returns it for closing. It returns nil if
// something is left, and if a call of the former is under way: the next list tries again. note is
// called before.
func (p *pair) leave(ctx context.Context, note func() error) (*Member, error) {
	if !p.calls.TryLock() {
		return nil, nil
	}
	defer p.calls.Unlock()
	if p.former == nil {
		return nil, nil
	}
	sandboxes, err := p.former.ListPodSandbox(ctx, nil)
	if err != nil || len(sandboxes) > 0 {
		return nil, err
	}
	containers, err := p.former.ListContainers(ctx, nil)
	if err != nil || len(containers) > 0 {
		return nil, err
	}
	if err := note(); err != nil {
		return nil, err
	}
	former := p.former
	p.former = nil
	p.mu.Lock()
	p.ids, p.pods = map[string]bool{}, map[string]bool{}
	p.mu.Unlock()
	return former, nil
}
