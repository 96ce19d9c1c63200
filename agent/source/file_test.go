package source

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berthd/berth/internal/pods"
	"github.com/berthd/berth/test/leaks"
)

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

// noRescan is so long that whatever a test sees came by a notice of the kernel.
const noRescan = time.Hour

// tooLong is when a test gives up; nothing depends on how long things take otherwise.
const tooLong = 30 * time.Second

// rig is a running file source.
type rig struct {
	t    *testing.T
	dir  string
	mu   sync.Mutex
	last Snapshot
	seen int
	wake chan struct{}
	stop func()
}

func podManifest(name, image string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec: {containers: [{name: c, image: %s}]}\n",
		name, image)
}

func start(t *testing.T, path string, change ...func(*FileConfig, *FileDeps)) *rig {
	t.Helper()
	r := &rig{t: t, dir: path, wake: make(chan struct{}, 1)}
	cfg := FileConfig{Path: path, NodeName: "n", Rescan: noRescan}
	deps := FileDeps{Logger: slog.New(slog.DiscardHandler)}
	out := func(s Snapshot) {
		r.mu.Lock()
		r.last, r.seen = s, r.seen+1
		r.mu.Unlock()
		select {
		case r.wake <- struct{}{}:
		default:
		}
	}
	for _, c := range change {
		c(&cfg, &deps)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- NewFile(cfg, deps).Run(ctx, out) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run returned %v", err)
		}
	})
	t.Cleanup(r.stop)
	r.until("the first snapshot", func(Snapshot) bool { return true })
	return r
}

// until waits for a snapshot that is as wanted, and returns it.
func (r *rig) until(what string, ok func(Snapshot) bool) Snapshot {
	r.t.Helper()
	timeout := time.After(tooLong)
	for {
		r.mu.Lock()
		last, seen := r.last, r.seen
		r.mu.Unlock()
		if seen > 0 && ok(last) {
			return last
		}
		select {
		case <-r.wake:
		case <-timeout:
			r.t.Fatalf("never saw %s; the last snapshot is %s", what, describe(last))
		}
	}
}

// pods waits until exactly these pods are wanted, as name=image.
func (r *rig) pods(want ...string) Snapshot {
	r.t.Helper()
	return r.until("pods "+strings.Join(want, " "), func(s Snapshot) bool { return slices.Equal(podsOf(s), want) })
}

// refused waits for a result that refuses a file, with a message that has text in it.
func (r *rig) refused(file, text string) Snapshot {
	r.t.Helper()
	return r.until(file+" refused: "+text, func(s Snapshot) bool {
		for _, v := range s.Results {
			if filepath.Base(v.File) == file && !v.Accepted && strings.Contains(v.Message, text) {
				return true
			}
		}
		return false
	})
}

func podsOf(s Snapshot) []string {
	var out []string
	for _, p := range s.Pods {
		out = append(out, strings.TrimSuffix(p.Name, "-n")+"="+p.Spec.Containers[0].Image)
	}
	slices.Sort(out)
	return out
}

func describe(s Snapshot) string {
	out := fmt.Sprintf("ready=%v pods=%v", s.Ready, podsOf(s))
	for _, v := range s.Results {
		out += "\n  " + filepath.Base(v.File) + " " + summary(v)
	}
	return out
}

// write writes a file in one go, as `cp` does: create, write, close.
func (r *rig) write(name, data string) {
	r.t.Helper()
	put(r.t, filepath.Join(r.dir, name), data)
}

