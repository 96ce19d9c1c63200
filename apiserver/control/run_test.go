package control

import (
	"context"
	"errors"
	"testing"
)

// TestUnlessEnding: what panics because the server ends is an end, and anything else is a fault.
func TestUnlessEnding(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	fails := func() (int, error) { panic("a fault") }
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a fault is no panic any more")
			}
		}()
		_, _ = unlessEnding(ctx, fails)
	}()
	if made, err := unlessEnding(ctx, func() (int, error) { return 1, nil }); made != 1 || err != nil {
		t.Errorf("it makes %d, %v", made, err)
	}
	_, err := unlessEnding(ctx, func() (int, error) {
		cancel()
		return fails()
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("an end while it is made: %v", err)
	}
	if _, err := unlessEnding(ctx, fails); !errors.Is(err, context.Canceled) {
		t.Errorf("an end before that: %v", err)
	}
}
