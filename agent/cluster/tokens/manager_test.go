package tokens

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"github.com/berthd/berth/agent/cluster/kube"
	"github.com/berthd/berth/agent/cluster/kube/fake"
)

var errAway = errors.New("dial tcp: connection refused")

// hidden is the prefix of every token. Only a pod's file may have it.
const hidden = "eyJhbGciOiJSUzI1NiJ9.hidden"

// bench is a manager with an issuer that can fail.
type bench struct {
	*Manager
	mu    sync.Mutex
	asked []string
	fail  error
	n     int
	woken []string
	log   bytes.Buffer
}

func (b *bench) answer(
	_ context.Context, namespace, account string, ask *authenticationv1.TokenRequest,
) (*authenticationv1.TokenRequest, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	ref := ask.Spec.BoundObjectRef
	seconds := ptr.Deref(ask.Spec.ExpirationSeconds, 3600)
	b.asked = append(b.asked,
		fmt.Sprintf("%s/%s for %s %s %s, %q, %d s", namespace, account, ref.Kind, ref.Name, ref.UID, ask.Spec.Audiences,
			seconds))
	if b.fail != nil {
		return nil, b.fail
	}
	b.n++
	out := ask.DeepCopy()
	out.Spec.ExpirationSeconds = &seconds
	out.Status = authenticationv1.TokenRequestStatus{
		Token:               fmt.Sprintf("%s.%d", hidden, b.n),
		ExpirationTimestamp: metav1.NewTime(time.Now().Add(time.Duration(seconds) * time.Second)),
	}
	return out, nil
}

func run(t *testing.T, test func(*testing.T, *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{}
		b.Manager = newManager(Deps{Wake: func(uid types.UID) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.woken = append(b.woken, string(uid))
		}, Logger: slog.New(slog.NewTextHandler(&b.log, &slog.HandlerOptions{Level: slog.Level(-100)}))}, b.answer)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- b.Run(ctx) }()
		synctest.Wait()
		test(t, b)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if strings.Contains(b.log.String(), hidden) {
			t.Errorf("the log quotes a token: %s", b.log.String())
		}
	})
}

// took waits until nothing is running any more, and returns the requests and the woken pods since
// its last call.
func (b *bench) took() (asked []string, woken string) {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	asked, woken = b.asked, strings.Join(slices.Compact(b.woken), " ")
	b.asked, b.woken = nil, nil
	return asked, woken
}

func (b *bench) failing(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fail = err
}

func projection(audience string, seconds int64) *v1.ServiceAccountTokenProjection {
	return &v1.ServiceAccountTokenProjection{Audience: audience, ExpirationSeconds: &seconds, Path: "token"}
}

func podWith(uid string, projections ...*v1.ServiceAccountTokenProjection) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod-" + uid, UID: types.UID(uid)},
		Spec:       v1.PodSpec{ServiceAccountName: "sa"},
	}
	volume := &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{{DownwardAPI: &v1.DownwardAPIProjection{}}}}
	for _, p := range projections {
		volume.Sources = append(volume.Sources, v1.VolumeProjection{ServiceAccountToken: p})
	}
	pod.Spec.Volumes = []v1.Volume{{Name: "disk"}, {Name: "tokens", VolumeSource: v1.VolumeSource{Projected: volume}}}
	return pod
}

func (b *bench) read(pod *v1.Pod, p *v1.ServiceAccountTokenProjection) string {
	synctest.Wait()
	text, err := b.Token(pod, p)
	if err != nil {
		return err.Error()
	}
	return strings.TrimPrefix(string(text), hidden)
}

