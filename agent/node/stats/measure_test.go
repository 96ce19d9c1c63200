package stats

import (
	"context"
	"errors"
	"maps"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A measurement that hangs is waited for once, and not begun again. The last value stays, and what
// else is measured is not held up.
func TestMeasurementsThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m measurer[string, int]
		var begun atomic.Int32
		hang := make(chan struct{})
		get := func(key string, measure func(context.Context) (int, error)) (value int, ok bool, took time.Duration) {
			began := time.Now()
			value, ok = m.want(key, 0, measure).value(patiently(t))
			return value, ok, time.Since(began)
		}
		fast := func(context.Context) (int, error) { return int(begun.Add(1)), nil }
		hanging := func(context.Context) (int, error) { begun.Add(1); <-hang; return -1, nil }
		if v, ok, took := get("nfs", fast); v != 1 || !ok || took != 0 {
			t.Errorf("at first: %d %v after %s", v, ok, took)
		}
		if v, ok, took := get("nfs", hanging); v != 1 || !ok || took != patience {
			t.Errorf("while it hangs: %d %v after %s", v, ok, took)
		}
		for range 100 {
			if v, ok, took := get("nfs", fast); v != 1 || !ok || took != 0 {
				t.Errorf("again: %d %v after %s", v, ok, took)
			}
		}
		if v, ok, took := get("disk", fast); v != 3 || !ok || took != 0 {
			t.Errorf("beside it: %d %v after %s", v, ok, took)
		}
		if _, ok, took := get("never", hanging); ok || took != patience {
			t.Errorf("never measured: %v after %s", ok, took)
		}
		close(hang)
		synctest.Wait()
		if v, ok, _ := get("nfs", fast); v != 5 || !ok {
			t.Errorf("afterwards: %d %v", v, ok)
		}
		m.keep(func(key string) bool { return key == "disk" })
		if len(m.known) != 1 {
			t.Errorf("kept: %v", m.known)
		}
	})
}

// As long as a measurement hangs, its thing is not forgotten, so that no second one begins beside
// it. The measurement is cancelled, and at its end all is forgotten that was not wanted again.
func TestMeasurementsThatHangAreKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m measurer[string, int]
		var begun atomic.Int32 // things are measured side by side
		want := func(key string, measure func(context.Context) (int, error)) (int, bool) {
			return m.want(key, 0, func(ctx context.Context) (int, error) {
				begun.Add(1)
				return measure(ctx)
			}).value(patiently(t))
		}
		hang := make(chan struct{})
		for range 3 {
			for _, key := range []string{"again", "gone"} {
				want(key, func(context.Context) (int, error) { <-hang; return 7, nil })
			}
			m.keep(func(string) bool { return false })
		}
		want("willing", func(ctx context.Context) (int, error) { <-ctx.Done(); return 0, ctx.Err() })
		m.keep(func(string) bool { return false })
		synctest.Wait()
		if n := begun.Load(); n != 3 || len(m.known) != 2 {
			t.Errorf("begun %d times, known are %v", n, m.known)
		}
		if _, ok := want("again", nil); ok {
			t.Error("what hangs has a value")
		}
		close(hang)
		synctest.Wait()
		if len(m.known) != 1 || m.known["again"].value != 7 {
			t.Errorf("at the end known are %v", m.known)
		}
	})
}

// A failure leaves the last value, and what was measured is not measured again while it is valid.
func TestMeasurementsThatFail(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m measurer[string, int]
		begun := 0
		get := func(err error) (int, bool) {
			return m.want("dir", sizePeriod, func(context.Context) (int, error) {
				begun++
				return begun, err
			}).value(t.Context())
		}
		if v, ok := get(nil); v != 1 || !ok {
			t.Errorf("at first: %d %v", v, ok)
		}
		if get(nil); begun != 1 {
			t.Error("measured again too soon")
		}
		time.Sleep(sizePeriod)
		if v, ok := get(errors.New("it fails")); v != 1 || !ok || begun != 2 {
			t.Errorf("after a failure: %d %v, begun %d times", v, ok, begun)
		}
		if get(nil); begun != 2 {
			t.Error("after a failure it was begun again at once")
		}
		time.Sleep(sizePeriod)
		if v, ok := get(nil); v != 3 || !ok {
			t.Errorf("later: %d %v", v, ok)
		}
	})
}

// What was measured in little time is measured anew when somebody asks for that, and what took long
// is not.
func TestRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m measurer[string, int]
		begun := map[string]int{}
		get := func(thing string, takes time.Duration) {
			m.want(thing, sizePeriod, func(context.Context) (int, error) {
				time.Sleep(takes)
				begun[thing]++
				return begun[thing], nil
			}).value(t.Context())
		}
		for range 3 {
			get("small", time.Millisecond)
			get("large", 10*time.Millisecond)
			get("other", time.Millisecond)
			time.Sleep(11 * time.Second)
			m.renew(func(thing string) bool { return thing != "other" }, limitEffort)
		}
		if want := map[string]int{"small": 3, "large": 1, "other": 1}; !maps.Equal(begun, want) {
			t.Errorf("measured %v, want %v", begun, want)
		}
	})
}

// patiently returns the context of a request.
func patiently(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}
