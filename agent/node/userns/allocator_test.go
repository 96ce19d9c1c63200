package userns

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// testAllocator has ids for a few pods, from 2 units on.
func testAllocator(t *testing.T, pods int) *Allocator {
	t.Helper()
	return New(Config{PodsDir: t.TempDir(), MaxPods: pods, Host: func() (Range, error) {
		return Range{First: 2 * Unit, Length: uint32(pods) * Unit}, nil
	}})
}

func addPod(t *testing.T, a *Allocator, uid types.UID) {
	t.Helper()
	if err := os.Mkdir(filepath.Join(a.cfg.PodsDir, string(uid)), 0o750); err != nil {
		t.Fatal(err)
	}
}

// first returns the first id on the host of a pod.
func first(t *testing.T, a *Allocator, uid types.UID) uint32 {
	t.Helper()
	ns, err := a.Ensure(uid)
	if err != nil {
		t.Fatalf("%s: %v", uid, err)
	}
	if len(ns.Uids) != 1 || len(ns.Gids) != 1 || ns.Uids[0].ContainerId != 0 || ns.Uids[0].Length != Unit ||
		ns.Gids[0].HostId != ns.Uids[0].HostId {
		t.Errorf("%s has %v", uid, ns)
	}
	return ns.Uids[0].HostId
}

func TestEachPodHasItsOwn(t *testing.T) {
	a := testAllocator(t, 3)
	for i, uid := range []types.UID{"a", "b", "c"} {
		addPod(t, a, uid)
		if got, want := first(t, a, uid), uint32(2+i)*Unit; got != want || first(t, a, uid) != want {
			t.Errorf("%s begins at %d, want %d, always", uid, got, want)
		}
	}
	addPod(t, a, "d")
	if _, err := a.Ensure("d"); err == nil ||
		!strings.Contains(err.Error(), "could not find an empty slot to allocate a user namespace") {
		t.Errorf("one pod too many: %v", err)
	}
	// The range of a pod that is gone is free for another pod.
	if err := os.RemoveAll(filepath.Join(a.cfg.PodsDir, "b")); err != nil {
		t.Fatal(err)
	}
	if got := first(t, a, "d"); got != 3*Unit {
		t.Errorf("d begins at %d", got)
	}
	// A new allocator reads all ranges from the disk.
	again := New(a.cfg)
	if a, c := first(t, again, "a"), first(t, again, "c"); a != 2*Unit || c != 4*Unit {
		t.Errorf("after a restart a begins at %d and c at %d", a, c)
	}
}

func TestFileIsTheKubelets(t *testing.T) {
	a := testAllocator(t, 2)
	addPod(t, a, "a")
	first(t, a, "a")
	data, err := os.ReadFile(filepath.Join(a.cfg.PodsDir, "a", "userns"))
	const want = `{"uidMappings":[{"hostId":131072,"containerId":0,"length":65536}],"gidMappings":[{"hostId":131072,"containerId":0,"length":65536}]}`
	if err != nil || string(data) != want {
		t.Errorf("%s, %v", data, err)
	}
	if entries, err := os.ReadDir(filepath.Join(a.cfg.PodsDir, "a")); err != nil || len(entries) != 1 {
		t.Errorf("the pod's directory has %v, %v", entries, err)
	}
}

func TestManyAtOnce(t *testing.T) {
	const pods = 30
	a := testAllocator(t, pods)
	var mu sync.Mutex
	seen := map[uint32]types.UID{}
	var wg sync.WaitGroup
	for i := range pods {
		uid := types.UID(fmt.Sprint("pod-", i))
		addPod(t, a, uid)
		wg.Go(func() {
			ns, err := a.Ensure(uid)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Errorf("%s: %v", uid, err)
				return
			}
			if other, taken := seen[ns.Uids[0].HostId]; taken {
				t.Errorf("%s and %s have the same ids", uid, other)
			}
			seen[ns.Uids[0].HostId] = uid
		})
	}
	wg.Wait()
}

func TestBadFiles(t *testing.T) {
	one := func(host, container, length uint64) string {
		return fmt.Sprintf(`[{"hostId":%d,"containerId":%d,"length":%d}]`, host, container, length)
	}
	file := func(uids, gids string) string { return `{"uidMappings":` + uids + `,"gidMappings":` + gids + `}` }
	good := one(2*Unit, 0, Unit)
	for name, text := range map[string]string{
		"empty":             "",
		"half":              `{"uidMappings":[{"hostId":131072`,
		"no mappings":       "{}",
		"two":               file(strings.Replace(good, "}]", "},"+good[1:], 1), good),
		"they differ":       file(good, one(3*Unit, 0, Unit)),
		"the host's root":   file(one(0, 0, Unit), one(0, 0, Unit)),
		"the host's users":  file(one(1000, 0, Unit), one(1000, 0, Unit)),
		"not from 0":        file(one(2*Unit, 1, Unit), one(2*Unit, 1, Unit)),
		"none":              file(one(2*Unit, 0, 0), one(2*Unit, 0, 0)),
		"too large numbers": file(one(1<<40, 0, Unit), one(1<<40, 0, Unit)),
		"too large":         strings.Repeat(" ", maxMappings) + file(good, good),
	} {
		a := testAllocator(t, 2)
		addPod(t, a, "bad")
		path := filepath.Join(a.cfg.PodsDir, "bad", "userns")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if ns, err := a.Ensure("bad"); err == nil ||
			!strings.HasPrefix(err.Error(), "user namespace: invalid user namespace") {
			t.Errorf("%s: %v, %v", name, ns, err)
		}
		if after, err := os.ReadFile(path); err != nil || string(after) != text {
			t.Errorf("%s: the file was changed", name)
		}
		// The ids of this pod are not known, so no other pod gets ids until it is gone.
		addPod(t, a, "good")
		if ns, err := a.Ensure("good"); err == nil ||
			!strings.Contains(err.Error(), "the pod with UID bad has is not known") {
			t.Errorf("%s: another pod got %v, %v", name, ns, err)
		}
		if err := os.RemoveAll(filepath.Join(a.cfg.PodsDir, "bad")); err != nil {
			t.Fatal(err)
		}
		if got := first(t, a, "good"); got != 2*Unit {
			t.Errorf("%s: another pod begins at %d", name, got)
		}
	}
}

