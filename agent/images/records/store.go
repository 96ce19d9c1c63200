package records

import (
	"cmp"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"

	"github.com/berthd/berth/agent/images/credentials"
)

// Store has the intents and records of one node. Make it with [New].
type Store struct {
	pulling, pulled string // directories
	policy          Policy
	log             *slog.Logger

	mu      sync.Mutex
	loaded  bool
	intents map[string]int // pulls under way, by the image as it is written
	names   map[string]int // the same, by the image's full name
	// images, by full name, that have an intent without a pull: an agent died, or a record could
	// not be written
	left map[string]bool
}

// New returns the store below an agent's root directory. It reads and writes nothing yet.
func New(root string, policy Policy, log *slog.Logger) *Store {
	return &Store{
		pulling: filepath.Join(root, "image_manager", "pulling"),
		pulled:  filepath.Join(root, "image_manager", "pulled"),
		policy:  policy,
		log:     log,
		intents: map[string]int{},
		names:   map[string]int{},
		left:    map[string]bool{},
	}
}

// Begin records that the image, as a pod writes it, will be pulled. If Begin fails, the pull must
// not begin: if the agent then died, the image would count as preloaded. Call [Store.Pulled] or
// [Store.Failed] once after each Begin.
func (s *Store) Begin(image string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.load()
	if err := write(s.pulling, fileName(image), intentOf(image)); err != nil {
		return fmt.Errorf("note the pull of %s: %w", image, err)
	}
	s.intents[image]++
	s.names[fullName(image)]++
	return nil
}

// Failed records that a pull failed.
func (s *Store) Failed(image string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(image, true)
}

// Use is one pod's use of a pull: the image as the pod writes it, and the credential that the
// registry accepted. The zero Credential means that the registry gives the image to everybody.
type Use struct {
	Image      string
	Credential credentials.Credential
}

// Pulled records that the pull of image succeeded: id is the runtime's id of the image, and uses
// say who may use it from now on. If the record cannot be written, the intent stays, so that every
// pod must have credentials.
func (s *Store) Pulled(image, id string, uses []Use) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.grantAll(id, uses)
	s.end(image, err == nil)
	if err != nil {
		return fmt.Errorf("note who may use %s: %w", image, err)
	}
	return nil
}

// grantAll adds the uses to the image's record. The lock is held.
func (s *Store) grantAll(id string, uses []Use) error {
	record, err := s.record(id)
	if err != nil {
		s.log.Warn("The record of an image cannot be read, and is begun anew", "err", err)
	}
	changed := record == nil
	if record == nil {
		record = &kubeletconfigv1beta1.ImagePulledRecord{ImageRef: id}
	}
	for _, use := range uses {
		repository, err := repositoryOf(use.Image)
		if err != nil {
			return err
		}
		changed = grant(record, repository, use.Credential) || changed
	}
	if !changed {
		return nil
	}
	return s.put(record)
}

// grant adds a credential to those that may use a repository's image, and reports whether it was
// new.
func grant(record *kubeletconfigv1beta1.ImagePulledRecord, repository string, c credentials.Credential) bool {
	if record.CredentialMapping == nil {
		record.CredentialMapping = map[string]kubeletconfigv1beta1.ImagePullCredentials{}
	}
	have := record.CredentialMapping[repository]
	if have.NodePodsAccessible {
		return false
	}
	if c.Source.Node() {
		record.CredentialMapping[repository] = kubeletconfigv1beta1.ImagePullCredentials{NodePodsAccessible: true}
		return true
	}
	if c.Source.Account {
		account := accountOf(c.Source)
		if slices.Contains(have.KubernetesServiceAccounts, account) {
			return false
		}
		have.KubernetesServiceAccounts = append(have.KubernetesServiceAccounts, account)
		slices.SortFunc(have.KubernetesServiceAccounts, func(a, b kubeletconfigv1beta1.ImagePullServiceAccount) int {
			return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name),
				strings.Compare(a.UID, b.UID))
		})
		record.CredentialMapping[repository] = have
		return true
	}
	secret := secretOf(c)
	if slices.Contains(have.KubernetesSecrets, secret) {
		return false
	}
	have.KubernetesSecrets = slices.DeleteFunc(have.KubernetesSecrets,
		func(old kubeletconfigv1beta1.ImagePullSecret) bool { return coordinates(old) == coordinates(secret) })
	have.KubernetesSecrets = append(have.KubernetesSecrets, secret)
	slices.SortFunc(have.KubernetesSecrets, func(a, b kubeletconfigv1beta1.ImagePullSecret) int {
		return strings.Compare(coordinates(a), coordinates(b))
	})
	record.CredentialMapping[repository] = have
	return true
}

func accountOf(s credentials.Source) kubeletconfigv1beta1.ImagePullServiceAccount {
	return kubeletconfigv1beta1.ImagePullServiceAccount{UID: s.UID, Namespace: s.Namespace, Name: s.Name}
}

