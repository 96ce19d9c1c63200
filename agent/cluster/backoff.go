package cluster

import (
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Backoff is how long to wait before a request that failed is sent again.
type Backoff struct {
	// First is the wait after the first failure. It doubles with each further one, up to Most.
	First, Most time.Duration
}

// Retry is the back-off of what pods wait for: soon enough that an API server's return is noticed within seconds, and that statuses are right within 10 s of it.
var Retry = Backoff{First: 100 * time.Millisecond, Most: 5 * time.Second}

// Delay returns how long to wait after so many failures in a row (at least 1), of which err is the last: what the API server asks for, else longer each time, with up to a
// fifth more, so that those who failed together do not come back together.
func (b Backoff) Delay(failures int, err error) time.Duration {
	if seconds, asked := apierrors.SuggestsClientDelay(err); asked && seconds > 0 {
		return time.Duration(seconds) * time.Second
	}
	d := b.Most
	if shift := max(failures-1, 0); shift < 16 { // beyond, a shift says nothing new
		d = min(d, b.First<<shift)
	}
	return d + rand.N(d/5+1)
}
