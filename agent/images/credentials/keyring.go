package credentials

import (
	"cmp"
	"maps"
	"net"
	"path"
	"slices"
	"strings"
)

// The default registry: the name under which its logins are stored, and the names that images use
// for it.
const (
	defaultRegistry = "index.docker.io"
	shortDefault    = "docker.io"
)

// Keyring has credentials, by the registries and paths that they match. The zero value is empty.
type Keyring struct {
	entries []entry
}

type entry struct {
	key        string
	credential Credential
}

// Add adds the logins of a config. All have the same source.
func (k *Keyring) Add(source Source, config Config) {
	for _, registry := range slices.Sorted(maps.Keys(config)) {
		c := config[registry]
		c.Source = source
		k.entries = append(k.entries, entry{key: keyOf(registry), credential: c})
	}
	k.sort()
}

// sort sorts by key in descending order: longer paths come before shorter ones, and names before
// the globs that match them. Of equal keys the one that was added first stays first.
func (k *Keyring) sort() {
	slices.SortStableFunc(k.entries, func(a, b entry) int { return strings.Compare(b.key, a.key) })
}

// Lookup returns the credentials for a repository ("registry.example/team/app", without tag and
// digest), the best first. For images of the default registry, its credentials are used if nothing
// else matches.
func (k *Keyring) Lookup(repository string) []Credential {
	if k == nil {
		return nil
	}
	var out, standard []Credential
	for _, e := range k.entries {
		if Match(e.key, repository) {
			out = append(out, e.credential)
		}
		if e.key == defaultRegistry {
			standard = append(standard, e.credential)
		}
	}
	if len(out) == 0 && ofDefaultRegistry(repository) {
		return standard
	}
	return out
}

// keyOf returns a config's key without its scheme and, as in docker, without a version of the
// registry's protocol.
func keyOf(registry string) string {
	registry = strings.TrimPrefix(strings.TrimPrefix(registry, "https://"), "http://")
	host, rest, _ := strings.Cut(registry, "/")
	for _, version := range []string{"v1/", "v2/"} {
		if after, ok := strings.CutPrefix(rest, version); ok {
			rest = after
			break
		}
	}
	if rest == "" {
		return host
	}
	return host + "/" + rest
}

// ofDefaultRegistry reports whether the repository is in the default registry.
func ofDefaultRegistry(repository string) bool {
	host, _, found := strings.Cut(repository, "/")
	if host == "" {
		return false
	}
	return !found || host == shortDefault || host == defaultRegistry || !strings.ContainsAny(host, ".:")
}

// Match reports whether a key matches a repository. They match if they have the same port, if the
// host names have the same number of parts and each part matches (the key's may be a glob), and if
// the repository's path begins with the key's. Keys are those of a keyring, and the matchImages of
// a plugin.
func Match(key, repository string) bool {
	want, have := split(key), split(repository)
	if want.port != have.port || len(want.host) != len(have.host) || !strings.HasPrefix(have.path, want.path) {
		return false
	}
	for i, glob := range want.host {
		if ok, err := path.Match(glob, have.host[i]); err != nil || !ok {
			return false
		}
	}
	return true
}

// location is a registry's address: the parts of its host name, its port, and a path with its
// slash.
type location struct {
	host       []string
	port, path string
}

func split(s string) location {
	authority, rest, found := strings.Cut(s, "/")
	l := location{}
	if found {
		l.path = "/" + rest
	}
	host, port, err := net.SplitHostPort(authority)
	if err != nil {
		host = authority // it has no port
	}
	l.host, l.port = strings.Split(host, "."), port
	return l
}

// sortedBy returns a sorted copy without duplicates.
func sortedBy[T cmp.Ordered](list []T, compare func(a, b T) int) []T {
	out := slices.Clone(list)
	slices.SortFunc(out, func(a, b T) int { return cmp.Or(compare(a, b), cmp.Compare(a, b)) })
	return slices.Compact(out)
}

// merge adds another keyring's credentials. They come after its own credentials with the same key.
func (k *Keyring) merge(other *Keyring) {
	k.entries = append(k.entries, other.entries...)
	k.sort()
}
