package source

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"reflect"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/berthd/berth/agent/source/objects"
	"github.com/berthd/berth/internal/pods"
)

// busyShown is how long a file may be open for writing before a result reports that.
const busyShown = 5 * time.Second

// manifests is the state of the manifest files of one directory.
type manifests struct {
	decoder  Decoder
	now      func() time.Time
	lastGood func(file string) []*v1.Pod

	files    map[string]*manifest
	arrivals int                  // how often any file has arrived
	since    map[string]time.Time // when each result was first given
	// owned is the file that had each object in the last snapshot. It is nil before the first
	// snapshot.
	owned map[key]string
}

// manifest is the state of one file.
type manifest struct {
	id       fileID
	sum      [sha256.Size]byte
	read     bool // sum and items are of a version that was read
	items    []Item
	kept     []Item // last good versions of objects that the current version lacks or has wrong
	warnings []string
	problem  string    // why the file could not be read
	link     bool      // the file is a symbolic link
	arrival  int       // see [Result]
	busy     time.Time // since when the file is open for writing; zero if it is not
}

// keptWarning is the warning about an object whose earlier version stays.
const keptWarning = "the last good version stays until the manifest is good again, or deleted"

// key names an object of a manifest.
type key struct {
	kind, namespace, name string
}

func (i Item) key() key {
	return key{i.Result.Kind, i.Result.Namespace, i.Result.Name}
}

// update reads one file again, if it changed. complete means that the file's writer has closed it.
func (m *manifests) update(dir *directory, name string, complete bool) {
	known := m.files[name]
	if known == nil {
		known = &manifest{}
		m.arrived(known)
	}
	v, err := dir.read(name, known.id, complete)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, errDirectory):
		delete(m.files, name)
		return
	case errors.Is(err, errBusy):
		if known.busy.IsZero() {
			known.busy = m.now()
		}
	case err != nil:
		known.id, known.busy, known.problem = fileID{}, time.Time{}, err.Error()
		known.link = dir.isLink(name) // what it leads to may be mended without a notice
		m.keepLastGood(dir, name, known)
	case v != nil:
		m.decode(dir, name, known, v)
	default:
		known.busy = time.Time{}
	}
	m.files[name] = known
}

// arrived gives a file the number of a new arrival.
func (m *manifests) arrived(f *manifest) {
	m.arrivals++
	f.arrival = m.arrivals
}

// deleted notes that a file was deleted. By now it may be there again, so that nobody sees it
// missing.
func (m *manifests) deleted(name string) {
	if f := m.files[name]; f != nil {
		m.arrived(f)
	}
}

// updateLinks reads the files again that symbolic links lead to, if they changed. The kernel gives
// no notice about the link for such a change.
func (m *manifests) updateLinks(dir *directory) {
	for name, f := range m.files {
		if f.link {
			m.update(dir, name, false)
		}
	}
}

// decode takes in a new version of a file.
func (m *manifests) decode(dir *directory, name string, known *manifest, v *version) {
	sum := sha256.Sum256(v.data)
	same := known.read && sum == known.sum
	known.id, known.sum, known.warnings, known.link = v.id, sum, v.warnings, v.link
	known.problem, known.busy, known.read = "", time.Time{}, true
	if same {
		return
	}
	m.keepLastGood(dir, name, known)
	before := append(accepted(known.items), known.kept...)
	known.items = m.decoder.Decode(filepath.Join(dir.path, name), v.data)
	known.kept = nil
	bad := false
	had := m.inForce(filepath.Join(dir.path, name), before)
	for i := range known.items {
		item := &known.items[i]
		refuseChange(item, had)
		bad = bad || !item.Result.Accepted
		reuse(item, before)
	}
	if bad {
		known.kept = without(before, accepted(known.items))
	}
}

// inForce returns the items whose objects the file had in the last snapshot. If another file had an
// object of the same name, this file does not change that object.
func (m *manifests) inForce(file string, items []Item) []Item {
	return slices.DeleteFunc(slices.Clone(items), func(item Item) bool { return m.owned[item.key()] != file })
}

// keepLastGood restores the pods that a file last held, if this agent has never read the file. The
// file may have turned bad while the agent was not running.
func (m *manifests) keepLastGood(dir *directory, name string, known *manifest) {
	if m.lastGood == nil || len(known.items)+len(known.kept) > 0 {
		return
	}
	file := filepath.Join(dir.path, name)
	for _, pod := range m.lastGood(file) {
		known.kept = append(known.kept, Item{Pod: pod, Result: Result{
			File: file, Kind: "Pod", Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Accepted: true,
		}})
	}
}

// accepted returns the accepted items.
func accepted(items []Item) []Item {
	var out []Item
	for _, item := range items {
		if item.Result.Accepted {
			out = append(out, item)
		}
	}
	return out
}

// without returns the items of old whose objects are not in current.
func without(old, current []Item) []Item {
	have := make(map[key]bool, len(current))
	for _, item := range current {
		have[item.key()] = true
	}
	return slices.DeleteFunc(slices.Clone(old), func(item Item) bool { return have[item.key()] })
}

// reuse keeps the pointer of an object that did not change.
func reuse(item *Item, before []Item) {
	for _, old := range before {
		if old.key() != item.key() {
			continue
		}
		if item.Pod != nil && old.Pod != nil && equality.Semantic.DeepEqual(old.Pod, item.Pod) {
			item.Pod = old.Pod
		}
		if item.Object != nil && old.Object != nil && equality.Semantic.DeepEqual(old.Object, item.Object) {
			item.Object = old.Object
		}
	}
}

