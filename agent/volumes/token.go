package volumes

import (
	"io/fs"

	v1 "k8s.io/api/core/v1"
)

// tokenMode is the mode of a token whose readers are known by user or group; a group gets its own bits with the volume's owner.
const tokenMode fs.FileMode = 0o600

// token returns a service account token as a file. Where all containers run as one user, or the pod has an fsGroup, nobody else can read it.
func (b *bringUp) token(p *v1.ServiceAccountTokenProjection, mode fs.FileMode) (payload, error) {
	data, err := b.m.deps.Tokens.Token(b.pod, p)
	if err != nil {
		return nil, err
	}
	user := oneUser(&b.pod.Spec)
	if user != nil || b.fsGroup() != nil {
		mode = tokenMode
	}
	files := payload{}
	files.add(p.Path, content{data: data, mode: mode, owner: user})
	return files, nil
}

// oneUser returns the user that all containers run as, nil where one does not say so or they differ.
func oneUser(spec *v1.PodSpec) *int64 {
	var all *int64
	for c := range containers(spec) {
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
