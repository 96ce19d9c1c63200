package images

import (
	"fmt"
	"slices"
	"strings"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/images/credentials"
)

// ask is a request, with what follows from the request and from the current Secrets.
type ask struct {
	Request
	name string // the image's full name
	// own are the matching credentials of the pod's own Secrets, the best first.
	own []credentials.Credential
	// set identifies own by its content, without showing any of it, and the pod's service account if
	// the node's credentials depend on it.
	set string
	// state identifies own and the node's credentials. After a failed pull, another state is a
	// reason to pull again at once.
	state string
	// lacking are the names of the pod's pull secrets that do not exist. wrong says what is wrong
	// with others.
	lacking []string
	wrong   error
}

// askOf looks up the pod's pull secrets.
func (m *Manager) askOf(req Request, name string) ask {
	a := ask{Request: req, name: name}
	var secrets []*v1.Secret
	for _, ref := range req.Pod.Spec.ImagePullSecrets {
		switch s, ok := m.deps.Secret(req.Pod, ref.Name); {
		case ref.Name == "" || slices.ContainsFunc(secrets, func(o *v1.Secret) bool { return o == s }):
		case ok:
			secrets = append(secrets, s)
		default:
			a.lacking = append(a.lacking, ref.Name)
		}
	}
	if len(secrets) > 0 {
		var ring *credentials.Keyring
		ring, a.wrong = credentials.FromSecrets(secrets)
		a.own = ring.Lookup(repositoryOf(name))
	}
	hashes := make([]string, 0, len(a.own))
	for _, c := range a.own {
		hashes = append(hashes, c.Hash())
	}
	a.set = strings.Join(hashes, ",")
	if credentials.HasAccount(req.Pod) && m.deps.Node.PerAccount(repositoryOf(name)) {
		a.set += " of " + req.Pod.Namespace + "/" + req.Pod.Spec.ServiceAccountName
	}
	a.state = stateOf(a.set, m.deps.Node.State())
	return a
}

func stateOf(set, node string) string { return set + " " + node }

// trying records the credentials with which the pull will be tried.
func (m *Manager) trying(p *pull) {
	state := stateOf(p.set, m.deps.Node.State())
	m.mu.Lock()
	defer m.mu.Unlock()
	p.tried = state
}

func (a ask) pull() pullKey       { return pullKey{a.name, a.set} }
func (a ask) backoff() backoffKey { return backoffKey{a.Pod.UID, a.name} }

// repositoryOf returns a full name without its tag or digest.
func repositoryOf(name string) string {
	named, err := reference.ParseNamed(name)
	if err != nil {
		return name
	}
	return named.Name()
}

// reportSecrets records events about those of the pod's pull secrets that cannot be used.
func (m *Manager) reportSecrets(a ask) {
	if len(a.lacking) > 0 {
		m.deps.Events(a.Pod, "", v1.EventTypeWarning, eventNoSecret,
			fmt.Sprintf(
				"Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.",
				strings.Join(a.lacking, ", ")))
	}
	if a.wrong != nil {
		m.deps.Events(a.Pod, "", v1.EventTypeWarning, eventNoSecret,
			fmt.Sprintf("Unable to use some image pull secrets: %v", a.wrong))
	}
}
