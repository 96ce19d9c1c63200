package images

import (
	"fmt"
	"slices"
	"strings"

	"github.com/distribution/reference"
	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/credentials"
)

// ask is a request with what follows from it and from the Secrets as they are now.
type ask struct {
	Request
	name string // the image's full name
	// own are the credentials of the pod's own Secrets that fit the image, the best first.
	own []credentials.Credential
	// set identifies own by its content, and shows nothing of it.
	set string
	// state identifies own and the node's credentials: a pull that failed is worth another try when it is another.
	state string
	// lacking are the names of the pod's pull secrets that are not there, wrong says what is wrong with others.
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
	a.state = stateOf(a.set, m.deps.Node.State())
	return a
}

func stateOf(set, node string) string { return set + " " + node }

// trying notes which credentials the pull is going to be tried with.
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

// tellSecrets records which of the pod's pull secrets are of no use.
func (m *Manager) tellSecrets(a ask) {
	if len(a.lacking) > 0 {
		m.deps.Events(a.Pod, "", v1.EventTypeWarning, eventNoSecret,
			fmt.Sprintf("Unable to retrieve some image pull secrets (%s); attempting to pull the image may not succeed.", strings.Join(a.lacking, ", ")))
	}
	if a.wrong != nil {
		m.deps.Events(a.Pod, "", v1.EventTypeWarning, eventNoSecret, fmt.Sprintf("Unable to use some image pull secrets: %v", a.wrong))
	}
}