func put(t *testing.T, path, data string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(data), 0o644); err != nil {
		t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func privateDir(t *testing.T) string {
	dir := filepath.Join(t.TempDir(), "manifests")
	must(t, os.Mkdir(dir, 0o755))
	return dir
}

func TestFileFollowsTheDirectory(t *testing.T) {
	dir := privateDir(t)
	put(t, filepath.Join(dir, "a.yaml"), podManifest("a", "i:1"))
	r := start(t, dir)
	if s := r.pods("a=i:1"); !s.Ready || s.Source != pods.SourceFile {
		t.Errorf("%s", describe(s))
	}
	r.write("b.json",
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"b"},"spec":{"containers":[{"name":"c","image":"i:1"}]}}`)
	before := r.pods("a=i:1", "b=i:1")
	r.write("a.yaml", podManifest("a", "i:2")) // in place
	after := r.pods("a=i:2", "b=i:1")
	if find(after, "b") != find(before, "b") {
		t.Error("the pod that did not change is another pointer")
	}
	must(t, os.Rename(filepath.Join(dir, "b.json"), filepath.Join(dir, "b.json.bak")))
	r.pods("a=i:2")
	put(t, filepath.Join(dir, ".tmp"), podManifest("b", "i:3")) // atomically
	must(t, os.Rename(filepath.Join(dir, ".tmp"), filepath.Join(dir, "b.yaml")))
	r.pods("a=i:2", "b=i:3")
	must(t, os.Symlink("b.yaml", filepath.Join(dir, "link.yaml")))
	r.refused("link.yaml", "duplicate")
	must(t, os.Remove(filepath.Join(dir, "link.yaml")))
	must(t, os.Remove(filepath.Join(dir, "b.yaml")))
	must(t, os.Remove(filepath.Join(dir, "a.yaml")))
	if s := r.pods(); !s.Ready {
		t.Error("an empty directory is not ready")
	}
}

func find(s Snapshot, name string) *v1.Pod {
	for _, p := range s.Pods {
		if p.Name == name+"-n" {
			return p
		}
	}
	return nil
}

func TestFileIgnoresEditors(t *testing.T) {
	dir := privateDir(t)
	r := start(t, dir)
	for _, name := range []string{".a.yaml.swp", "4913", "a.yaml~", "#a.yaml#", "a.yaml.bak", "a.txt"} {
		r.write(name, podManifest("x", "i:1"))
	}
	r.write("a.yaml", podManifest("a", "i:1"))
	if s := r.pods("a=i:1"); len(s.Results) != 1 {
		t.Errorf("%s", describe(s))
	}
}

// Directories are no manifests, whatever they are called and however one comes to be there.
func TestFileIgnoresSubdirectories(t *testing.T) {
	dir := privateDir(t)
	sub := func(name string) string { return filepath.Join(dir, name) }
	must(t, os.Mkdir(sub("early.yaml"), 0o755))
	put(t, sub("early.yaml/x.yaml"), podManifest("x", "i:1"))
	r := start(t, dir)
	must(t, os.Mkdir(sub("late.yaml"), 0o755))
	must(t, os.Symlink("early.yaml", sub("link.yaml")))
	r.write("a.yaml", podManifest("a", "i:1"))
	if s := r.pods("a=i:1"); len(s.Results) != 1 {
		t.Errorf("%s", describe(s))
	}
	// A manifest that makes way for a directory is deleted.
	must(t, os.Rename(sub("a.yaml"), sub("late.yaml/a.yaml")))
	must(t, os.Rename(sub("late.yaml"), sub("a.yaml")))
	r.until("nothing", func(s Snapshot) bool { return len(s.Pods) == 0 && len(s.Results) == 0 })
}

// Half of a manifest may be a valid manifest of something else. A file is not read before its
// writer has closed it, whether it was there before or is new.
func TestFileHalfWritten(t *testing.T) {
	dir := privateDir(t)
	open := func(name string) *os.File {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_WRONLY, 0o644)
		must(t, err)
		return f
	}
	early := open("early.yaml")
	text := podManifest("early", "i:1")
	_, err := early.WriteString(text)
	must(t, err)
	r := start(t, dir)
	late := open("late.yaml")
	_, err = late.WriteString(podManifest("late", "i:1"))
	must(t, err)
	must(t, late.Chmod(0o600)) // gives a notice, too
	r.write("done.yaml", podManifest("done", "i:1"))
	if s := r.pods("done=i:1"); find(s, "early") != nil || find(s, "late") != nil {
		t.Errorf("%s", describe(s))
	}
	must(t, late.Close())
	r.pods("done=i:1", "late=i:1")
	must(t, early.Close())
	r.pods("done=i:1", "early=i:1", "late=i:1")
}

// A file that is written before it has a name gives no notice of its close under that name. It
// counts as soon as its writer has closed it all the same, also where it was empty when it got its
// name, and not before.
func TestFileNamedWhenWritten(t *testing.T) {
	dir := privateDir(t)
	nameless := func() *os.File {
		fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, 0o644)
		if errors.Is(err, unix.EOPNOTSUPP) {
			t.Skip("this file system has no O_TMPFILE")
		}
		must(t, err)
		return os.NewFile(uintptr(fd), "nameless")
	}
	name := func(f *os.File, name string) {
		must(t,
			unix.Linkat(unix.AT_FDCWD, fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.AT_FDCWD, filepath.Join(dir, name),
				unix.AT_SYMLINK_FOLLOW))
	}
	fill := func(f *os.File, text string) {
		_, err := f.WriteString(text)
		must(t, err)
	}
	r := start(t, dir)

	whole := nameless()
	fill(whole, podManifest("a", "i:1"))
	reader, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", whole.Fd()))
	must(t, err)
	must(t, whole.Close()) // nobody has it open for writing any more
	name(reader, "a.yaml")
	must(t, reader.Close())
	r.pods("a=i:1")

	half := nameless()
	fill(half, podManifest("b", "i:1"))
	name(half, "b.yaml")
	empty := nameless()
	name(empty, "c.yaml")
	r.write("d.yaml", podManifest("d", "i:1"))
	for _, v := range r.pods("a=i:1", "d=i:1").Results {
		if !v.Accepted && v.Message != errBusy.Error() {
			t.Errorf("%s", summary(v))
		}
	}
	fill(half, "# more\n")
	must(t, half.Close())
	fill(empty, podManifest("c", "i:1"))
	must(t, empty.Close())
	r.pods("a=i:1", "b=i:1", "c=i:1", "d=i:1")
}

// A manifest that turns bad, in whichever way, takes nothing away; a good one after it counts at
// once.
func TestFileLastGoodVersionStays(t *testing.T) {
	for _, bad := range []struct{ name, data, message string }{
		{"syntax", "kind: [", "not valid YAML"},
		{"empty", "", "empty"},
		{"binary", "\x00", "not text"},
		{"invalid", podManifest("a", `""`), "Required value"},
		{"renamed and invalid", podManifest("other", `""`), "Required value"},
		{"other kind", "apiVersion: v1\nkind: Node\n", "not supported"},
		{"too large", "#" + strings.Repeat("x", MaxManifest), "larger than"},
		{
			"reference", strings.Replace(podManifest("a", "i"), "spec: {", "spec: {serviceAccountName: x, ", 1),
			"may not reference",
		},
	} {
		t.Run(bad.name, func(t *testing.T) {
			dir := privateDir(t)
			r := start(t, dir)
			r.write("a.yaml", podManifest("a", "i:1"))
			r.write("b.yaml", podManifest("b", "i:1"))
			before := find(r.pods("a=i:1", "b=i:1"), "a")
			r.write("a.yaml", bad.data)
			s := r.refused("a.yaml", bad.message)
			if !slices.Equal(podsOf(s), []string{"a=i:1", "b=i:1"}) || find(s, "a") != before {
				t.Errorf("%s", describe(s))
			}
			r.write("a.yaml", podManifest("a", "i:2"))
			s = r.pods("a=i:2", "b=i:1")
			if len(s.Results) != 2 || !s.Results[0].Accepted {
				t.Errorf("%s", describe(s))
			}
			r.write("a.yaml", bad.data)
			r.refused("a.yaml", bad.message)
			must(t, os.Remove(filepath.Join(dir, "a.yaml")))
			r.pods("b=i:1")
		})
	}
}

// In a file of several documents, the good ones count, and what a bad one was before stays.
func TestFileLastGoodDocuments(t *testing.T) {
	dir := privateDir(t)
	r := start(t, dir)
	cm := func(value string) string {
		return "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\ndata: {k: " + value + "}\n---\n"
	}
	r.write("a.yaml", podManifest("a", "i:1")+cm("v1")+podManifest("b", "i:1"))
	r.pods("a=i:1", "b=i:1")
	r.write("a.yaml", podManifest("a", `""`)+cm("[]")+podManifest("b", "i:2")+"---\n"+podManifest("c", "i:1"))
	s := r.pods("a=i:1", "b=i:2", "c=i:1")
	if len(s.Objects) != 1 {
		t.Errorf("%s", describe(s))
	}
	var kept []string
	for _, v := range s.Results {
		if v.Accepted && v.Document == 0 {
			kept = append(kept, v.Kind+" "+v.Name)
		}
	}
	if !slices.Equal(kept, []string{"Pod a-n", "ConfigMap m"}) {
		t.Errorf("kept: %v", kept)
	}
	r.write("a.yaml", podManifest("b", "i:2"))
	if s := r.pods("b=i:2"); len(s.Objects) != 0 {
		t.Errorf("%s", describe(s))
	}
}

// After a restart of the agent, a bad manifest keeps the pods that the agent remembers.
func TestFileLastGoodOverARestart(t *testing.T) {
	dir := privateDir(t)
	put(t, filepath.Join(dir, "bad.yaml"), "kind: [")
	put(t, filepath.Join(dir, "good.yaml"), podManifest("good", "i:1"))
	must(t, os.Symlink("/etc/passwd", filepath.Join(dir, "out.yaml")))
	r := start(t, dir, func(_ *FileConfig, deps *FileDeps) {
		deps.LastGood = func(file string) []*v1.Pod {
			name := strings.TrimSuffix(filepath.Base(file), ".yaml")
			return []*v1.Pod{{
				ObjectMeta: metav1.ObjectMeta{Name: name + "-n", Namespace: "default", UID: "u-" + "x"},
				Spec:       v1.PodSpec{Containers: []v1.Container{{Image: "old"}}},
			}}
		}
	})
	// Both remembered pods have the same UID here, so that the first wins.
	if s := r.until("the first", func(s Snapshot) bool { return s.Ready }); !slices.Equal(podsOf(s),
		[]string{"bad=old", "good=i:1"}) {
		t.Errorf("%s", describe(s))
	}
	r.write("bad.yaml", podManifest("new", "i:1"))
	r.pods("good=i:1", "new=i:1", "out=old")
}

func TestFileDuplicates(t *testing.T) {
	dir := privateDir(t)
	r := start(t, dir)
	r.write("b.yaml", podManifest("x", "i:b"))
	r.pods("x=i:b")
	r.write("c.yaml", podManifest("x", "i:c"))
	s := r.refused("c.yaml", "duplicate: Pod default/x-n is already in "+filepath.Join(dir, "b.yaml"))
	if !slices.Equal(podsOf(s), []string{"x=i:b"}) {
		t.Errorf("%s", describe(s))
	}
	// A copy whose name sorts before does not take the pod over from the file that has it,
	r.write("a.yaml", podManifest("x", "i:a"))
	s = r.refused("a.yaml", "duplicate: Pod default/x-n is already in "+filepath.Join(dir, "b.yaml"))
	if !slices.Equal(podsOf(s), []string{"x=i:b"}) {
		t.Errorf("%s", describe(s))
	}
	// not even when that file turns bad, whose last good version stays.
	r.write("b.yaml", "kind: [")
	s = r.until("the bad file", func(s Snapshot) bool {
		return slices.ContainsFunc(s.Results, func(v Result) bool {
			return !v.Accepted && filepath.Base(v.File) == "b.yaml"
		})
	})
	if !slices.Equal(podsOf(s), []string{"x=i:b"}) {
		t.Errorf("%s", describe(s))
	}
	must(t, os.Remove(filepath.Join(dir, "b.yaml")))
	r.pods("x=i:a")
	must(t, os.Remove(filepath.Join(dir, "a.yaml")))
	r.pods("x=i:c")
	// Two pods of different names with the same UID.
	r.write("d.yaml", strings.Replace(podManifest("w", "i:1"), "name: w", "name: w, uid: same", 1))
	r.write("e.yaml", strings.Replace(podManifest("z", "i:1"), "name: z", "name: z, uid: same", 1))
	r.refused("e.yaml", "duplicate: another pod has the UID same already")
	r.pods("w=i:1", "x=i:c")
}

func TestFileLinks(t *testing.T) {
	dir := privateDir(t)
	outside := filepath.Join(filepath.Dir(dir), "outside.yaml")
	put(t, outside, podManifest("outside", "i:1"))
	r := start(t, dir)
	link := func(target, name string) { must(t, os.Symlink(target, filepath.Join(dir, name))) }
	link("../outside.yaml", "relative.yaml")
	r.refused("relative.yaml", "leads out of the manifest directory")
	link(outside, "absolute.yaml")
	r.refused("absolute.yaml", "leads out of the manifest directory")
	link("nothing.yaml", "dangling.yaml")
	r.refused("dangling.yaml", "no such file")
	link("loop.yaml", "loop.yaml")
	r.refused("loop.yaml", "symbolic link")
	r.write("file.yaml", podManifest("a", "i:1"))
	must(t, os.Mkdir(filepath.Join(dir, ".hidden"), 0o755))
	put(t, filepath.Join(dir, ".hidden", "b.yaml"), podManifest("b", "i:1"))
	link(".hidden/b.yaml", "b.yaml")
	r.pods("a=i:1", "b=i:1")
	put(t, filepath.Join(dir, ".hidden", "c.yaml"), podManifest("c", "i:1"))
	link(filepath.Join(dir, ".hidden", "c.yaml"), "c.yaml")
	r.pods("a=i:1", "b=i:1", "c=i:1")
	// What a link leads to is looked at with every notice, though the kernel tells nothing about
	// it.
	put(t, filepath.Join(dir, ".hidden", "c.yaml"), podManifest("c", "i:2"))
	r.write("file.yaml", podManifest("a", "i:1")+"\n")
	r.pods("a=i:1", "b=i:1", "c=i:2")
	// A good manifest that is replaced by a link out keeps its pod.
	must(t, os.Symlink(outside, filepath.Join(dir, ".l")))
	must(t, os.Rename(filepath.Join(dir, ".l"), filepath.Join(dir, "file.yaml")))
	if s := r.refused("file.yaml", "leads out"); find(s, "a") == nil || find(s, "outside") != nil {
		t.Errorf("%s", describe(s))
	}
}

// A manifest that is hard-linked into place was written elsewhere: it is complete, and the only
// notice of it is that of its new name.
func TestFileLinkedHard(t *testing.T) {
	dir := privateDir(t)
	outside := filepath.Join(filepath.Dir(dir), "outside.yaml")
	put(t, outside, podManifest("a", "i:1"))
	r := start(t, dir)
	r.pods()
	must(t, os.Link(outside, filepath.Join(dir, "a.yaml")))
	r.pods("a=i:1")
}

// Mounted ConfigMaps and the like swap a whole directory by one rename of a link.
func TestFileSwappedByLink(t *testing.T) {
	dir := privateDir(t)
	for _, v := range []string{"1", "2"} {
		must(t, os.Mkdir(filepath.Join(dir, "..v"+v), 0o755))
		put(t, filepath.Join(dir, "..v"+v, "a.yaml"), podManifest("a", "i:"+v))
	}
	must(t, os.Symlink("..v1", filepath.Join(dir, "..data")))
	must(t, os.Symlink("..data/a.yaml", filepath.Join(dir, "a.yaml")))
	r := start(t, dir)
	r.pods("a=i:1")
	must(t, os.Symlink("..v2", filepath.Join(dir, "..tmp")))
	must(t, os.Rename(filepath.Join(dir, "..tmp"), filepath.Join(dir, "..data")))
	r.pods("a=i:2")
}

func TestFileDirectoryComesLater(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "x", "y", "manifests")
	r := start(t, dir)
	if s := r.refused("manifests", "does not exist"); s.Ready {
		t.Error("ready without a directory")
	}
	must(t, os.MkdirAll(dir, 0o755))
	put(t, filepath.Join(dir, "a.yaml"), podManifest("a", "i:1"))
	if s := r.pods("a=i:1"); !s.Ready {
		t.Error("not ready")
	}
	r.write("a.yaml", podManifest("a", "i:2"))
	r.pods("a=i:2")
}

// A directory that is gone, or replaced, or not to be read, is not an empty one.
func TestFileDirectoryGoesAway(t *testing.T) {
	dir := privateDir(t)
	put(t, filepath.Join(dir, "a.yaml"), podManifest("a", "i:1"))
	r := start(t, dir)
	r.pods("a=i:1")
	must(t, os.Rename(dir, dir+".old"))
	if s := r.refused("manifests", "does not exist"); find(s, "a") == nil || !s.Ready {
		t.Errorf("%s", describe(s))
	}
	must(t, os.WriteFile(dir, []byte("kind: ["), 0o644)) // a file in its place
	r.refused("manifests", "not valid YAML")
	must(t, os.Remove(dir))
	must(t, os.Mkdir(dir, 0o755))
	put(t, filepath.Join(dir, "b.yaml"), podManifest("b", "i:1"))
	r.pods("b=i:1")
	must(t, os.RemoveAll(dir))
	r.refused("manifests", "does not exist")
	must(t, os.Rename(dir+".old", dir))
	r.pods("a=i:1")
	r.write("c.yaml", podManifest("c", "i:1"))
	r.pods("a=i:1", "c=i:1")
}

func TestFileSingle(t *testing.T) {
	dir := privateDir(t)
	path := filepath.Join(dir, "pod") // the name does not matter when it was named by the user
	put(t, path, podManifest("a", "i:1"))
	put(t, filepath.Join(dir, "other.yaml"), podManifest("other", "i:1"))
	r := start(t, path)
	r.pods("a=i:1")
	put(t, path, podManifest("a", "i:2"))
	r.pods("a=i:2")
	must(t, os.Remove(path))
	r.pods()
	put(t, path, podManifest("a", "i:3"))
	r.pods("a=i:3")
}

// What the kernel does not tell, a look through the directory finds; one that finds nothing new
// gives no snapshot.
func TestFileRescan(t *testing.T) {
	dir := privateDir(t)
	put(t, filepath.Join(dir, "a.yaml"), podManifest("a", "i:1"))
	f := NewFile(FileConfig{Path: dir, NodeName: "n"}, FileDeps{})
	count, last := 0, Snapshot{}
	f.out = func(s Snapshot) { count, last = count+1, s }
	defer f.stopWatching()
	look := func(wantCount int, wantPods ...string) {
		t.Helper()
		f.lookThrough()
		if count != wantCount || !slices.Equal(podsOf(last), wantPods) {
			t.Errorf("%d snapshots, want %d; %s", count, wantCount, describe(last))
		}
	}
	look(1, "a=i:1")
	look(1, "a=i:1")
	put(t, filepath.Join(dir, "a.yaml"), podManifest("a", "i:2"))
	look(2, "a=i:2")
	put(t, filepath.Join(dir, "a.yaml"), podManifest("a", "i:2")) // rewritten, the same
	look(2, "a=i:2")
	must(t, os.Remove(filepath.Join(dir, "a.yaml")))
	look(3)
}

// Watching anew gives a notice that the earlier watch ended. Acting on it by watching anew again
// would never end.
func TestFileMissingDirectoryCostsNothing(t *testing.T) {
	f := NewFile(FileConfig{Path: filepath.Join(t.TempDir(), "missing"), NodeName: "n"}, FileDeps{})
	f.out = func(Snapshot) {}
	defer f.stopWatching()
	f.lookThrough()
	f.lookThrough()
	watch := f.watcher.watch
	f.handle(<-f.watcher.notices)
	if f.watcher.watch != watch {
		t.Error("watches anew because a watch ended")
	}
}

// Where the kernel lost notices, everything is looked through.
func TestFileLostNotices(t *testing.T) {
	dir := privateDir(t)
	f := NewFile(FileConfig{Path: dir, NodeName: "n"}, FileDeps{})
	var last Snapshot
	f.out = func(s Snapshot) { last = s }
	defer f.stopWatching()
	f.lookThrough()
	put(t, filepath.Join(dir, "a.yaml"), podManifest("a", "i:1"))
	f.handle([]notice{{watch: -1, mask: unix.IN_Q_OVERFLOW}})
	if !slices.Equal(podsOf(last), []string{"a=i:1"}) {
		t.Errorf("%s", describe(last))
	}
}

// A manifest that everybody may write to is refused, and its pod stays as it was before.
func TestFileThatEverybodyMayWrite(t *testing.T) {
	dir := privateDir(t)
	r := start(t, dir)
	r.write("a.yaml", podManifest("a", "i:1"))
	r.pods("a=i:1")
	must(t, os.Chmod(filepath.Join(dir, "a.yaml"), 0o666))
	r.refused("a.yaml", "its mode 0666 lets everybody write to it")
	r.write("a.yaml", podManifest("a", "i:2"))
	r.write("b.yaml", podManifest("b", "i:1"))
	r.pods("a=i:1", "b=i:1")
	must(t, os.Chmod(filepath.Join(dir, "a.yaml"), 0o644))
	r.pods("a=i:2", "b=i:1")
}

// Nothing is taken from a directory to which everybody may write, and what it held before stays.
func TestFileDirectoryThatEverybodyMayWrite(t *testing.T) {
	dir := privateDir(t)
	must(t, os.Chmod(dir, 0o1777))
	r := start(t, dir)
	r.write("a.yaml", podManifest("a", "i:1"))
	if s := r.refused(filepath.Base(dir), "lets everybody write to it"); s.Ready || len(s.Pods) > 0 {
		t.Errorf("taken from a directory that everybody may write to: %s", describe(s))
	}
	must(t, os.Chmod(dir, 0o755))
	r.pods("a=i:1")
	must(t, os.Chmod(dir, 0o777))
	r.refused(filepath.Base(dir), "lets everybody write to it")
	r.write("b.yaml", podManifest("b", "i:1"))
	must(t, os.Remove(filepath.Join(dir, "a.yaml")))
	r.pods("a=i:1")
	must(t, os.Chmod(dir, 0o755))
	r.pods("b=i:1")
}

// Nothing is taken from a directory that everybody may replace, nor through one below it to which
// everybody may write.
func TestFileThatEverybodyMayReplace(t *testing.T) {
	above := privateDir(t)
	dir := filepath.Join(above, "own")
	must(t, os.MkdirAll(filepath.Join(dir, "sub"), 0o755))
	put(t, filepath.Join(dir, "a.yaml"), podManifest("a", "i:1"))
	put(t, filepath.Join(dir, "sub", "b.yaml"), podManifest("b", "i:1"))
	must(t, os.Symlink("sub/b.yaml", filepath.Join(dir, "b.yaml")))
	must(t, os.Symlink(filepath.Join(dir, "sub", "b.yaml"), filepath.Join(dir, "c.yaml")))
	must(t, os.Chmod(filepath.Join(dir, "sub"), 0o777))
	must(t, os.Chmod(above, 0o777))
	r := start(t, dir)
	if s := r.refused("own", above+" is above it"); len(s.Pods) > 0 {
		t.Errorf("%s", describe(s))
	}
	must(t, os.Chmod(above, 0o777|fs.ModeSticky))
	r.refused("b.yaml", "its link leads through sub")
	r.refused("c.yaml", "its link leads through sub")
	r.pods("a=i:1")
	must(t, os.Chmod(filepath.Join(dir, "sub"), 0o755))
	put(t, filepath.Join(dir, "touched.yaml"), "")
	r.refused("c.yaml", "duplicate")
	r.pods("a=i:1", "b=i:1")
}

// With insecureManifests everything is taken, with a warning.
func TestFileInsecureManifests(t *testing.T) {
	dir := privateDir(t)
	must(t, os.Chmod(dir, 0o777))
	put(t, filepath.Join(dir, "a.yaml"), podManifest("a", "i:1"))
	must(t, os.Chmod(filepath.Join(dir, "a.yaml"), 0o666))
	s := start(t, dir, func(c *FileConfig, _ *FileDeps) { c.Insecure = true }).pods("a=i:1")
	if len(s.Results) != 3 || !strings.Contains(fmt.Sprint(s.Results[0].Warnings, s.Results[1].Warnings), "mode 0666") {
		t.Errorf("%s", describe(s))
	}
}

func TestFileDirectoryOfOthers(t *testing.T) {
	dir := privateDir(t)
	must(t, os.Chmod(dir, 0o775))
	put(t, filepath.Join(dir, "a.yaml"), podManifest("a", "i:1"))
	must(t, os.Chmod(filepath.Join(dir, "a.yaml"), 0o664))
	r := start(t, dir)
	s := r.pods("a=i:1")
	warned := map[string]string{}
	for _, v := range s.Results {
		if len(v.Warnings) > 0 {
			warned[filepath.Base(v.File)] = v.Warnings[0]
		}
		if !v.Accepted {
			t.Errorf("a warning refused something: %s", summary(v))
		}
	}
	for _, name := range []string{"manifests", "a.yaml"} {
		if !strings.Contains(warned[name], "lets others than its owner write") {
			t.Errorf("%s: %q of %v", name, warned[name], slices.Sorted(maps.Keys(warned)))
		}
	}
	must(t, os.Chmod(filepath.Join(dir, "a.yaml"), 0o644))
	must(t, os.Chmod(dir, 0o755))
	r.write("b.yaml", podManifest("b", "i:1"))
	r.until("no warning about the file", func(s Snapshot) bool {
		return !slices.ContainsFunc(s.Results, func(v Result) bool {
			return filepath.Base(v.File) == "a.yaml" && len(v.Warnings) > 0
		})
	})
}

func TestFileSpecialFiles(t *testing.T) {
	dir := privateDir(t)
	r := start(t, dir)
	must(t, unix.Mkfifo(filepath.Join(dir, "pipe.yaml"), 0o644))
	r.refused("pipe.yaml", "a named pipe")
	r.write("a.yaml", podManifest("a", "i:1"))
	r.pods("a=i:1")
}

// Since says when a result began, and does not move while it stays.
func TestResultSince(t *testing.T) {
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	m := &manifests{
		decoder: Decoder{NodeName: "n"},
		now:     func() time.Time { return now },
		files:   map[string]*manifest{},
	}
	dir := privateDir(t)
	step := func(data string) map[string]time.Time {
		now = now.Add(time.Minute)
		put(t, filepath.Join(dir, "a.yaml"), data)
		d, err := openDirectory(dir)
		must(t, err)
		defer d.close()
		m.update(d, "a.yaml", true)
		s := m.snapshot(dir)
		m.date(&s)
		out := map[string]time.Time{}
		for _, v := range s.Results {
			out[v.Name] = v.Since
		}
		return out
	}
	first := step(podManifest("a", "i:1") + "---\n" + podManifest("b", "i:1"))
	second := step(podManifest("a", "i:1") + "---\n" + podManifest("b", `""`))
	if !second["a-n"].Equal(first["a-n"]) || !second["b-n"].After(first["b-n"]) {
		t.Errorf("%v then %v", first, second)
	}
}

// A burst of changes, with the kernel's queue far too small for it or not, ends in what the
// directory then holds.
func TestFileChurn(t *testing.T) {
	dir := privateDir(t)
	r := start(t, dir, func(cfg *FileConfig, _ *FileDeps) { cfg.Rescan = time.Second })
	var wait sync.WaitGroup
	for w := range 4 {
		wait.Go(func() {
			for i := range 60 {
				path := filepath.Join(dir, fmt.Sprintf("p%d-%d.yaml", w, i%5))
				switch i % 3 {
				case 0, 1:
					_ = os.WriteFile(path, []byte(podManifest(fmt.Sprintf("p%d-%d", w, i%5), fmt.Sprintf("i:%d", i))),
						0o644)
				default:
					_ = os.Remove(path)
				}
			}
		})
	}
	wait.Wait()
	var want []string
	names, err := os.ReadDir(dir)
	must(t, err)
	for _, n := range names {
		data, err := os.ReadFile(filepath.Join(dir, n.Name()))
		must(t, err)
		item := Decoder{NodeName: "n"}.Decode("x", data)[0]
		want = append(want, strings.TrimSuffix(item.Pod.Name, "-n")+"="+item.Pod.Spec.Containers[0].Image)
	}
	slices.Sort(want)
	if s := r.pods(want...); len(s.Pods) != len(want) {
		t.Error(cmp.Diff(want, podsOf(s)))
	}
}
