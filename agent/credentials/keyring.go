package credentials

import (
	"cmp"
	"maps"
	"net"
	"path"
	"slices"
	"strings"
)

// The default registry, under the name that its logins are filed by, and the names that images have it by.
const (
	defaultRegistry = "index.docker.io"
	shortDefault    = "docker.io"
)

// Keyring has credentials by the registries and paths that they are for. The zero value is empty.
type Keyring struct {
	entries []entry
}

type entry struct {
	key        string
	credential Credential
}

// Add adds a config's logins, all from one source.
func (k *Keyring) Add(source Source, config Config) {
	for _, registry := range slices.Sorted(maps.Keys(config)) {
		c := config[registry]
		c.Source = source
		k.entries = append(k.entries, entry{key: keyOf(registry), credential: c})
	}
	k.sort()
}

// sort orders by key, backwards: longer paths come before shorter ones, and names before the globs that they match. Of equal keys the one added first
// counts first.
func (k *Keyring) sort() {
	slices.SortStableFunc(k.entries, func(a, b entry) int { return strings.Compare(b.key, a.key) })
}

// Lookup returns the credentials for a repository ("registry.example/team/app", without tag and digest), the best first. The default registry's
// count for its images where nothing else fits.
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

// keyOf returns a config's key without its scheme and, as docker has it, without a version of the registry's protocol.
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

// ofDefaultRegistry says whether the repository is the default registry's.
func ofDefaultRegistry(repository string) bool {
	host, _, found := strings.Cut(repository, "/")
	if host == "" {
		return false
	}
	return !found || host == shortDefault || host == defaultRegistry || !strings.ContainsAny(host, ".:")
}

// Match says whether a key fits a repository: the same port; as many parts of the host's name, of which each may be a glob; and a path that
// begins the repository's. Keys are a keyring's and matchImages' of a plugin.
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

// location is a registry's place: the dotted parts of its name, its port, and a path with its slash.
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

// sortedBy returns a sorted copy without repeats.
func sortedBy[T cmp.Ordered](list []T, compare func(a, b T) int) []T {
	out := slices.Clone(list)
	slices.SortFunc(out, func(a, b T) int { return cmp.Or(compare(a, b), cmp.Compare(a, b)) })
	return slices.Compact(out)
}

// merge adds another keyring's credentials behind its own of the same key.
func (k *Keyring) merge(other *Keyring) {
	k.entries = append(k.entries, other.entries...)
	k.sort()
}