func TestOneTokenForPodAudienceAndTime(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		one, other := projection("", 3607), projection("vault", 600)
		pod, second := podWith("u1", one, other, projection("", 3607)), podWith("u2", one)
		b.Use(pod)
		b.Use(pod)
		b.Use(second)
		asked, woken := b.took()
		slices.Sort(asked)
		want := []string{
			`ns/sa for Pod pod-u1 u1, ["vault"], 600 s`, `ns/sa for Pod pod-u1 u1, [], 3607 s`,
			`ns/sa for Pod pod-u2 u2, [], 3607 s`,
		}
		if diff := cmp.Diff(want, asked); diff != "" {
			t.Error(diff)
		}
		if !strings.Contains(woken, "u1") || !strings.Contains(woken, "u2") {
			t.Errorf("woke %q", woken)
		}
		a, c, d := b.read(pod, one), b.read(pod, other), b.read(second, one)
		if a == c || a == d || !strings.HasPrefix(a, ".") || !strings.HasPrefix(c, ".") || !strings.HasPrefix(d, ".") {
			t.Errorf("tokens %q, %q, %q", a, c, d)
		}
		b.Drop("u1")
		b.Drop("nobody")
		if got := b.read(pod, one); got != "failed to fetch token: nobody has asked for it" {
			t.Errorf("a pod that is gone has a token: %q", got)
		}
		time.Sleep(time.Hour)
		asked, woken = b.took()
		if len(asked) != 1 || woken != "u2" {
			t.Errorf("asked for %q, woke %q", asked, woken)
		}
	})
}

func TestRefreshAfter(t *testing.T) {
	for _, c := range []struct{ life, want time.Duration }{
		{10 * time.Minute, 8 * time.Minute},
		{time.Hour, 48 * time.Minute},
		{30 * time.Hour, 24 * time.Hour},
		{48 * time.Hour, 24 * time.Hour},
		{365 * 24 * time.Hour, 24 * time.Hour},
	} {
		if got := refreshAfter(c.life); got != c.want {
			t.Errorf("a token of %s is replaced after %s, want %s", c.life, got, c.want)
		}
	}
}

func TestRefresh(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		p := projection("", 3600)
		pod := podWith("u1", p)
		b.Use(pod)
		b.took()
		time.Sleep(48*time.Minute - jitter)
		if asked, _ := b.took(); len(asked) > 0 || b.read(pod, p) != ".1" {
			t.Errorf("replaced too early: %q", asked)
		}
		time.Sleep(jitter)
		if asked, woken := b.took(); len(asked) != 1 || woken != "u1" || b.read(pod, p) != ".2" {
			t.Errorf("not replaced: %q, woke %q", asked, woken)
		}
	})
}

func TestRefreshFails(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		p := projection("", 3600)
		pod := podWith("u1", p)
		b.Use(pod)
		b.took()
		b.failing(errAway)
		time.Sleep(59 * time.Minute)
		if got := b.read(pod, p); got != ".1" {
			t.Errorf("the token that is still good is given up: %q", got)
		}
		if asked, woken := b.took(); len(asked) == 0 || len(asked) > 30 || woken != "" {
			t.Errorf("%d requests in ten minutes, woke %q", len(asked), woken)
		}
		time.Sleep(2 * time.Minute)
		if got := b.read(pod,
			p); got != "token of service account ns/sa expired and refresh failed: dial tcp: connection refused" {
			t.Error(got)
		}
		b.failing(nil)
		time.Sleep(2 * kube.Retry.Most)
		if got := b.read(pod, p); got != ".2" {
			t.Error(got)
		}
		if n := strings.Count(b.log.String(), "level=WARN"); n != 1 {
			t.Errorf("told %d times", n)
		}
	})
}

