package joint

import (
	"context"
	"errors"
	"time"
)

// observed makes a call and reports it.
func observed[T any](m *Member, operation string, call func(*Member) (T, error)) (T, error) {
	start := time.Now()
	out, err := call(m)
	if m.Observe != nil {
		m.Observe(operation, time.Since(start), err)
	}
	return out, err
}

// toFirst calls the first runtime.
func toFirst[T any](ctx context.Context, r *Runtime, operation string, call func(*Member) (T, error)) (T, error) {
	p, err := r.pair(ctx)
	if err != nil {
		var none T
		return none, err
	}
	return observed(p.first, operation, call)
}

// toOwner calls the former runtime if ours says so, else the first.
func toOwner[T any](
	ctx context.Context, r *Runtime, operation string, formers func(*pair) bool, call func(*Member) (T, error),
) (T, error) {
	p, err := r.pair(ctx)
	if err != nil {
		var none T
		return none, err
	}
	if !formers(p) {
		return observed(p.first, operation, call)
	}
	p.calls.RLock()
	defer p.calls.RUnlock()
	if p.former == nil {
		return observed(p.first, operation, call) // which does not have it either
	}
	return observed(p.former, operation, call)
}

// withID selects the runtime that has a sandbox or container.
func withID(id string) func(*pair) bool { return func(p *pair) bool { return p.has(id) } }

// ofPod selects the runtime that has a pod's sandbox.
func ofPod(uid string) func(*pair) bool { return func(p *pair) bool { return p.hasPod(uid) } }

// none makes a call without a result one of those above.
func none(call func(*Member) error) func(*Member) (struct{}, error) {
	return func(m *Member) (struct{}, error) { return struct{}{}, call(m) }
}

// joined calls both runtimes, and returns what both have. seen is called with what the former has.
func joined[T any](
	ctx context.Context, r *Runtime, operation string, list func(*Member) ([]T, error), seen func(*pair, []T),
) ([]T, error) {
	p, err := r.pair(ctx)
	if err != nil {
		return nil, err
	}
	p.calls.RLock()
	defer p.calls.RUnlock()
	out, err := observed(p.first, operation, list)
	if err != nil || p.former == nil {
		return out, err
	}
	more, err := observed(p.former, operation, list)
	if err != nil {
		return nil, err
	}
	seen(p, more)
	return append(out[:len(out):len(out)], more...), nil
}

// forgotten asks both runtimes, and returns what either said, also beside an error.
func forgotten[T any](ctx context.Context, r *Runtime, ask func(*Member) ([]T, error)) ([]T, error) {
	p, err := r.pair(ctx)
	if err != nil {
		return nil, err
	}
	p.calls.RLock()
	defer p.calls.RUnlock()
	out, err := ask(p.first)
	if p.former == nil {
		return out, err
	}
	more, moreErr := ask(p.former)
	return append(out[:len(out):len(out)], more...), errors.Join(err, moreErr)
}
