package volumes

import (
	"fmt"
	"io/fs"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/internal/pods"
)

// tokenMode is the mode of a token if its readers are known by user or group. A group gets its own
// bits with the volume's owner.
const tokenMode fs.FileMode = 0o600

// token returns a service account token as a file. Nobody else can read it if all containers run as
// one user, or if the pod has an fsGroup.
func (b *bringUp) token(p *v1.ServiceAccountTokenProjection, mode fs.FileMode) (payload, error) {
	data, err := b.m.deps.Tokens.Token(b.pod, p)
	if err != nil {
		return nil, err
	}
	return b.readersOnly(p.Path, data, mode), nil
}

// readersOnly returns a file that nobody but its readers can read, if these are known.
func (b *bringUp) readersOnly(path string, data []byte, mode fs.FileMode) payload {
	user := oneUser(&b.pod.Spec)
	if user != nil || b.fsGroup() != nil {
		mode = tokenMode
	}
	files := payload{}
	files.add(path, content{data: data, mode: mode, owner: user})
	return files
}

// maxTrusted is how many bytes of trust bundles one pod can have. A selector matches any number of
// bundles, and each source of each volume has its own; what they select is the node's memory.
const maxTrusted = 16 << 20

// trustBundle returns the certificates that a projection names, as a file with the mode of a token.
// field is where the pod's spec has the projection.
func (b *bringUp) trustBundle(field string, p *v1.ClusterTrustBundleProjection, mode fs.FileMode) (payload, error) {
	if b.trusted <= maxTrusted { // else no bundle can change the answer
		data, err := b.m.deps.TrustBundles.TrustBundle(b.pod, p)
		if err != nil {
			return nil, err
		}
		if b.trusted += len(data); b.trusted <= maxTrusted {
			return b.readersOnly(p.Path, data, mode), nil
		}
	}
	return nil, fmt.Errorf("%s.clusterTrustBundle: the trust bundles of the pod are larger than %d MiB together: select "+
		"fewer", field, maxTrusted>>20)
}

// certificate returns the key and the certificates of source j of a volume, as the files that the
// projection names, with the mode of a token.
func (b *bringUp) certificate(
	volume string, j int, p *v1.PodCertificateProjection, mode fs.FileMode,
) (payload, error) {
	key, chain, err := b.m.deps.Certificates.Certificate(b.pod, volume, j)
	if err != nil {
		return nil, err
	}
	files := payload{}
	for path, data := range map[string][]byte{
		p.CredentialBundlePath: slices.Concat(key, chain), p.KeyPath: key, p.CertificateChainPath: chain,
	} {
		if path != "" {
			maps.Copy(files, b.readersOnly(path, data, mode))
		}
	}
	return files, nil
}

// oneUser returns the user that all containers run as. It is nil if a container does not name its
// user, or if the users differ.
func oneUser(spec *v1.PodSpec) *int64 {
	var all *int64
	for c := range pods.Containers(spec) {
		var user *int64
		if spec.SecurityContext != nil {
			user = spec.SecurityContext.RunAsUser
		}
		if c.SecurityContext != nil && c.SecurityContext.RunAsUser != nil {
			user = c.SecurityContext.RunAsUser
		}
		if user == nil || all != nil && *all != *user {
			return nil
		}
		all = user
	}
	return all
}