// TestDamageIsMended: if a pod's file cannot be read, its sandboxes say which ids it has. No other
// pod gets them, and the pod keeps them.
func TestDamageIsMended(t *testing.T) {
	away := errors.New("runtime away")
	for name, test := range map[string]struct {
		used        []Range
		err         error
		other, own  uint32 // the first ids of the other pod and of the pod itself; 0 for none
		otherBefore bool   // whether the other pod asks first
	}{
		"its sandbox has some": {
			used:  []Range{{2 * Unit, Unit}, {2 * Unit, Unit}},
			other: 3 * Unit,
			own:   2 * Unit,
		},
		"the other one asks first": {
			used:        []Range{{2 * Unit, Unit}},
			other:       3 * Unit,
			own:         2 * Unit,
			otherBefore: true,
		},
		"it has no sandbox":             {other: 3 * Unit, own: 2 * Unit},
		"no sandbox, and it comes late": {other: 2 * Unit, own: 3 * Unit, otherBefore: true},
		"nobody knows":                  {err: away},
		"two sandboxes differ":          {used: []Range{{2 * Unit, Unit}, {3 * Unit, Unit}}, other: 4 * Unit},
	} {
		a := testAllocator(t, 3)
		addPod(t, a, "bad")
		if err := os.WriteFile(filepath.Join(a.cfg.PodsDir, "bad", "userns"), []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(a.cfg.PodsDir, "stray"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		a.cfg.Used = func(uid types.UID) ([]Range, error) {
			if uid != "bad" {
				t.Errorf("%s: asked about %s", name, uid)
			}
			return test.used, test.err
		}
		addPod(t, a, "good")
		check := func(uid types.UID, want uint32) {
			ns, err := a.Ensure(uid)
			switch {
			case want == 0 && err == nil:
				t.Errorf("%s: %s got %v", name, uid, ns)
			case want != 0 && (err != nil || ns.Uids[0].HostId != want || ns.Uids[0].Length != Unit):
				t.Errorf("%s: %s got %v, %v, want ids from %d", name, uid, ns, err, want)
			}
		}
		if test.otherBefore {
			check("good", test.other)
		}
		check("bad", test.own)
		check("good", test.other)
		a = New(a.cfg) // a new allocator reads it from the disk
		check("bad", test.own)
		check("good", test.other)
	}
}

func TestLinksAreNotFollowed(t *testing.T) {
	a := testAllocator(t, 2)
	outside := filepath.Join(t.TempDir(), "outside")
	if err := os.WriteFile(outside, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	addPod(t, a, "a")
	if err := os.Symlink(outside, filepath.Join(a.cfg.PodsDir, "a", "userns")); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Ensure("a"); err == nil {
		t.Error("a link was read")
	}
}

func TestNoDirectory(t *testing.T) {
	a := testAllocator(t, 2)
	if _, err := a.Ensure("nobody"); err == nil {
		t.Error("a pod without a directory got ids that are written nowhere")
	}
}

func TestHostsRangeMustFit(t *testing.T) {
	for name, c := range map[string]struct {
		host Range
		ids  uint32
		err  string
	}{
		"good":              {host: Range{Unit, 110 * Unit}},
		"all but the first": {host: Range{Unit, math.MaxUint32 - Unit + 1}},
		"more ids for each": {host: Range{2 * Unit, 220 * Unit}, ids: 2 * Unit},
		"from 0": {
			host: Range{0, 110 * Unit}, err: "kubelet user assigned ID 0 must be greater or equal to 65536",
		},
		"not aligned": {
			host: Range{100000, 110 * Unit}, err: "kubelet user assigned ID 100000 is not a multiple of 65536",
		},
		"a rest": {
			host: Range{Unit, 110*Unit + 1}, err: "kubelet user assigned IDs length 7208961 is not a multiple of 65536",
		},
		"too few": {
			host: Range{Unit, 109 * Unit}, err: "kubelet user assigned IDs are not enough to support 110 pods",
		},
		"no whole unit": {
			host: Range{Unit, 110 * Unit},
			ids:  1000,
			err:  "kubelet user namespace length 1000 is not a multiple of 65536",
		},
	} {
		a := New(Config{
			PodsDir:   t.TempDir(),
			IDsPerPod: c.ids,
			MaxPods:   110,
			Host:      func() (Range, error) { return c.host, nil },
		})
		addPod(t, a, "a")
		_, err := a.Ensure("a")
		if (err != nil) != (c.err != "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestHostThatDoesNotAnswerIsAskedAgain(t *testing.T) {
	asked := 0
	a := testAllocator(t, 1)
	a.cfg.Host = func() (Range, error) {
		if asked++; asked == 1 {
			return Range{}, errors.New("no answer")
		}
		return Range{First: Unit, Length: Unit}, nil
	}
	addPod(t, a, "a")
	if _, err := a.Ensure("a"); err == nil || !strings.Contains(err.Error(), "no answer") {
		t.Errorf("the first time: %v", err)
	}
	if got := first(t, a, "a"); got != Unit || asked != 2 {
		t.Errorf("it begins at %d, asked %d times", got, asked)
	}
}
