package auth

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"

	berthcluster "github.com/berthd/berth/agent/cluster/kube"
)

// transport answers requests as a test says.
type transport func(r *http.Request, body []byte) (code int, answer any, err error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	code, answer, err := f(r, body)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(answer)
	return &http.Response{
		StatusCode: code,
		Header:     http.Header{"Content-Type": {"application/json"}},
		Body:       io.NopCloser(bytes.NewReader(data)),
		Request:    r,
	}, err
}

func newReviews(t *testing.T, f transport) *Reviews {
	t.Helper()
	conn, err := berthcluster.New(&rest.Config{Host: "http://api", Transport: f}, berthcluster.Config{QPS: -1})
	if err != nil {
		t.Fatal(err)
	}
	r, err := NewReviews(conn)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestReviews(t *testing.T) {
	r := newReviews(t, func(r *http.Request, body []byte) (int, any, error) {
		switch path := r.Method + " " + r.URL.Path; {
		case path == "POST /apis/authentication.k8s.io/v1/tokenreviews" &&
			strings.Contains(string(body), `"token":"t"`):
			return 201, authenticationv1.TokenReview{Status: authenticationv1.TokenReviewStatus{
				Authenticated: true, User: authenticationv1.UserInfo{Username: "u"},
			}}, nil
		case path == "POST /apis/authorization.k8s.io/v1/subjectaccessreviews" &&
			strings.Contains(string(body), `"user":"u"`):
			return 201, authorizationv1.SubjectAccessReview{
				Status: authorizationv1.SubjectAccessReviewStatus{Allowed: true},
			}, nil
		}
		return 400, nil, errors.New("asked " + r.URL.Path + " " + string(body))
	})
	if s, err := r.token(t.Context(), "t"); err != nil || !s.Authenticated || s.User.Username != "u" {
		t.Errorf("%+v %v", s, err)
	}
	if s, err := r.access(t.Context(), authorizationv1.SubjectAccessReviewSpec{User: "u"}); err != nil || !s.Allowed {
		t.Errorf("%+v %v", s, err)
	}
}

func TestReviewsAreTriedAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		code, tries int
	}{
		"an error inside":      {500, maxTries},
		"not available":        {503, maxTries},
		"too many requests":    {429, maxTries},
		"not allowed to ask":   {403, 1},
		"refused as malformed": {400, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				r := newReviews(t, func(*http.Request, []byte) (int, any, error) {
					tries++
					return tc.code, map[string]any{}, nil
				})
				if _, err := r.token(t.Context(), "t"); err == nil || tries != tc.tries {
					t.Errorf("%d tries, want %d: %v", tries, tc.tries, err)
				}
			})
		})
	}
}

// TestReviewsEnd shows that an API server that does not answer holds a request for ten seconds, no
// longer.
func TestReviewsEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReviews(t, func(r *http.Request, _ []byte) (int, any, error) {
			<-r.Context().Done()
			return 0, nil, r.Context().Err()
		})
		began := time.Now()
		if _, err := r.token(t.Context(), "t"); err == nil || time.Since(began) != reviewTimeout {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

func TestReviewsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReviews(t, func(r *http.Request, _ []byte) (int, any, error) {
			<-r.Context().Done()
			return 0, nil, r.Context().Err()
		})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range maxReviews {
			wg.Go(func() { _, _ = r.token(ctx, "t") })
		}
		synctest.Wait()
		if _, err := r.token(ctx, "t"); !errors.Is(err, errBusy) {
			t.Errorf("one more: %v", err)
		}
		wg.Go(func() {
			// what a known user may do is asked all the same
			if _, err := r.access(ctx, authorizationv1.SubjectAccessReviewSpec{}); errors.Is(err, errBusy) {
				t.Errorf("beside tokens: %v", err)
			}
		})
		synctest.Wait()
		cancel()
		wg.Wait()
	})
}

