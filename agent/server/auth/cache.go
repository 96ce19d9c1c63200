package auth

import (
	"context"
	"crypto/sha256"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// maxCached is the largest number of answers in one cache.
const maxCached = 4096

// key identifies a question. It does not reveal secrets in the question.
type key [sha256.Size]byte

// keyOf returns the key of a question in parts. Different questions have different keys.
func keyOf(parts ...string) key {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:%s", len(p), p)
	}
	return key(h.Sum(nil))
}

// cache remembers answers for a time. Callers with the same question at the same time wait for one
// answer. Errors are not remembered.
type cache[V any] struct {
	flight singleflight.Group

	mu      sync.Mutex
	entries map[key]entry[V]
}

type entry[V any] struct {
	value V
	until time.Time
}

// get returns the remembered answer to a question, or the result of ask, which also says how long
// the answer may be remembered. ask continues when ctx ends, because others may wait for it.
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

// remember keeps an answer. If the cache is full, expired answers are removed first, then any.
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

// forget drops an answer.
func (c *cache[V]) forget(k key) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.entries, k)
}
