package kube_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/berthd/berth/agent/cluster/kube"
	"github.com/berthd/berth/agent/cluster/kube/fake"
)

// askingReady runs a test in fake time with an API server and a [kube.Ready] that asks it.
func askingReady(t *testing.T, test func(*testing.T, *fake.Server, *kube.Ready)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := fake.New()
		defer s.Close()
		core, err := s.Conn(kube.Config{QPS: -1}).Group(v1.SchemeGroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		test(t, s, kube.NewReady(core))
	})
}

func TestReady(t *testing.T) {
	askingReady(t, func(t *testing.T, s *fake.Server, r *kube.Ready) {
		away := errors.New("connection refused")
		if !r.After(t.Context(), nil) || !r.After(t.Context(), apierrors.NewUnauthorized("no")) ||
			len(s.Requests()) > 0 {
			t.Error("it asks though the server answered")
		}
		var asked atomic.Int32
		starting := func(*http.Request) *fake.Fault {
			asked.Add(1)
			return &fake.Fault{Code: http.StatusInternalServerError}
		}
		s.Fail(starting)
		var waiting sync.WaitGroup
		var back atomic.Int32
		for range 10 {
			waiting.Go(func() {
				if r.After(t.Context(), away) {
					back.Add(1)
				}
			})
		}
		first, cancel := context.WithCancel(t.Context())
		waiting.Go(func() { r.After(first, away) })
		time.Sleep(time.Minute)
		if n := asked.Load(); back.Load() > 0 || n < 10 || n > 40 {
			t.Errorf("%d think that it is ready, after %d requests", back.Load(), n)
		}
		cancel()
		time.Sleep(time.Minute)
		s.Fail(nil)
		time.Sleep(10 * time.Second)
		if back.Load() != 10 {
			t.Errorf("%d of 10 were told", back.Load())
		}
		waiting.Wait()
	})
}

// An API server that refuses to say whether it is ready may have just started, or may have its own
// rules.
func TestReadyIsRefused(t *testing.T) {
	askingReady(t, func(t *testing.T, s *fake.Server, r *kube.Ready) {
		s.Fail(func(*http.Request) *fake.Fault { return &fake.Fault{Code: http.StatusForbidden} })
		began := time.Now()
		if !r.After(t.Context(), errors.New("away")) {
			t.Error("never ready")
		}
		if d := time.Since(began); d < 20*time.Second || d > time.Minute {
			t.Errorf("taken for ready after %s", d)
		}
	})
}

// When the caller that asks gives up, another one asks.
func TestReadyIsAskedByAnother(t *testing.T) {
	askingReady(t, func(t *testing.T, s *fake.Server, r *kube.Ready) {
		s.Stop()
		ctx, cancel := context.WithCancel(t.Context())
		first, second := make(chan bool, 1), make(chan bool, 1)
		go func() { first <- r.After(ctx, errors.New("away")) }()
		synctest.Wait()
		go func() { second <- r.After(t.Context(), errors.New("away")) }()
		time.Sleep(10 * time.Second)
		cancel()
		if <-first {
			t.Error("ready though it is away")
		}
		s.Start()
		if !<-second {
			t.Error("not ready though it is back")
		}
	})
}

// A caller that waits in a back-off for an API server that is away learns soon of its return. If
// the API server is there and fails for another reason, it is not asked again before the end of the
// back-off.
func TestBack(t *testing.T) {
	askingReady(t, func(t *testing.T, s *fake.Server, r *kube.Ready) {
		away := errors.New("connection refused")
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		s.Fail(func(*http.Request) *fake.Fault { return &fake.Fault{Code: http.StatusInternalServerError} })
		time.AfterFunc(4*time.Second, func() { s.Fail(nil) })
		began := time.Now()
		if back := r.Back(ctx, away); !back || time.Since(began) > 7*time.Second {
			t.Errorf("back %t after %s", back, time.Since(began))
		}
		s.Stop()
		began = time.Now()
		if back := r.Back(ctx, away); back || time.Since(began) > 7*time.Second {
			t.Errorf("away: back %t after %s", back, time.Since(began))
		}
	})
}