func TestFirstTokenFails(t *testing.T) {
	notFound := apierrors.NewNotFound(schema.GroupResource{Resource: "serviceaccounts"}, "sa")
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "serviceaccounts"}, "sa",
		errors.New("no relationship found"))
	for _, c := range []struct {
		name  string
		err   error
		first string
		then  string
	}{
		{
			"no such account", notFound, "failed to fetch token: " + notFound.Error(),
			"failed to fetch token: " + notFound.Error(),
		},
		{"refused", forbidden, ErrPending.Error(), "failed to fetch token: " + forbidden.Error()},
		{"away", errAway, "failed to fetch token: " + errAway.Error(), "failed to fetch token: " + errAway.Error()},
		{
			"busy", apierrors.NewTooManyRequests("slow down", 9), "failed to fetch token: slow down",
			"failed to fetch token: slow down",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			run(t, func(t *testing.T, b *bench) {
				b.failing(c.err)
				p := projection("", 3600)
				pod := podWith("u1", p)
				b.Use(pod)
				if got := b.read(pod, p); got != c.first {
					t.Errorf("at first: %q", got)
				}
				time.Sleep(time.Second)
				if got := b.read(pod, p); got != c.then {
					t.Errorf("then: %q", got)
				}
				if asked, woken := b.took(); c.name == "busy" && len(asked) != 1 || woken != "u1" {
					t.Errorf("asked %d times, woke %q", len(asked), woken)
				}
				b.failing(nil)
				time.Sleep(10 * time.Second)
				if got := b.read(pod, p); got != ".1" {
					t.Errorf("at last: %q", got)
				}
			})
		})
	}
}

func TestPendingHasAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		m := newManager(Deps{Wake: func(types.UID) {}},
			func(ctx context.Context, _, _ string,
				_ *authenticationv1.TokenRequest,
			) (*authenticationv1.TokenRequest, error) {
				select {
				case <-ctx.Done():
					return nil, ctx.Err()
				case <-answer:
					return &authenticationv1.TokenRequest{}, nil // without a token
				}
			})
		p := projection("", 3600)
		pod := podWith("u1", p)
		m.Use(pod) // before Run
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- m.Run(ctx) }()
		synctest.Wait()
		if _, err := m.Token(pod, p); !errors.Is(err, ErrPending) || m.Await(pod).IsZero() {
			t.Error(err)
		}
		time.Sleep(patience)
		if _, err := m.Token(pod, p); err == nil ||
			err.Error() != "failed to fetch token: the API server has not answered" || !m.Await(pod).IsZero() {
			t.Error(err)
		}
		close(answer)
		synctest.Wait()
		if _, err := m.Token(pod, p); err == nil ||
			err.Error() != "failed to fetch token: the API server's answer holds no token" {
			t.Error(err)
		}
		cancel()
		<-done
		m.Use(podWith("late", p)) // too late: it must only not break anything
	})
}

// If the node's clock is ahead of the API server's, tokens seem to have expired. If it is behind,
// they seem to last. In both cases the node renews tokens when they are old, and uses them while
// they are good, also while the API server is away.
func TestClocksDiffer(t *testing.T) {
	for name, differ := range map[string]time.Duration{
		"ahead":     time.Hour,
		"behind":    -time.Hour,
		"far ahead": 24 * 366 * time.Hour,
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(t *testing.T, b *bench) {
				issue := b.issue
				b.issue = func(ctx context.Context, namespace, account string,
					ask *authenticationv1.TokenRequest,
				) (*authenticationv1.TokenRequest, error) {
					out, err := issue(ctx, namespace, account, ask)
					if err == nil {
						out.Status.ExpirationTimestamp = metav1.NewTime(out.Status.ExpirationTimestamp.Add(-differ))
					}
					return out, err
				}
				p := projection("", 3600)
				pod := podWith("u1", p)
				b.Use(pod)
				time.Sleep(47 * time.Minute)
				if asked, _ := b.took(); len(asked) != 1 || b.read(pod, p) != ".1" {
					t.Errorf("asked %d times in 47 minutes; has %q", len(asked), b.read(pod, p))
				}
				time.Sleep(time.Minute)
				if asked, _ := b.took(); len(asked) != 1 || b.read(pod, p) != ".2" {
					t.Errorf("asked %d times in the next minute; has %q", len(asked), b.read(pod, p))
				}
				b.failing(errAway)
				time.Sleep(59 * time.Minute)
				if asked, _ := b.took(); len(asked) == 0 || b.read(pod, p) != ".2" {
					t.Errorf("asked %d times in an hour; has %q", len(asked), b.read(pod, p))
				}
				time.Sleep(2 * time.Minute)
				if text := b.read(pod, p); !strings.Contains(text, "expired") {
					t.Errorf("a token that is over is %q", text)
				}
			})
		})
	}
}

