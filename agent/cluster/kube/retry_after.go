package kube

import (
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/berthd/berth/internal/retry"
)

// Backoff is how long to wait before a failed request to the API server is sent again: a
// [retry.Backoff] that also obeys the Retry-After of the API server.
type Backoff retry.Backoff

// Retry is the back-off of requests that pods wait for. It is short enough to notice an API
// server's return within seconds, and to have correct statuses within 10 s of the return.
var Retry = Backoff{First: 100 * time.Millisecond, Most: 5 * time.Second}

// Delay returns how long to wait after so many failures in a row (at least 1). err is the last
// failure: if the API server asks for a wait in it (Retry-After), that is the wait. Otherwise the
// wait is [retry.Backoff.Jittered].
func (b Backoff) Delay(failures int, err error) time.Duration {
	if seconds, asked := apierrors.SuggestsClientDelay(err); asked && seconds > 0 {
		return time.Duration(seconds) * time.Second
	}
	return retry.Backoff(b).Jittered(failures)
}
