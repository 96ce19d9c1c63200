package auth

import (
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/berthd/berth/internal/loglimit"
)

// Config says who is authenticated and what is allowed.
type Config struct {
	// Node is the name of the node whose API is guarded.
	Node string
	// Anonymous admits requests without credentials, as system:anonymous
	// (authentication.anonymous.enabled).
	Anonymous bool
	// Tokens accepts tokens that the API server knows (authentication.webhook.enabled). TokenTTL is
	// how long an answer about a token is remembered (cacheTTL).
	Tokens   bool
	TokenTTL time.Duration
	// AllowAll allows everything to every authenticated user (authorization.mode AlwaysAllow).
	AllowAll bool
	// AllowedTTL and RefusedTTL are how long an allowing and a refusing answer are remembered
	// (cacheAuthorizedTTL, cacheUnauthorizedTTL).
	AllowedTTL, RefusedTTL time.Duration
}

// Deps are what a guard works with.
type Deps struct {
	// Authorities returns the current authorities that sign client certificates; nil if there are
	// none.
	Authorities func() *x509.CertPool
	// Reviews asks the API server. If it is nil, no token is known, and nothing is allowed unless
	// AllowAll is set.
	Reviews *Reviews
	Logger  *slog.Logger
}

// Guard passes requests only to handlers that their users may use. Make it with [New].
type Guard struct {
	who authenticator
	may authorizer
	log *slog.Logger

	mu sync.Mutex
	// forbidden and unanswered limit the log lines of these kinds: any token of the cluster can ask
	// for what it may not have, as often as it likes.
	forbidden, unanswered loglimit.Limiter
}

// New returns a guard.
func New(cfg Config, deps Deps) *Guard {
	g := &Guard{
		who: authenticator{
			certificates: newCertificates(deps.Authorities), ttl: cfg.TokenTTL, anonymous: cfg.Anonymous,
			strangers: make(chan struct{}, maxWaiting), renewals: make(chan struct{}, maxWaiting),
		},
		may: authorizer{node: cfg.Node, all: cfg.AllowAll, allowed: cfg.AllowedTTL, other: cfg.RefusedTTL},
		log: deps.Logger,
	}
	g.who.cache.flight.Log, g.may.cache.flight.Log = deps.Logger, deps.Logger
	if deps.Reviews != nil {
		g.may.reviews = deps.Reviews
		if cfg.Tokens {
			g.who.tokens = deps.Reviews
		}
	}
	return g
}

// Check reports whether a request is allowed, and answers it if it is not. The path is that of the
// handler for the request, or the request's own path if it has no handler. The texts are the
// kubelet's.
func (g *Guard) Check(w http.ResponseWriter, r *http.Request, path string) bool {
	user, err := g.who.user(r)
	if err != nil {
		g.log.Debug("request not authenticated", "method", r.Method, "path", r.URL.Path, "from", r.RemoteAddr,
			"err", err)
		if errors.Is(err, errCrowded) {
			return crowded(w)
		}
		refuse(w, http.StatusUnauthorized, "Unauthorized")
		return false
	}
	wanted := AttributesOf(r.Method, path)
	subresources := make([]string, 0, len(wanted))
	for _, want := range wanted {
		ok, err := g.may.may(r.Context(), user, want)
		if errors.Is(err, errCrowded) {
			return crowded(w)
		}
		if err != nil {
			g.log.Log(r.Context(), g.level(&g.unanswered, slog.LevelError, err), "request not authorized",
				"user", user.Name, "verb", want.Verb, "resource", "nodes", "subresource", want.Subresource, "err", err)
			refuse(w, http.StatusInternalServerError,
				fmt.Sprintf("Authorization error (user=%s, verb=%s, resource=nodes, subresource=%s)",
					user.Name, want.Verb, want.Subresource))
			return false
		}
		if ok {
			g.log.Debug("request authorized", "user", user.Name, "verb", want.Verb, "subresource", want.Subresource,
				"path", r.URL.Path)
			return true
		}
		subresources = append(subresources, want.Subresource)
	}
	why := fmt.Sprintf("Forbidden (user=%s, verb=%s, resource=nodes, subresource(s)=%v)", user.Name, wanted[0].Verb,
		subresources)
	g.log.Log(r.Context(), g.level(&g.forbidden, slog.LevelInfo, errors.New(why)), "request forbidden",
		"user", user.Name, "verb", wanted[0].Verb, "resource", "nodes", "subresources", subresources, "path", r.URL.Path)
	refuse(w, http.StatusForbidden, why+"\n")
	return false
}

// crowded answers a request that would be one too many.
func crowded(w http.ResponseWriter) bool {
	w.Header().Set("Retry-After", "1")
	refuse(w, http.StatusTooManyRequests, "Too many requests, please try again later.\n")
	return false
}

// level returns the level of a refusal's log line: usual, or debug if there are too many of the
// kind.
func (g *Guard) level(limit *loglimit.Limiter, usual slog.Level, why error) slog.Level {
	g.mu.Lock()
	defer g.mu.Unlock()
	if limit.Allow(why, time.Now()) {
		return usual
	}
	return slog.LevelDebug
}

// refuse answers with a text.
func refuse(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text))
}