// TestReviewsOfOneUserAreBounded has one user ask for more rights than there are reviews at a time,
// while the API server does not answer: others are still asked about, and the user when one of its
// reviews has ended.
func TestReviewsOfOneUserAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		r := newReviews(t, func(r *http.Request, body []byte) (int, any, error) {
			if strings.Contains(string(body), `"user":"other"`) {
				return 201, authorizationv1.SubjectAccessReview{
					Status: authorizationv1.SubjectAccessReviewStatus{Allowed: true},
				}, nil
			}
			asked.Add(1)
			<-r.Context().Done()
			return 0, nil, r.Context().Err()
		})
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		var busy atomic.Int64
		for range 2 * maxReviews {
			all.Go(func() {
				_, err := r.access(ctx, authorizationv1.SubjectAccessReviewSpec{User: "greedy"})
				if errors.Is(err, errBusy) {
					busy.Add(1)
				}
			})
		}
		synctest.Wait()
		if n := asked.Load(); n != maxOfUser {
			t.Errorf("the API server was asked %d times about one user, not %d", n, maxOfUser)
		}
		if s, err := r.access(ctx, authorizationv1.SubjectAccessReviewSpec{User: "other"}); err != nil || !s.Allowed {
			t.Errorf("another user: %+v %v", s, err)
		}
		time.Sleep(userWait)
		synctest.Wait()
		if n := busy.Load(); n != 2*maxReviews-maxOfUser {
			t.Errorf("%d of %d were refused after a while", n, 2*maxReviews)
		}
		late := make(chan error, 1)
		go func() {
			_, err := r.access(t.Context(), authorizationv1.SubjectAccessReviewSpec{User: "greedy"})
			late <- err
		}()
		synctest.Wait()
		cancel()
		if err := <-late; err == nil || errors.Is(err, errBusy) { // the API server does not answer it
			t.Errorf("after the others: %v", err)
		}
		all.Wait()
		if len(r.users) != 0 {
			t.Errorf("%d users are remembered", len(r.users))
		}
	})
}

// TestTokensAreNotAskedWithoutEnd shows tokens of nobody, one after the other.
func TestTokensAreNotAskedWithoutEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		r := newReviews(t, func(*http.Request, []byte) (int, any, error) {
			asked++
			return 201, authenticationv1.TokenReview{}, nil
		})
		show := func(n int) (refused int) {
			for i := range n {
				if _, err := r.token(t.Context(), fmt.Sprint(i)); errors.Is(err, errBusy) {
					refused++
				}
			}
			return refused
		}
		if refused := show(1000); asked != tokenBurst || refused != 1000-tokenBurst {
			t.Errorf("asked for %d, refused %d", asked, refused)
		}
		time.Sleep(time.Second)
		if refused := show(1000); refused != 1000-tokenRate {
			t.Errorf("a second later %d were refused", refused)
		}
	})
}

// Tokens of nobody are not in the way of a token that was good a while ago. A token that is not
// good any more has no such right.
func TestGoodTokensAreReviewedBesideOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		good := true
		r := newReviews(t, func(_ *http.Request, body []byte) (int, any, error) {
			return 201, authenticationv1.TokenReview{Status: authenticationv1.TokenReviewStatus{
				Authenticated: good && strings.Contains(string(body), `"token":"good"`),
			}}, nil
		})
		shown := func(token string) error { _, err := r.token(t.Context(), token); return err }
		if err := shown("good"); err != nil {
			t.Fatal(err)
		}
		for i := range 2 * tokenBurst {
			_ = shown(fmt.Sprint(i))
		}
		if err := shown("0"); !errors.Is(err, errBusy) {
			t.Fatalf("a token of nobody: %v", err)
		}
		if err := shown("good"); err != nil {
			t.Errorf("a token that was good: %v", err)
		}
		good = false
		if err := shown("good"); err != nil {
			t.Errorf("a token that was good: %v", err)
		}
		if err := shown("good"); !errors.Is(err, errBusy) {
			t.Errorf("a token that is good no more: %v", err)
		}
	})
}
