package auth

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/berthd/berth/internal/retry"
)

const (
	// reviewTimeout bounds one review, with its retries.
	reviewTimeout = 10 * time.Second
	// retryFirst is the wait after the first failed review; each further wait is half as long
	// again. maxTries is the number of attempts.
	retryFirst = 500 * time.Millisecond
	maxTries   = 5
	// maxReviews bounds the reviews of each kind at the same time, so that callers without rights
	// cannot keep the agent and the API server busy. Anybody can make reviews of tokens necessary:
	// they must not be in the way of the reviews of what known users may do.
	maxReviews = 64
	// maxOfUser bounds the reviews of what one user may do at the same time, because a user may have
	// many questions: each token of a service account is another one. The others wait for userWait.
	maxOfUser = 8
	userWait  = time.Second
	// tokenRate and tokenBurst bound the reviews of tokens in a second, and those at once. The
	// results are remembered, so that the callers of a node need a few in a minute.
	tokenRate  = 20
	tokenBurst = 2 * maxReviews
	// goodFor is how long after a review a token that was good is reviewed outside of these bounds:
	// tokens of nobody must not be in the way of those who call again and again.
	goodFor = time.Hour
)

// errBusy is the error of a review above these limits.
var errBusy = errors.New("too many reviews are under way")

// Groups gives clients of API groups; kube.Conn is one.
type Groups interface {
	Group(gv schema.GroupVersion) (rest.Interface, error)
}

// Reviews are the API server's answers about users. Make it with [NewReviews].
type Reviews struct {
	authentication, authorization rest.Interface
	// tokens, renewals and accesses have an element for each review under way; renewals are those of
	// tokens that were good lately.
	tokens, renewals, accesses chan struct{}
	rate                       flowcontrol.PassiveRateLimiter
	good                       cache[struct{}]

	mu sync.Mutex
	// users are the users whose rights are reviewed, or wait for that.
	users map[string]*userReviews
}

// userReviews are the reviews of what one user may do.
type userReviews struct {
	places chan struct{} // has an element for each review under way
	asked  int           // also those that wait; Reviews.mu guards it
}

// NewReviews returns the reviews of an API server, which need not be reachable yet.
func NewReviews(groups Groups) (*Reviews, error) {
	r := &Reviews{
		tokens:   make(chan struct{}, maxReviews),
		renewals: make(chan struct{}, maxReviews),
		accesses: make(chan struct{}, maxReviews),
		users:    map[string]*userReviews{},
		rate:     flowcontrol.NewTokenBucketPassiveRateLimiter(tokenRate, tokenBurst),
	}
	var err error
	if r.authentication, err = groups.Group(authenticationv1.SchemeGroupVersion); err != nil {
		return nil, err
	}
	if r.authorization, err = groups.Group(authorizationv1.SchemeGroupVersion); err != nil {
		return nil, err
	}
	return r, nil
}

// token asks which user a token belongs to.
func (r *Reviews) token(ctx context.Context, token string) (authenticationv1.TokenReviewStatus, error) {
	slots := r.tokens
	if r.lately(token) {
		slots = r.renewals
	} else if !r.rate.TryAccept() {
		return authenticationv1.TokenReviewStatus{}, errBusy
	}
	var out authenticationv1.TokenReview
	err := r.post(ctx, slots, r.authentication, "tokenreviews",
		&authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, &out)
	switch {
	case err != nil:
	case out.Status.Authenticated:
		r.good.remember(keyOf(token), struct{}{}, goodFor)
	default:
		r.good.forget(keyOf(token))
	}
	return out.Status, err
}

// lately reports whether a token was good at its last review, which was not long ago.
func (r *Reviews) lately(token string) bool {
	_, good := r.good.known(keyOf(token))
	return good
}

// access asks whether a user may do something.
func (r *Reviews) access(
	ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec,
) (authorizationv1.SubjectAccessReviewStatus, error) {
	var out authorizationv1.SubjectAccessReview
	leave, err := r.enter(ctx, spec.User)
	if err != nil {
		return out.Status, err
	}
	defer leave()
	err = r.post(ctx, r.accesses, r.authorization, "subjectaccessreviews",
		&authorizationv1.SubjectAccessReview{Spec: spec}, &out)
	return out.Status, err
}

// enter waits for a place among the reviews of a user's rights.
func (r *Reviews) enter(ctx context.Context, user string) (leave func(), err error) {
	r.mu.Lock()
	u := r.users[user]
	if u == nil {
		u = &userReviews{places: make(chan struct{}, maxOfUser)}
		r.users[user] = u
	}
	u.asked++
	r.mu.Unlock()
	left := func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if u.asked--; u.asked == 0 {
			delete(r.users, user)
		}
	}
	patience := time.NewTimer(userWait)
	defer patience.Stop()
	select {
	case u.places <- struct{}{}:
		return func() { <-u.places; left() }, nil
	case <-patience.C:
		err = fmt.Errorf("%w of user %q", errBusy, user)
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	left()
	return nil, err
}

// post sends a review, if there is a slot for it. It tries again if the API server could not answer
// at that moment.
func (r *Reviews) post(
	ctx context.Context, slots chan struct{}, client rest.Interface, resource string, in, out runtime.Object,
) error {
	select {
	case slots <- struct{}{}:
		defer func() { <-slots }()
	default:
		return errBusy
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	wait := retryFirst
	for try := 1; ; try++ {
		err := client.Post().Resource(resource).Body(in).Do(ctx).Into(out)
		if err == nil {
			return nil
		}
		if try == maxTries || !transient(err) || !retry.Sleep(ctx, wait) {
			return fmt.Errorf("asking the API server (%s): %w", resource, err)
		}
		wait += wait / 2
	}
}

// transient reports whether the error may be gone at the next attempt.
func transient(err error) bool {
	return utilnet.IsConnectionReset(err) || apierrors.IsInternalError(err) || apierrors.IsTimeout(err) ||
		apierrors.IsServerTimeout(err) ||
		apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err)
}
