package auth

import (
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/berthd/berth/internal/flight"
)

// maxCached is the largest number of answers in a cache that has no bound of its own.
const maxCached = 4096

// sweepPeriod is how often a cache looks for expired answers, when it gets a new one.
const sweepPeriod = time.Second

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
	// most is the largest number of answers; 0 means [maxCached].
	most   int
	flight flight.Group[V]

	mu      sync.Mutex
	entries map[key]entry[V]
	swept   time.Time // when expired answers were removed last
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
	return c.flight.Do(ctx, string(k[:]), func(ctx context.Context) (V, error) {
		if v, ok := c.known(k); ok {
			return v, nil
		}
		v, ttl, err := ask(ctx)
		if err == nil && ttl > 0 {
			c.remember(k, v, ttl)
		}
		return v, err
	})
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

// remember keeps an answer. It removes expired answers, and if the cache is full, any others.
func (c *cache[V]) remember(k key, v V, ttl time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries == nil {
		c.entries = map[key]entry[V]{}
	}
	now := time.Now()
	if now.Sub(c.swept) >= sweepPeriod {
		maps.DeleteFunc(c.entries, func(_ key, e entry[V]) bool { return now.After(e.until) })
		c.swept = now
	}
	for old := range c.entries {
		if len(c.entries) < cmp.Or(c.most, maxCached) {
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
