package volumes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// issued is a Tokens that issues one token after the other, or fails.
type issued struct {
	n   int
	err error
}

func (i *issued) Token(_ *v1.Pod, p *v1.ServiceAccountTokenProjection) ([]byte, error) {
	return fmt.Appendf(nil, "%s-%d", p.Audience, i.n), i.err
}

func tokenVolume(bits *int32) v1.Volume {
	return v1.Volume{
		Name: "access",
		VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{
			DefaultMode: bits,
			Sources: []v1.VolumeProjection{
				{ServiceAccountToken: &v1.ServiceAccountTokenProjection{Audience: "vault", Path: "dir/token"}},
				{ConfigMap: &v1.ConfigMapProjection{
					LocalObjectReference: v1.LocalObjectReference{Name: "kube-root-ca.crt"},
					Items:                []v1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
				}},
			},
		}},
	}
}

func TestTokenModes(t *testing.T) {
	needRoot(t)
	user := func(id int64) *v1.SecurityContext { return &v1.SecurityContext{RunAsUser: &id} }
	for _, c := range []struct {
		name       string
		pod        *v1.PodSecurityContext
		containers []*v1.SecurityContext
		bits       *int32
		mode       uint32
		uid, gid   uint32
	}{
		{"anybody", nil, []*v1.SecurityContext{nil}, nil, 0o644, 0, 0},
		{"as the volume says", nil, []*v1.SecurityContext{nil}, ptr.To(int32(0o400)), 0o400, 0, 0},
		{
			"the pod's user", &v1.PodSecurityContext{RunAsUser: ptr.To(int64(7))},
			[]*v1.SecurityContext{nil, nil},
			nil,
			0o600, 7, 0,
		},
		{"one user of all containers", nil, []*v1.SecurityContext{user(8), user(8)}, nil, 0o600, 8, 0},
		{
			"a container of another user", &v1.PodSecurityContext{RunAsUser: ptr.To(int64(7))},
			[]*v1.SecurityContext{nil, user(8)},
			nil, 0o644, 0, 0,
		},
		{"a container of no known user", nil, []*v1.SecurityContext{user(8), nil}, nil, 0o644, 0, 0},
		{"a group", &v1.PodSecurityContext{FSGroup: ptr.To(int64(9))}, []*v1.SecurityContext{nil}, nil, 0o640, 0, 9},
		{
			"a user and a group", &v1.PodSecurityContext{RunAsUser: ptr.To(int64(7)), FSGroup: ptr.To(int64(9))},
			[]*v1.SecurityContext{nil},
			nil, 0o640, 7, 9,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			objects := newStore()
			objects.setConfigMap("kube-root-ca.crt", map[string]string{"ca.crt": "certificate"})
			m := testManager(t.TempDir(), objects, nil)
			m.deps.Tokens = &issued{}
			pod := testPod(tokenVolume(c.bits))
			pod.Spec = v1.PodSpec{Volumes: pod.Spec.Volumes, SecurityContext: c.pod}
			for i, sc := range c.containers {
				pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{
					Name:            fmt.Sprint(i),
					SecurityContext: sc,
					VolumeMounts:    []v1.VolumeMount{{Name: "access", MountPath: "/access"}},
				})
			}
			must(t, m.EnsureDirs(t.Context(), pod))
			mounts, err := m.Ensure(t.Context(), pod, Dynamic{})
			must(t, err)
			defer func() { must(t, m.Remove(t.Context(), pod.UID)) }()
			var stat unix.Stat_t
			must(t, unix.Stat(filepath.Join(mounts["access"].HostPath, "dir", "token"), &stat))
			if stat.Mode&0o777 != c.mode || stat.Uid != c.uid || stat.Gid != c.gid {
				t.Errorf("the token is %o of %d:%d, want %o of %d:%d", stat.Mode&0o777, stat.Uid, stat.Gid, c.mode,
					c.uid, c.gid)
			}
			must(t, unix.Stat(filepath.Join(mounts["access"].HostPath, "ca.crt"), &stat))
			if stat.Uid != 0 {
				t.Errorf("the certificate is %d's", stat.Uid)
			}
		})
	}
}

