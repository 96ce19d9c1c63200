package store_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// patience is how long a test waits for what must come.
const patience = time.Minute

// TestClientWithoutAConnection reads, writes and watches by function calls and by the socket: both
// must be the same store.
func TestClientWithoutAConnection(t *testing.T) {
	dir := t.TempDir()
	s, _ := start(t, dir)
	own, other := s.Client(), client(t, dir)
	t.Cleanup(func() { _ = own.Close() })
	events := own.Watch(t.Context(), "a")
	put(t, other, "a", "1")
	if got, _ := get(t, own.Client, "a"); got != "1" {
		t.Errorf("the value is %q", got)
	}
	put(t, own.Client, "b", "2")
	if got, _ := get(t, other, "b"); got != "2" {
		t.Errorf("the other value is %q", got)
	}
	select {
	case e := <-events:
		if e.Err() != nil || len(e.Events) != 1 || string(e.Events[0].Kv.Value) != "1" {
			t.Errorf("the event is %+v, %v", e.Events, e.Err())
		}
	case <-time.After(patience):
		t.Error("there was no event")
	}
}

// TestReadsSeeWhatWasAcknowledged reads by function calls what others have just written: no read may
// be older than a write that was answered before it, also one that was written before a restart.
func TestReadsSeeWhatWasAcknowledged(t *testing.T) {
	dir := t.TempDir()
	const writers, writes = 8, 50
	for round := range 3 {
		s, stop := start(t, dir)
		own, other := s.Client(), client(t, dir)
		var all sync.WaitGroup
		for i := range writers {
			writer := []*clientv3.Client{own.Client, other}[i%2]
			all.Go(func() {
				if err := writeAndRead(t.Context(), writer, own.Client, strconv.Itoa(i), writes, round > 0); err != nil {
					t.Errorf("round %d, %v", round, err)
				}
			})
		}
		all.Wait()
		_ = own.Close()
		stop()
	}
}

// writeAndRead writes 0, 1, … to a key, as many as that, and reads the key after each and, if there
// are earlier writes, before the first.
func writeAndRead(ctx context.Context, writer, reader *clientv3.Client, key string, writes int, earlier bool) error {
	acknowledged := int64(0)
	for n := range writes + 1 {
		if n > 0 || earlier {
			want := strconv.Itoa((n + writes - 1) % writes)
			got, err := reader.Get(ctx, key)
			if err != nil {
				return fmt.Errorf("read: %w", err)
			}
			if len(got.Kvs) != 1 || string(got.Kvs[0].Value) != want || got.Header.Revision < acknowledged {
				return fmt.Errorf("after revision %d with %s, the answer is %v", acknowledged, want, got)
			}
		}
		if n < writes {
			wrote, err := writer.Put(ctx, key, strconv.Itoa(n))
			if err != nil {
				return fmt.Errorf("write: %w", err)
			}
			acknowledged = wrote.Header.Revision
		}
	}
	return nil
}

// TestClientOfAStoreThatEnded has requests under way while the store ends. Each must have an answer
// or the error of a store that has ended.
func TestClientOfAStoreThatEnded(t *testing.T) {
	s, stop := start(t, t.TempDir())
	own := s.Client()
	put(t, own.Client, "a", "1")
	var requests sync.WaitGroup
	var begun sync.WaitGroup
	for i := range 8 {
		begun.Add(1)
		requests.Go(func() {
			once := sync.OnceFunc(begun.Done)
			defer once()
			for n := 0; ; n++ {
				if n == 10 {
					once()
				}
				_, err := own.Client.Get(t.Context(), "a")
				if err == nil && i%2 == 0 {
					_, err = own.Client.Put(t.Context(), strconv.Itoa(i), "1")
				}
				if errors.Is(err, rpctypes.ErrStopped) {
					return
				}
				if err != nil {
					t.Errorf("the error is %v", err)
					return
				}
			}
		})
	}
	begun.Wait()
	stop()
	requests.Wait()
	if err := own.Close(); !errors.Is(err, context.Canceled) {
		t.Errorf("the end of the client: %v", err)
	}
}

// TestManyWatchesEndAmongEvents ends hundreds of watches of one stream while there are events. The
// watch that stays must see all of them: the client and the store must not wait for each other.
func TestManyWatchesEndAmongEvents(t *testing.T) {
	s, _ := start(t, t.TempDir())
	own := s.Client()
	t.Cleanup(func() { _ = own.Close() })
	const rounds, watches = 20, 200
	stays := own.Watch(t.Context(), "key")
	written := 0
	for range rounds {
		ctx, end := context.WithCancel(t.Context())
		var open sync.WaitGroup
		for range watches {
			open.Go(func() { own.Watch(ctx, "key") })
		}
		open.Wait()
		for i := range 20 {
			if i == 10 {
				end()
			}
			put(t, own.Client, "key", "value")
			written++
		}
		end()
	}
	timeout := time.After(patience)
	for seen := 0; seen < written; {
		select {
		case r, ok := <-stays:
			if !ok || r.Err() != nil {
				t.Fatalf("the watch ended after %d of %d events: %v", seen, written, r.Err())
			}
			for _, e := range r.Events {
				if e.Type == clientv3.EventTypePut {
					seen++
				}
			}
		case <-timeout:
			t.Fatalf("it saw %d of %d events", seen, written)
		}
	}
}
