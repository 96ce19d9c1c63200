package credentials

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	kubeletconfigv1 "k8s.io/kubelet/config/v1"
	credentialproviderv1 "k8s.io/kubelet/pkg/apis/credentialprovider/v1"
)

// everywhere is the cache key of answers that are valid for every image. No image's name contains
// such brackets.
const everywhere = "<global>"

// Plugins are the node's credential provider plugins: programs that return the credentials for the
// images that they match.
type Plugins struct {
	list     []*plugin
	accounts Accounts
	log      *slog.Logger
}

// plugin is one program, with its answers that are still valid.
type plugin struct {
	config kubeletconfigv1.CredentialProvider
	run    func(ctx context.Context, q query) (*credentialproviderv1.CredentialProviderResponse, error)

	mu     sync.Mutex
	cache  map[string]answer
	asking map[string]chan struct{} // by image and scope; closed when the answer is there
}

// answer is what a plugin returned, until it expires.
type answer struct {
	ring    *Keyring
	expires time.Time
}

// OpenPlugins reads the config (a file, or a directory of files) and looks for the programs in
// binDir. An empty configPath means no plugins. accounts has the service accounts of pods of an API
// server; nil on a node that has no such pods. The errors name file and field, and are mistakes in
// the config.
func OpenPlugins(configPath, binDir string, accounts Accounts, log *slog.Logger) (*Plugins, error) {
	p := &Plugins{accounts: accounts, log: log}
	if configPath == "" {
		return p, nil
	}
	providers, err := readPlugins(configPath)
	if err != nil {
		return nil, fmt.Errorf("image credential providers: %w", err)
	}
	for _, config := range providers {
		program := filepath.Join(binDir, config.Name)
		if _, err := exec.LookPath(program); err != nil {
			return nil, fmt.Errorf("image credential provider %s: %w", config.Name, err)
		}
		e := execution{program: program, config: config, environ: os.Environ}
		p.list = append(p.list, newPlugin(config, e.run))
	}
	return p, nil
}

func newPlugin(
	config kubeletconfigv1.CredentialProvider,
	run func(context.Context, query) (*credentialproviderv1.CredentialProviderResponse, error),
) *plugin {
	return &plugin{config: config, run: run, cache: map[string]answer{}, asking: map[string]chan struct{}{}}
}

// Lookup asks every plugin that matches the repository and returns all their credentials for the
// pod, the best first. Of equal keys, the plugin that is first in the config comes first. Lookup
// takes as long as the plugins do, at most [pluginTimeout] for each. The error names the plugins
// that failed; the credentials of the others are valid all the same.
func (p *Plugins) Lookup(ctx context.Context, pod *v1.Pod, repository string) ([]Credential, error) {
	ring := &Keyring{}
	var errs []error
	for _, plugin := range p.list {
		if !plugin.matches(repository) {
			continue
		}
		q, ok, err := plugin.queryFor(ctx, p.accounts, pod, repository)
		if err == nil && !ok {
			continue
		}
		var given *Keyring
		if err == nil {
			given, err = plugin.ask(ctx, q)
		}
		if err != nil {
			err = fmt.Errorf("credential provider %s: %w", plugin.config.Name, err)
			p.log.Warn("A credential provider plugin failed", "image", repository, "err", err)
			errs = append(errs, err)
			continue
		}
		ring.merge(given)
	}
	return ring.Lookup(repository), errors.Join(errs...)
}

// PerAccount reports whether the credentials for a repository may depend on the service account of
// the pod.
func (p *Plugins) PerAccount(repository string) bool {
	return slices.ContainsFunc(p.list, func(plugin *plugin) bool {
		return plugin.config.TokenAttributes != nil && plugin.matches(repository)
	})
}

func (p *plugin) matches(repository string) bool {
	for _, pattern := range p.config.MatchImages {
		if Match(pattern, repository) {
			return true
		}
	}
	return false
}

// ask returns the plugin's credentials: its earlier answer while that is valid, otherwise a new
// one. It runs the plugin once at a time for each image and scope.
func (p *plugin) ask(ctx context.Context, q query) (*Keyring, error) {
	key := scoped(q.image, q.scope)
	for {
		p.mu.Lock()
		if ring := p.cached(q, time.Now()); ring != nil {
			p.mu.Unlock()
			return ring, nil
		}
		other := p.asking[key]
		if other == nil {
			break
		}
		p.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	done := make(chan struct{})
	p.asking[key] = done
	p.mu.Unlock()
	response, err := p.run(ctx, q)
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.asking, key)
	close(done)
	if err != nil {
		return nil, err
	}
	return p.keep(q, response, time.Now())
}

// cached returns an answer that is still valid, or nil. The lock is held.
func (p *plugin) cached(q query, now time.Time) *Keyring {
	maps.DeleteFunc(p.cache, func(_ string, a answer) bool { return !now.Before(a.expires) })
	for _, key := range []string{q.image, registryOf(q.image), everywhere} {
		if a, ok := p.cache[scoped(key, q.scope)]; ok {
			return a.ring
		}
	}
	return nil
}

// keep converts a plugin's answer to a keyring, and caches it as the answer demands. The lock is
// held.
func (p *plugin) keep(
	q query, response *credentialproviderv1.CredentialProviderResponse, now time.Time,
) (*Keyring, error) {
	if q.echoes(response) && p.config.TokenAttributes.CacheType != kubeletconfigv1.TokenServiceAccountTokenCacheType {
		return nil, errEchoed
	}
	var key string
	switch response.CacheKeyType {
	case credentialproviderv1.ImagePluginCacheKeyType:
		key = q.image
	case credentialproviderv1.RegistryPluginCacheKeyType:
		key = registryOf(q.image)
	case credentialproviderv1.GlobalPluginCacheKeyType:
		key = everywhere
	default:
		return nil, fmt.Errorf("its answer's cacheKeyType is %q: want Image, Registry or Global", response.CacheKeyType)
	}
	config := make(Config, len(response.Auth))
	for registry, auth := range response.Auth {
		config[registry] = Credential{Username: NewSecret(auth.Username), Password: NewSecret(auth.Password)}
	}
	ring := &Keyring{}
	ring.Add(q.source, config)
	lasts := p.config.DefaultCacheDuration.Duration
	if response.CacheDuration != nil {
		lasts = response.CacheDuration.Duration
	}
	if lasts > 0 {
		p.cache[scoped(key, q.scope)] = answer{ring: ring, expires: now.Add(lasts)}
	}
	return ring, nil
}

// scoped returns a key for the answers of one scope. No image's name contains a space.
func scoped(key, scope string) string { return key + " " + scope }

func registryOf(image string) string {
	host, _, _ := strings.Cut(image, "/")
	return host
}
