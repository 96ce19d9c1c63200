package records

import (
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

	"github.com/berthd/berth/agent/credentials"
)

// Store has the intents and records of one node. Make it with [New].
type Store struct {
	pulling, pulled string // directories
	policy          Policy
	log             *slog.Logger

	mu      sync.Mutex
	loaded  bool
	intents map[string]int  // pulls under way, by the image as it is written
	names   map[string]int  // the same, by its full name
	left    map[string]bool // images, by full name, whose intent has no pull any more: an agent died, or a record could not be written
}

// New returns the store below an agent's root directory. It reads and writes nothing yet.
func New(root string, policy Policy, log *slog.Logger) *Store {
	return &Store{
		pulling: filepath.Join(root, "image_manager", "pulling"), pulled: filepath.Join(root, "image_manager", "pulled"),
		policy: policy, log: log, intents: map[string]int{}, names: map[string]int{}, left: map[string]bool{},
	}
}

// Begin notes that the image, as a pod writes it, is going to be pulled. A pull must not begin where it cannot be noted: its image would be taken for
// a preloaded one should the agent die. Each Begin is followed by one [Store.Pulled] or [Store.Failed].
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

// Failed notes that a pull did not end well.
func (s *Store) Failed(image string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end(image, true)
}

// Use is one pod's use of a pull: the image as the pod writes it, and the credential with which the registry gave it. The zero Credential stands for none: the
// registry gives the image to everybody.
type Use struct {
	Image      string
	Credential credentials.Credential
}

// Pulled notes that the pull that was begun for image gave the image that the runtime calls id, and who may use it from now on. Where that cannot be
// written, the intent stays: everybody has to show credentials.
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

// grant adds a credential to what opens a repository's image, and says whether it was new.
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
	secret := secretOf(c)
	if slices.Contains(have.KubernetesSecrets, secret) {
		return false
	}
	have.KubernetesSecrets = slices.DeleteFunc(have.KubernetesSecrets, func(old kubeletconfigv1beta1.ImagePullSecret) bool { return coordinates(old) == coordinates(secret) })
	have.KubernetesSecrets = append(have.KubernetesSecrets, secret)
	slices.SortFunc(have.KubernetesSecrets, func(a, b kubeletconfigv1beta1.ImagePullSecret) int {
		return strings.Compare(coordinates(a), coordinates(b))
	})
	record.CredentialMapping[repository] = have
	return true
}

func secretOf(c credentials.Credential) kubeletconfigv1beta1.ImagePullSecret {
	return kubeletconfigv1beta1.ImagePullSecret{UID: c.Source.UID, Namespace: c.Source.Namespace, Name: c.Source.Name, CredentialHash: c.Hash()}
}

// coordinates name a Secret, in the order in which records list them.
func coordinates(s kubeletconfigv1beta1.ImagePullSecret) string {
	return s.Namespace + "/" + s.Name + "/" + s.UID
}

// Allowed says whether a pod may use an image that is there without asking the registry: image is as the pod writes it, id the runtime's, own the
// credentials of the pod's own Secrets for it. What cannot be read counts as "no".
func (s *Store) Allowed(image, id string, own []credentials.Credential) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.load()
	record, err := s.record(id)
	if err != nil {
		s.log.Warn("Could not read who may use an image; pods have to ask the registry", "image", image, "err", err)
		return !s.policy.Verify(image, true)
	}
	if !s.policy.Verify(image, record != nil || s.names[fullName(image)] > 0 || s.left[fullName(image)]) {
		return true
	}
	repository, err := repositoryOf(image)
	if record == nil || err != nil {
		return false
	}
	for known, have := range record.CredentialMapping {
		if sameRepository(known, repository) && (have.NodePodsAccessible || opens(have.KubernetesSecrets, own)) {
			return true
		}
	}
	return false
}

// opens says whether one of a pod's credentials is on record: with the same content, or of the same Secret object, which may have been changed since. A Secret
// without a UID has nothing but its content to be known by.
func opens(known []kubeletconfigv1beta1.ImagePullSecret, own []credentials.Credential) bool {
	for _, c := range own {
		secret := secretOf(c)
		for _, k := range known {
			if k.CredentialHash == secret.CredentialHash && k.CredentialHash != "" || secret.UID != "" && coordinates(k) == coordinates(secret) {
				return true
			}
		}
	}
	return false
}

// Adopt turns the intents that an agent left when it died into records, for those of the images that came all the same. Who may use them is not known:
// pods have to show it.
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
		if !there || s.intents[image] > 0 { // or it is pulled now, by us
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

// end takes a pull off those under way, and with the last one of the image, where all is on record, its intent. The lock is held.
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
