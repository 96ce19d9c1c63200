package auth

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
)

// accessReviewer says whether a user may do something; Reviews is one.
type accessReviewer interface {
	access(ctx context.Context,
		spec authorizationv1.SubjectAccessReviewSpec) (authorizationv1.SubjectAccessReviewStatus, error)
}

// authorizer asks whether users may do what they request.
type authorizer struct {
	node string
	// all allows everything to every authenticated user.
	all bool
	// reviews is nil if there is no API server; then nothing is allowed.
	reviews        accessReviewer
	allowed, other time.Duration // how long an allowed and another answer is remembered

	cache cache[bool]

	mu sync.Mutex
	// waiting is how many requests of each user wait for reviews of the user's rights.
	waiting map[string]int
}

// may reports whether a user may do one thing.
func (a *authorizer) may(ctx context.Context, u User, want Attributes) (bool, error) {
	if a.all {
		return true, nil
	}
	if a.reviews == nil {
		return false, nil
	}
	question := questionOf(u, want)
	if allowed, known := a.cache.known(question); known {
		return allowed, nil
	}
	if !a.enter(u.Name) {
		return false, errCrowded
	}
	defer a.leave(u.Name)
	return a.cache.get(ctx, question, func(ctx context.Context) (bool, time.Duration, error) {
		status, err := a.reviews.access(ctx, specOf(u, want, a.node))
		if err != nil {
			return false, 0, err
		}
		if status.Allowed && !status.Denied {
			return true, a.allowed, nil
		}
		return false, a.other, nil
	})
}

// enter takes a place of a user's requests that wait, if there is one: at most [maxWaiting].
func (a *authorizer) enter(user string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting[user] >= maxWaiting {
		return false
	}
	if a.waiting == nil {
		a.waiting = map[string]int{}
	}
	a.waiting[user]++
	return true
}

func (a *authorizer) leave(user string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.waiting[user]--; a.waiting[user] == 0 {
		delete(a.waiting, user)
	}
}

// questionOf returns the cache key of a question.
func questionOf(u User, want Attributes) key {
	parts := []string{want.Verb, want.Subresource, u.Name, u.UID, joined(u.Groups)}
	for _, k := range slices.Sorted(maps.Keys(u.Extra)) {
		parts = append(parts, k, joined(u.Extra[k]))
	}
	return keyOf(parts...)
}

// joined joins a list into one text. Different lists have different texts.
func joined(list []string) string {
	k := keyOf(list...)
	return string(k[:])
}

// specOf returns a question in the API's form.
func specOf(u User, want Attributes, node string) authorizationv1.SubjectAccessReviewSpec {
	extra := map[string]authorizationv1.ExtraValue{}
	for k, values := range u.Extra {
		extra[strings.ToLower(k)] = values
	}
	return authorizationv1.SubjectAccessReviewSpec{
		User: u.Name, UID: u.UID, Groups: u.Groups, Extra: extra,
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: want.Verb, Version: "v1", Resource: "nodes", Subresource: want.Subresource, Name: node,
		},
	}
}
