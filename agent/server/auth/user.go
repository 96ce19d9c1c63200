package auth

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"slices"

	authenticationv1 "k8s.io/api/authentication/v1"
)

// Names that the API gives to users without a name, and groups that it gives to all users.
const (
	anonymousName        = "system:anonymous"
	authenticatedGroup   = "system:authenticated"
	unauthenticatedGroup = "system:unauthenticated"
	// credentialKey is the extra attribute that distinguishes the certificates of one user.
	credentialKey = "authentication.kubernetes.io/credential-id"
)

// User is the sender of a request, in the API's terms.
type User struct {
	Name, UID string
	Groups    []string
	Extra     map[string][]string
}

// anonymous returns the user of requests without credentials.
func anonymous() User {
	return User{Name: anonymousName, Groups: []string{unauthenticatedGroup}}
}

// userOfCertificate returns the user of a client certificate: the common name, and the
// organizations as groups.
func userOfCertificate(cert *x509.Certificate) User {
	sum := sha256.Sum256(cert.Raw)
	return authenticated(User{
		Name: cert.Subject.CommonName, Groups: slices.Clone(cert.Subject.Organization),
		Extra: map[string][]string{credentialKey: {"X509SHA256=" + hex.EncodeToString(sum[:])}},
	})
}

// userOfReview returns the user of a token.
func userOfReview(info authenticationv1.UserInfo) User {
	u := User{Name: info.Username, UID: info.UID, Groups: slices.Clone(info.Groups), Extra: map[string][]string{}}
	for key, values := range info.Extra {
		u.Extra[key] = values
	}
	return authenticated(u)
}

// authenticated adds the group of all users who are somebody.
func authenticated(u User) User {
	if u.Name != anonymousName && !slices.Contains(u.Groups, authenticatedGroup) &&
		!slices.Contains(u.Groups, unauthenticatedGroup) {
		u.Groups = append(u.Groups, authenticatedGroup)
	}
	return u
}