// anyBusy reports whether a file waits for its writer to close it.
func (m *manifests) anyBusy() bool {
	for _, f := range m.files {
		if !f.busy.IsZero() {
			return true
		}
	}
	return false
}

// stillOwned returns the objects that a file had and still has, with that file. The file had the
// object in the last snapshot, or before the agent started.
func (m *manifests) stillOwned(dir string, names []string) map[key]string {
	had := m.owned
	if had == nil && m.lastGood != nil {
		had = map[key]string{}
		for _, name := range names {
			file := filepath.Join(dir, name)
			for _, pod := range m.lastGood(file) {
				had[key{"Pod", pod.Namespace, pod.Name}] = file
			}
		}
	}
	has := map[key]string{}
	for _, name := range names {
		file := filepath.Join(dir, name)
		for _, item := range slices.Concat(accepted(m.files[name].items), m.files[name].kept) {
			if had[item.key()] == file {
				has[item.key()] = file
			}
		}
	}
	return has
}

// Claims are the files of a set that have each object and each UID. Make them with [NewClaims].
type Claims struct {
	keys map[key]string
	uids map[string]string
	// before has the files that had an object and still have it. No other file may get that object.
	before map[key]string
}

// NewClaims returns claims in which no file has anything yet.
func NewClaims() *Claims { return &Claims{keys: map[key]string{}, uids: map[string]string{}} }

// Claim gives an item's object to its file. If another file already has the object, Claim returns
// the conflict.
func (c *Claims) Claim(item Item, file string) (conflict string) {
	v := &item.Result
	uid := string(v.UID)
	if owner, taken := c.before[item.key()]; taken && owner != file {
		return fmt.Sprintf("duplicate: %s %s is already in %s", v.Kind, fullName(v.Namespace, v.Name), owner)
	}
	if owner, taken := c.keys[item.key()]; taken {
		return fmt.Sprintf("duplicate: %s %s is already in %s", v.Kind, fullName(v.Namespace, v.Name), owner)
	}
	if owner, taken := c.uids[uid]; taken && uid != "" {
		return fmt.Sprintf("duplicate: another pod has the UID %s already, in %s", uid, owner)
	}
	c.keys[item.key()] = file
	if uid != "" {
		c.uids[uid] = file
	}
	return ""
}

// snapshot merges what the files want. A file that has an object keeps it as long as the file has a
// good version of it. If no file had the object, the file whose name sorts first gets it. Objects
// that are kept from earlier versions come last.
func (m *manifests) snapshot(dir string) Snapshot {
	s := Snapshot{Source: pods.SourceFile}
	names := slices.Sorted(maps.Keys(m.files))
	owners := NewClaims()
	owners.before = m.stillOwned(dir, names)
	defer func() { m.owned = owners.keys }()
	for _, name := range names {
		f := m.files[name]
		file := filepath.Join(dir, name)
		s.Results = append(s.Results, m.fileResults(file, f)...)
		for _, item := range f.items {
			v := item.Result
			v.Arrival = f.arrival
			if v.Accepted {
				if conflict := owners.Claim(item, file); conflict == "" {
					s.add(item)
				} else {
					v.Accepted, v.UID, v.Message = false, "", conflict
				}
			}
			s.Results = append(s.Results, v)
		}
	}
	for _, name := range names {
		file := filepath.Join(dir, name)
		for _, item := range m.files[name].kept {
			if owners.Claim(item, file) != "" {
				continue
			}
			s.add(item)
			s.Results = append(s.Results, Result{
				File:      file,
				Kind:      item.Result.Kind,
				Namespace: item.Result.Namespace,
				Name:      item.Result.Name,
				UID:       item.Result.UID,
				Accepted:  true,
				Kept:      true,
				Warnings:  []string{keptWarning},
			})
		}
	}
	return s
}

// add adds an item's object to the snapshot.
func (s *Snapshot) add(item Item) {
	if item.Pod != nil {
		s.Pods = append(s.Pods, item.Pod)
	}
	if item.Object != nil {
		s.Objects = append(s.Objects, item.Object)
	}
}

// fileResults returns the results of a file as a whole.
func (m *manifests) fileResults(file string, f *manifest) []Result {
	var out []Result
	if len(f.warnings) > 0 {
		out = append(out, Result{File: file, Accepted: true, Warnings: f.warnings})
	}
	if f.problem != "" {
		out = append(out, Result{File: file, Message: f.problem})
	}
	if !f.busy.IsZero() && m.now().Sub(f.busy) >= busyShown {
		out = append(out, Result{File: file, Message: errBusy.Error()})
	}
	return out
}

// date sets the time since when each result of a snapshot is the same.
func (m *manifests) date(s *Snapshot) {
	next := make(map[string]time.Time, len(s.Results))
	for i := range s.Results {
		v := &s.Results[i]
		v.Since = time.Time{}
		text := fmt.Sprintf("%+v", *v)
		since, ok := m.since[text]
		if !ok {
			since = m.now()
		}
		v.Since, next[text] = since, since
	}
	m.since = next
}

// sameSnapshot reports whether nothing changed between two snapshots. An object that did not change
// keeps its pointer.
func sameSnapshot(a, b *Snapshot) bool {
	return a.Ready == b.Ready && slices.Equal(a.Pods, b.Pods) &&
		slices.EqualFunc(a.Objects, b.Objects, func(x, y objects.Object) bool { return x == y }) &&
		slices.EqualFunc(a.Results, b.Results, func(x, y Result) bool { return reflect.DeepEqual(x, y) })
}
