package kube_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/berthd/berth/agent/cluster/kube"
)

func TestDelay(t *testing.T) {
	b := kube.Backoff{First: time.Second, Most: 7 * time.Second}
	away := errors.New("connection refused")
	for _, tc := range []struct {
		failures int
		err      error
		want     time.Duration
	}{
		{0, away, time.Second},
		{1, away, time.Second},
		{2, away, 2 * time.Second},
		{3, away, 4 * time.Second},
		{4, away, 7 * time.Second},
		{1 << 40, away, 7 * time.Second},
		{1, apierrors.NewTooManyRequests("slow down", 30), 30 * time.Second},
		{9, fmt.Errorf("listing pods: %w", apierrors.NewTooManyRequests("slow down", 1)), time.Second},
		{1, apierrors.NewTooManyRequests("slow down", 0), time.Second},
	} {
		if got := b.Delay(tc.failures, tc.err); got < tc.want || got > tc.want*6/5 {
			t.Errorf("after %d failures, the last %q: %v, want %v and at most a fifth more", tc.failures, tc.err, got,
				tc.want)
		}
	}
}