func TestTokensAreReplaced(t *testing.T) {
	needRoot(t)
	objects, tokens := newStore(), &issued{err: errors.New("failed to fetch token: refused")}
	objects.setConfigMap("kube-root-ca.crt", map[string]string{"ca.crt": "certificate"})
	m := testManager(t.TempDir(), objects, nil)
	m.deps.Tokens = tokens
	pod := testPod(tokenVolume(nil))
	must(t, m.EnsureDirs(t.Context(), pod))
	defer func() { must(t, m.Remove(t.Context(), pod.UID)) }()
	mounts, err := m.Ensure(t.Context(), pod, Dynamic{})
	if want := `MountVolume.SetUp failed for volume "access" : failed to fetch token: refused`; len(mounts) != 0 ||
		err == nil || err.Error() != want {
		t.Errorf("%v, %v", mounts, err)
	}
	tokens.err = fmt.Errorf("%w: token", ErrUnderWay)
	if mounts, err := m.Ensure(t.Context(), pod, Dynamic{}); len(mounts) != 0 || !errors.Is(err, ErrUnderWay) {
		t.Errorf("%v, %v", mounts, err)
	}
	tokens.err = nil
	for tokens.n = range 2 {
		mounts, err = m.Ensure(t.Context(), pod, Dynamic{})
		must(t, err)
		checkHolds(t, mounts["access"].HostPath,
			files("dir/token", fmt.Sprintf("vault-%d", tokens.n), "ca.crt", "certificate"))
	}
	tokens.err = errors.New("expired")
	if mounts, err = m.Ensure(t.Context(), pod, Dynamic{}); err == nil || len(mounts) != 1 {
		t.Errorf("a token that cannot be replaced takes the volume away: %v, %v", mounts, err)
	}
}

// trusted is a TrustBundles with one answer.
type trusted string

func (b trusted) TrustBundle(_ *v1.Pod, p *v1.ClusterTrustBundleProjection) ([]byte, error) {
	return []byte(*p.Name + " " + string(b)), nil
}

// A trust bundle is a file of its volume, with the mode of a token, and follows the cluster's.
func TestTrustBundleVolume(t *testing.T) {
	needRoot(t)
	m := testManager(t.TempDir(), newStore(), nil)
	pod := testPod(v1.Volume{
		Name: "access",
		VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
			{ClusterTrustBundle: &v1.ClusterTrustBundleProjection{Name: ptr.To("roots"), Path: "dir/roots.pem"}},
		}}},
	})
	pod.Spec.SecurityContext = &v1.PodSecurityContext{RunAsUser: ptr.To(int64(7))}
	must(t, m.EnsureDirs(t.Context(), pod))
	defer func() { must(t, m.Remove(t.Context(), pod.UID)) }()
	for _, content := range []string{"a", "b"} {
		m.deps.TrustBundles = trusted(content)
		mounts, err := m.Ensure(t.Context(), pod, Dynamic{})
		must(t, err)
		path := filepath.Join(mounts["access"].HostPath, "dir", "roots.pem")
		data, err := os.ReadFile(path)
		must(t, err)
		var stat unix.Stat_t
		must(t, unix.Stat(path, &stat))
		if string(data) != "roots "+content || stat.Mode&0o777 != 0o600 || stat.Uid != 7 {
			t.Errorf("%q, mode %o, user %d", data, stat.Mode&0o777, stat.Uid)
		}
	}
}

// The trust bundles of a pod have a bound, over all its volumes and their sources. A volume that is
// up keeps what it has.
func TestTrustBundlesHaveABound(t *testing.T) {
	needRoot(t)
	m := testManager(t.TempDir(), newStore(), nil)
	volume := func(name string, sources int) v1.Volume {
		projected := &v1.ProjectedVolumeSource{}
		for i := range sources {
			projected.Sources = append(projected.Sources, v1.VolumeProjection{
				ClusterTrustBundle: &v1.ClusterTrustBundleProjection{Name: ptr.To("roots"), Path: fmt.Sprintf("%d.pem", i)},
			})
		}
		return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{Projected: projected}}
	}
	pod := testPod(volume("first", 2), volume("second", 2))
	must(t, m.EnsureDirs(t.Context(), pod))
	defer func() { must(t, m.Remove(t.Context(), pod.UID)) }()
	const quarter = maxTrusted/4 - len("roots ")
	m.deps.TrustBundles = trusted(strings.Repeat("a", quarter))
	mounts, err := m.Ensure(t.Context(), pod, Dynamic{})
	must(t, err)
	m.deps.TrustBundles = trusted(strings.Repeat("b", quarter+1))
	_, err = m.Ensure(t.Context(), pod, Dynamic{})
	const want = `MountVolume.SetUp failed for volume "second" : spec.volumes[1].projected.sources[1].clusterTrustBundle: ` +
		"the trust bundles of the pod are larger than 16 MiB together: select fewer"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	for name, letter := range map[string]string{"first": "b", "second": "a"} {
		data, err := os.ReadFile(filepath.Join(mounts[name].HostPath, "1.pem"))
		must(t, err)
		if got := string(data[len(data)-1:]); got != letter {
			t.Errorf("volume %s has %q, want %q", name, got, letter)
		}
	}
	m.deps.TrustBundles = trusted("c")
	_, err = m.Ensure(t.Context(), pod, Dynamic{})
	must(t, err)
}
