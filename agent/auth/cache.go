package auth

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// maxCached bounds the answers that one cache remembers.
const maxCached = 4096

// key stands for a question; secrets in a question cannot be read from it.
type key [sha256.Size]byte

// keyOf returns the key of a question in parts. No two questions have the same.
func keyOf(parts ...string) key {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return key(h.Sum(nil))
}

// cache remembers answers for a time, and lets those who ask the same at once wait for one answer. Errors are not remembered.
type cache[V any] struct {
	flight singleflight.Group

	mu      sync.Mutex
	entries map[key]entry[V]
}

type entry[V any] struct {
	value V
	until time.Time
}

// get returns the answer to a question: a remembered one, or the one that ask gives, with how long it may be remembered. ask goes on when ctx ends, since
// others may wait for it.
func (c *cache[V]) get(ctx context.Context, k key, ask func(ctx context.Context) (V, time.Duration, error)) (V, error) {
	if v, ok := c.known(k); ok {
		return v, nil
	}
	answer := c.flight.DoChan(string(k[:]), func() (any, error) {
		if v, ok := c.known(k); ok {
			return v, nil
		}
		v, ttl, err := ask(context.WithoutCancel(ctx))
		if err == nil && ttl > 0 {
			c.remember(k, v, ttl)
		}
		return v, err
	})
	select {
	case r := <-answer:
		v, _ := r.Val.(V)
		return v, r.Err
	case <-ctx.Done():
		var none V
		return none, context.Cause(ctx)
	}
}

func (c *cache[V]) known(k key) (V, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[k]
	if ok && time.Now().After(e.until) {
		delete(c.entries, k)
		ok = false
	}
	return e.value, ok
}

// remember keeps an answer. Where there is no room, those that are over go, then any.
func (c *cache[V]) remember(k key, v V, ttl time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries == nil {
		c.entries = map[key]entry[V]{}
	}
	now := time.Now()
	if len(c.entries) >= maxCached {
		for old, e := range c.entries {
			if now.After(e.until) {
				delete(c.entries, old)
			}
		}
	}
	for old := range c.entries {
		if len(c.entries) < maxCached {
			break
		}
		delete(c.entries, old)
	}
	c.entries[k] = entry[V]{v, now.Add(ttl)}
}
