package credentials

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"strings"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// Source says where a credential comes from. The zero value is the node: its files, or a plugin.
type Source struct {
	// UID, Namespace and Name are the Secret's.
	UID, Namespace, Name string
}

// Node says that every pod of the node may use the credential.
func (s Source) Node() bool { return s.Name == "" }

// String names the Secret, or the node.
func (s Source) String() string {
	if s.Node() {
		return "node"
	}
	return s.Namespace + "/" + s.Name
}

// Credential is one way to log in to a registry.
type Credential struct {
	Username, Password, Email Secret
	// IdentityToken, where it is set, is exchanged for an access token instead of the password.
	IdentityToken Secret
	// Source is where it comes from.
	Source Source
}

// Hash identifies the credential's content: the SHA-256, in hex, that the kubelet writes into its records of pulled images. Equal content has
// equal hashes, wherever it comes from.
func (c Credential) Hash() string {
	// The order and the names of the fields are those of the kubelet's own type, whose JSON is hashed.
	data, err := json.Marshal(struct {
		Username      string `json:"username,omitempty"`
		Password      string `json:"password,omitempty"`
		Email         string `json:"email,omitempty"`
		IdentityToken string `json:"identitytoken,omitempty"`
	}{c.Username.Reveal(), c.Password.Reveal(), c.Email.Reveal(), c.IdentityToken.Reveal()})
	if err != nil {
		return "" // strings always marshal
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Auth returns the credential as the runtime takes it.
func (c Credential) Auth() *runtimeapi.AuthConfig {
	return &runtimeapi.AuthConfig{Username: c.Username.Reveal(), Password: c.Password.Reveal(), IdentityToken: c.IdentityToken.Reveal()}
}

// shortest is the length below which a text is too common to be taken out of messages.
const shortest = 3

// Scrub takes from a message everything that the credentials keep secret: passwords, tokens, and a user name with its password as registries are
// sent them. A user's name goes, too, unless it is part of keep, which is what the message is about: an image's name.
func Scrub(message, keep string, list []Credential) string {
	var old []string
	for _, c := range list {
		user, password := c.Username.Reveal(), c.Password.Reveal()
		pair := user + ":" + password
		old = append(old, base64.StdEncoding.EncodeToString([]byte(pair)), base64.RawStdEncoding.EncodeToString([]byte(pair)), pair, password, c.IdentityToken.Reveal())
		if !strings.Contains(keep, user) {
			old = append(old, user)
		}
	}
	return scrub(message, old)
}

// scrub takes texts out of a message, long ones first, as a short one may be part of them.
func scrub(message string, texts []string) string {
	pairs := make([]string, 0, 2*len(texts))
	for _, t := range sortedBy(texts, func(a, b string) int { return cmp.Compare(len(b), len(a)) }) {
		if len(t) >= shortest {
			pairs = append(pairs, t, redacted)
		}
	}
	return strings.NewReplacer(pairs...).Replace(message)
}