// The age of a token is the time that has passed. The monotonic clock does not count a suspension
// of the machine, so after one the wall clock counts.
func TestAgeOverASuspension(t *testing.T) {
	now := time.Now()
	if tok := (&token{got: now.Add(-time.Minute)}); tok.age(now) != time.Minute {
		t.Errorf("it is %s old", tok.age(now))
	}
	// without a monotonic reading
	if tok := (&token{got: now.Add(-time.Hour).Round(0)}); tok.age(now) != time.Hour {
		t.Errorf("it is %s old", tok.age(now))
	}
}

func TestTokensStayOutOfMessages(t *testing.T) {
	tok := &token{text: hidden}
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		if text := fmt.Sprintf(format, tok) + fmt.Sprintf(format, *tok); strings.Contains(text, hidden) {
			t.Errorf("%s: %s", format, text)
		}
	}
}

// This uses HTTP, with the client library at its highest verbosity.
func TestRequestsToAnAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fake.New()
		defer s.Close()
		core, err := s.Conn(kube.Config{QPS: -1}).Group(v1.SchemeGroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.Level(-100)}))
		klog.SetSlogLogger(logger)
		defer klog.ClearLogger()
		m := New(Deps{Core: core, Wake: func(types.UID) {}, Logger: logger})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- m.Run(ctx) }()
		p := projection("", 3600)
		pod := podWith("u1", p)
		s.Put(fake.Pods, pod)
		m.Use(pod)
		time.Sleep(time.Minute)
		if text, err := m.Token(pod, p); err != nil || !strings.HasPrefix(string(text), fake.TokenPrefix) {
			t.Errorf("%q, %v", text, err)
		}
		for _, r := range s.Requests() {
			if r.Method != "POST" || r.Path != "/api/v1/namespaces/ns/serviceaccounts/sa/token" {
				t.Errorf("request %s %s", r.Method, r.Path)
			}
		}
		if strings.Contains(log.String(), fake.TokenPrefix) {
			t.Errorf("the log quotes a token: %s", log.String())
		}
		cancel()
		<-done
	})
}

// A token for a plugin is asked for when it is needed, kept until it is old, and forgotten with its
// pod.
func TestNow(t *testing.T) {
	run(t, func(t *testing.T, b *bench) {
		pod := &v1.Pod{Spec: v1.PodSpec{ServiceAccountName: "robot"}}
		pod.Namespace, pod.Name, pod.UID = "ns", "web", "uid-1"
		now := func(audience, want string) {
			t.Helper()
			got, err := b.Now(t.Context(), pod, audience)
			if err != nil {
				got = err.Error()
			}
			if !strings.HasSuffix(got, want) {
				t.Errorf("the token for %q is %s, want %s", audience, got, want)
			}
		}
		now("registry", ".1")
		now("registry", ".1")
		now("other", ".2")
		asked, woken := b.took()
		want := []string{
			`ns/robot for Pod web uid-1, ["registry"], 3600 s`, `ns/robot for Pod web uid-1, ["other"], 3600 s`,
		}
		if !slices.Equal(asked, want) || woken != "" {
			t.Errorf("asked for %q, woke %q", asked, woken)
		}
		time.Sleep(49 * time.Minute)
		if asked, _ := b.took(); len(asked) != 0 {
			t.Errorf("asked for %q though nobody needs it", asked)
		}
		now("registry", ".3")
		b.failing(errAway)
		now("registry", ".3")
		b.Drop("uid-1")
		now("registry", errAway.Error())
		b.failing(nil)
		now("registry", ".4")
		pod.UID = "uid-2"
		time.Sleep(2 * time.Hour)
		now("registry", ".5")
		if len(b.once) != 1 {
			t.Errorf("tokens that have ended are kept: %v", b.once)
		}
	})
}
