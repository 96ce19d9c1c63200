package claims

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// local is an Objects of fixed objects.
type local struct {
	claims  map[string]*v1.PersistentVolumeClaim
	volumes []*v1.PersistentVolume
}

func (l *local) Claim(namespace, name string) *v1.PersistentVolumeClaim {
	return l.claims[namespace+"/"+name]
}
func (l *local) PersistentVolumes() []*v1.PersistentVolume { return l.volumes }

func (l *local) add(claims ...*v1.PersistentVolumeClaim) {
	for _, c := range claims {
		l.claims[Key(c)] = c
	}
}

type fixture struct {
	*local
	dir  string
	pods map[types.UID]bool
}

func newFixture(t *testing.T, volumes ...*v1.PersistentVolume) *fixture {
	t.Helper()
	return &fixture{
		dir:   t.TempDir(),
		pods:  map[types.UID]bool{},
		local: &local{claims: map[string]*v1.PersistentVolumeClaim{}, volumes: volumes},
	}
}

func (f *fixture) file() string { return filepath.Join(f.dir, "deep", "claims.json") }

// binder returns a new one, as after a restart.
func (f *fixture) binder() *Binder {
	return New(Config{File: f.file(), PodExists: func(uid types.UID) bool { return f.pods[uid] }}, f.local)
}

func pod(uid string) *v1.Pod {
	return &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: types.UID(uid)}}
}

func resolves(t *testing.T, b *Binder, claim, want string) {
	t.Helper()
	got, err := b.Resolve(pod("1"), claim)
	switch {
	case err != nil && !strings.HasPrefix(err.Error(), want):
		t.Errorf("claim %s: error %q, want %q", claim, err, want)
	case err == nil && got.Name != want:
		t.Errorf("claim %s has %q, want %q", claim, got.Name, want)
	}
}

// A later claim or volume, that would come first if all were bound anew, changes nothing; nor does
// a restart.
func TestBindingsStay(t *testing.T) {
	f := newFixture(t, pv("v1"), pv("v2"))
	f.add(pvc("m"))
	resolves(t, f.binder(), "m", "v1")
	f.add(pvc("a"))
	f.volumes = append(f.volumes, pv("v0", size("500Mi")))
	b := f.binder()
	resolves(t, b, "a", "v0")
	resolves(t, b, "m", "v1")
	resolves(t, b, "m", "v1")
	f.volumes = nil // the volumes' manifests are not read yet, or bad
	resolves(t, f.binder(), "m", `bound claim has lost its PersistentVolume`)
	f.volumes = []*v1.PersistentVolume{pv("v0"), pv("v1"), pv("v2")}
	resolves(t, f.binder(), "m", "v1")
	resolves(t, b, "none", `persistentvolumeclaim "none" not found`)
}

// A claim that goes leaves its volume behind: it gets it back when it returns, and nobody else
// does.
func TestClaimGoesAndReturns(t *testing.T) {
	f := newFixture(t, pv("v1"))
	mine, others := pvc("mine"), pvc("others")
	f.add(mine)
	b := f.binder()
	resolves(t, b, "mine", "v1")
	delete(f.claims, "ns/mine")
	f.add(others)
	resolves(t, b, "others", "PVC is not bound")
	f.add(mine)
	resolves(t, b, "mine", "v1")
	resolves(t, b, "others", "PVC is not bound")
}

// A volume whose manifest goes is free when it returns.
func TestRelease(t *testing.T) {
	f := newFixture(t, pv("v1"))
	f.add(pvc("mine"), pvc("others"))
	b := f.binder()
	resolves(t, b, "mine", "v1")
	for range 2 {
		if err := b.Release("v1"); err != nil {
			t.Fatal(err)
		}
	}
	resolves(t, f.binder(), "others", "v1")
}

// A claim that is moved to another volume by name leaves the old one to nobody.
func TestClaimMoves(t *testing.T) {
	f := newFixture(t, pv("v1"), pv("v2"))
	f.add(pvc("mine"))
	resolves(t, f.binder(), "mine", "v1")
	f.add(pvc("mine", wants("v2")), pvc("others"))
	b := f.binder()
	resolves(t, b, "mine", "v2")
	resolves(t, b, "others", "PVC is not bound")
	f.add(pvc("mine")) // and without the name it stays where it is
	resolves(t, f.binder(), "mine", "v2")
}

func TestOncePod(t *testing.T) {
	alone := func(c *v1.PersistentVolumeClaim) {
		c.Spec.AccessModes = []v1.PersistentVolumeAccessMode{v1.ReadWriteOncePod}
	}
	f := newFixture(t,
		pv("v1", func(p *v1.PersistentVolume) { p.Spec.AccessModes = append(p.Spec.AccessModes, v1.ReadWriteOncePod) }))
	f.add(pvc("c", alone))
	f.pods["1"] = true
	for range 2 {
		if _, err := f.binder().Resolve(pod("1"), "c"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.binder().Resolve(pod("2"), "c"); err == nil ||
		!strings.Contains(err.Error(), "ReadWriteOncePod access mode") {
		t.Errorf("a second pod: %v", err)
	}
	f.pods["1"] = false
	if _, err := f.binder().Resolve(pod("2"), "c"); err != nil {
		t.Errorf("after the first pod: %v", err)
	}
}

// Many pods that ask at once for many claims never share a volume.
func TestResolveAtOnce(t *testing.T) {
	f := newFixture(t)
	for _, name := range strings.Split("abcdefghijklmnop", "") {
		f.volumes = append(f.volumes, pv("v"+name))
		f.add(pvc(name))
	}
	b := f.binder()
	var mu sync.Mutex
	owners := map[string]string{}
	var wg sync.WaitGroup
	for _, name := range strings.Split("ponmlkjihgfedcbaabcdefgh", "") {
		wg.Go(func() {
			got, err := b.Resolve(pod(name), name)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if owner := owners[got.Name]; owner != "" && owner != name {
				t.Errorf("%s is both %s's and %s's", got.Name, owner, name)
			}
			owners[got.Name] = name
		})
	}
	wg.Wait()
	if len(owners) != 16 {
		t.Errorf("%d volumes are bound", len(owners))
	}
}

// What cannot be read is no empty file: it could give a claim another's data.
func TestUnreadable(t *testing.T) {
	for _, text := range []string{"{", `{"version": 99}`, ""} {
		f := newFixture(t, pv("v1"))
		f.add(pvc("mine"))
		if err := os.MkdirAll(filepath.Dir(f.file()), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(f.file(), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		resolves(t, f.binder(), "mine", "read the bindings of claims in "+f.file())
		if data, _ := os.ReadFile(f.file()); string(data) != text {
			t.Errorf("the file was changed to %q", data)
		}
	}
}

// A binding that cannot be written is no binding.
func TestUnwritable(t *testing.T) {
	f := newFixture(t, pv("v1"))
	f.add(pvc("mine"))
	if err := os.WriteFile(filepath.Join(f.dir, "deep"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	b := f.binder()
	if _, err := b.Resolve(pod("1"), "mine"); err == nil {
		t.Error("bound without a record")
	}
}
