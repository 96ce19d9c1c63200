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

// Source says where a credential comes from. The zero value is the node: its files or a plugin.
type Source struct {
	// UID, Namespace and Name are the Secret's, or the service account's.
	UID, Namespace, Name string
	// Account says that a plugin gave the credential for a service account.
	Account bool
}

// Node reports whether every pod of the node may use the credential.
func (s Source) Node() bool { return s.Name == "" }

// String is the name of the Secret or of the service account, or "node".
func (s Source) String() string {
	if s.Node() {
		return "node"
	}
	return s.Namespace + "/" + s.Name
}

// Credential is one way to log in to a registry.
type Credential struct {
	Username, Password, Email Secret
	// IdentityToken, if not empty, is exchanged for an access token. The password is then not used.
	IdentityToken Secret
	// Source is where the credential comes from.
	Source Source
}

// Hash identifies the credential's content. It is the SHA-256, in hex, that the kubelet writes into
// its records of pulled images. Equal content has equal hashes, whatever its source is.
func (c Credential) Hash() string {
	// The order and the names of the fields are those of the kubelet's own type, because its JSON
	// is hashed.
	data, err := json.Marshal(struct {
		Username      string `json:"username,omitempty"`
		Password      string `json:"password,omitempty"`
		Email         string `json:"email,omitempty"`
		IdentityToken string `json:"identitytoken,omitempty"`
	}{c.Username.Reveal(), c.Password.Reveal(), c.Email.Reveal(), c.IdentityToken.Reveal()})
	if err != nil {
		return "" // strings can always be marshaled
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Auth converts the credential to the runtime's type.
func (c Credential) Auth() *runtimeapi.AuthConfig {
	return &runtimeapi.AuthConfig{
		Username:      c.Username.Reveal(),
		Password:      c.Password.Reveal(),
		IdentityToken: c.IdentityToken.Reveal(),
	}
}

// shortest is the shortest text that is removed from messages. A shorter text is too common.
const shortest = 3

// Scrub removes the secrets of the credentials from a message: passwords, tokens, and a user name
// with its password in the form that registries receive. It also removes a user's name, unless the
// name is part of keep, which is the image's name that the message is about.
func Scrub(message, keep string, list []Credential) string {
	var old []string
	for _, c := range list {
		user, password := c.Username.Reveal(), c.Password.Reveal()
		pair := user + ":" + password
		old = append(old, base64.StdEncoding.EncodeToString([]byte(pair)),
			base64.RawStdEncoding.EncodeToString([]byte(pair)), pair, password, c.IdentityToken.Reveal())
		if !strings.Contains(keep, user) {
			old = append(old, user)
		}
	}
	return scrub(message, old)
}

// scrub removes texts from a message, long ones first, because a short text may be part of a long
// one.
func scrub(message string, texts []string) string {
	pairs := make([]string, 0, 2*len(texts))
	for _, t := range sortedBy(texts, func(a, b string) int { return cmp.Compare(len(b), len(a)) }) {
		if len(t) >= shortest {
			pairs = append(pairs, t, redacted)
		}
	}
	return strings.NewReplacer(pairs...).Replace(message)
}