func secretOf(c credentials.Credential) kubeletconfigv1beta1.ImagePullSecret {
	return kubeletconfigv1beta1.ImagePullSecret{
		UID:            c.Source.UID,
		Namespace:      c.Source.Namespace,
		Name:           c.Source.Name,
		CredentialHash: c.Hash(),
	}
}

// coordinates is the sort key of a Secret in a record.
func coordinates(s kubeletconfigv1beta1.ImagePullSecret) string {
	return s.Namespace + "/" + s.Name + "/" + s.UID
}

// Allowed reports whether a pod may use an image that is on the node without asking the registry.
// image is its name as the pod writes it, id is the runtime's, and pod is what the pod has. The
// answer is no if the records cannot be read.
func (s *Store) Allowed(image, id string, pod Pod) bool {
	allowed, accounts := s.look(image, id, pod.Own)
	return allowed || len(accounts) > 0 && slices.Contains(accounts, accountOf(pod.Account()))
}

// Pod is what a pod has to get an image.
type Pod struct {
	// Own are the matching credentials of the pod's own Secrets.
	Own []credentials.Credential
	// Account returns the pod's service account; the zero value if there is none. It may ask the API
	// server, and is called only if a service account decides.
	Account func() credentials.Source
}

// look reports whether the records allow an image for a pod's own credentials, and which service
// accounts may use the image, too.
func (s *Store) look(
	image, id string, own []credentials.Credential,
) (allowed bool, accounts []kubeletconfigv1beta1.ImagePullServiceAccount) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.load()
	record, err := s.record(id)
	if err != nil {
		s.log.Warn("Could not read who may use an image; pods have to ask the registry", "image", image, "err", err)
		return !s.policy.Verify(image, true), nil
	}
	if !s.policy.Verify(image, record != nil || s.names[fullName(image)] > 0 || s.left[fullName(image)]) {
		return true, nil
	}
	repository, err := repositoryOf(image)
	if record == nil || err != nil {
		return false, nil
	}
	for known, have := range record.CredentialMapping {
		switch {
		case !sameRepository(known, repository):
		case have.NodePodsAccessible || opens(have.KubernetesSecrets, own):
			return true, nil
		default:
			accounts = append(accounts, have.KubernetesServiceAccounts...)
		}
	}
	return false, accounts
}

// opens reports whether one of a pod's credentials is on record: one with the same content, or of
// the same Secret object, whose content may have changed since. A Secret without a UID is
// recognized by its content only.
func opens(known []kubeletconfigv1beta1.ImagePullSecret, own []credentials.Credential) bool {
	for _, c := range own {
		secret := secretOf(c)
		for _, k := range known {
			if k.CredentialHash == secret.CredentialHash && k.CredentialHash != "" ||
				secret.UID != "" && coordinates(k) == coordinates(secret) {
				return true
			}
		}
	}
	return false
}

// Adopt turns the intents of an agent that died into records, if their images exist. It is unknown
// who may use these images, so pods must have credentials for them.
func (s *Store) Adopt(images []*runtimeapi.Image) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.load()
	if len(s.left) == 0 {
		return
	}
	ids := map[string]string{}
	for _, i := range images {
		for _, name := range slices.Concat(i.RepoTags, i.RepoDigests) {
			ids[fullName(name)] = i.Id
		}
	}
	for _, image := range s.readIntents() {
		id, there := ids[fullName(image)]
		if !there || s.intents[image] > 0 { // or this agent is pulling it
			continue
		}
		record, err := s.record(id)
		if record == nil && err == nil {
			err = s.put(&kubeletconfigv1beta1.ImagePulledRecord{ImageRef: id})
		}
		if err != nil {
			s.log.Warn("Could not note that an image was pulled by an agent that died", "image", image, "err", err)
			continue
		}
		s.drop(image)
	}
}

// put writes a record. The lock is held.
func (s *Store) put(record *kubeletconfigv1beta1.ImagePulledRecord) error {
	record.TypeMeta = typeOf(kindRecord)
	record.LastUpdatedTime = metav1.NewTime(time.Now())
	return write(s.pulled, fileName(record.ImageRef), record)
}

// end records the end of a pull. After the last pull of the image, and if all is on record, it
// removes the intent. The lock is held.
func (s *Store) end(image string, onRecord bool) {
	name := fullName(image)
	if s.names[name]--; s.names[name] <= 0 {
		delete(s.names, name)
	}
	if !onRecord {
		s.left[name] = true
	}
	if s.intents[image]--; s.intents[image] > 0 {
		return
	}
	delete(s.intents, image)
	if onRecord {
		s.drop(image)
	}
}

// drop removes an intent's file. The lock is held.
func (s *Store) drop(image string) {
	if err := remove(s.pulling, fileName(image)); err != nil {
		s.left[fullName(image)] = true
		s.log.Warn("Could not remove the note of a pull", "image", image, "err", err)
		return
	}
	delete(s.left, fullName(image))
}

// load reads the intents of an earlier run, once. The lock is held.
func (s *Store) load() {
	if s.loaded {
		return
	}
	s.loaded = true
	for _, image := range s.readIntents() {
		s.left[fullName(image)] = true
	}
}
