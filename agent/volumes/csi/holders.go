package csi

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// holder is a pod that has a volume, by the pod's name of the volume.
type holder struct {
	uid types.UID
	key key
}

// holders knows where to look for the records of a driver's volume, so that nobody has to read the
// directories of all pods to learn who else has it. The records themselves are the truth: a holder
// whose record is gone has no volume any more. The zero value has no holders.
type holders struct {
	mu sync.Mutex
	// of has the holders by the volume. The unnamed volume has those whose records were damaged
	// when they were read: they may have any volume.
	of map[v1.UniqueVolumeName]map[holder]bool
	at map[holder]v1.UniqueVolumeName
	// whole says that all pods were looked at.
	whole bool
}

// add records that a pod has a volume.
func (s *holders) add(h holder, volume v1.UniqueVolumeName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(h)
	s.put(h, volume)
}

// found records what was read of a pod's volume, unless the pod is known to have it: the volume may
// have changed since it was read. The volume is unnamed if the record is damaged.
func (s *holders) found(h holder, volume v1.UniqueVolumeName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.at[h]; !known {
		s.put(h, volume)
	}
}

// put adds a holder. The lock is held.
func (s *holders) put(h holder, volume v1.UniqueVolumeName) {
	if s.of == nil {
		s.of, s.at = map[v1.UniqueVolumeName]map[holder]bool{}, map[holder]v1.UniqueVolumeName{}
	}
	if s.of[volume] == nil {
		s.of[volume] = map[holder]bool{}
	}
	s.of[volume][h], s.at[h] = true, volume
}

// remove records that a pod does not have a volume any more.
func (s *holders) remove(h holder) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(h)
}

// drop removes a holder. The lock is held.
func (s *holders) drop(h holder) {
	volume, known := s.at[h]
	if !known {
		return
	}
	delete(s.at, h)
	if delete(s.of[volume], h); len(s.of[volume]) == 0 {
		delete(s.of, volume)
	}
}

// complete records that all pods were looked at.
func (s *holders) complete() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.whole = true
}

func (s *holders) isComplete() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.whole
}

// candidates returns the pods that have or may have a volume.
func (s *holders) candidates(volume v1.UniqueVolumeName) []holder {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := slices.Collect(maps.Keys(s.of[volume]))
	return slices.AppendSeq(out, maps.Keys(s.of[""]))
}

// held returns the volumes of a pod that are on record. The value is nil if the record is damaged.
func (n *Node) held(uid types.UID) (map[key]*record, error) {
	out := map[key]*record{}
	for _, from := range []struct {
		dir   string
		block bool
	}{
		{filepath.Join(n.podDir(uid), "volumes", pluginDir), false},
		{filepath.Join(n.podDir(uid), "plugins", pluginDir, devicesName), true},
		{filepath.Join(n.podDir(uid), devicesName, pluginDir), true},
	} {
		entries, err := os.ReadDir(from.dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("look for volumes of CSI drivers of pod %s: %w", uid, err)
		}
		for _, entry := range entries {
			k := key{entry.Name(), from.block}
			switch r, err := n.heldRecord(uid, k); {
			case errors.Is(err, errDamaged):
				out[k] = nil
			case err != nil:
				return nil, err
			case r != nil:
				out[k] = r
			}
		}
	}
	return out, nil
}

// heldRecord reads the record of a pod's volume. It returns nil if the pod does not have the
// volume.
func (n *Node) heldRecord(uid types.UID, k key) (*record, error) {
	r, err := readRecord(n.recordDir(uid, k))
	if k.block && r == nil && err == nil {
		if _, err := os.Lstat(n.devicePath(uid, k.name)); err != nil {
			return nil, ignoreMissing(err)
		}
		// The record of a kubelet's device lies beside where the device is staged.
		r, err = readRecord(n.stageRecordDir(&record{Volume: k.name, Block: true}))
	}
	if r == nil || err != nil {
		return nil, err
	}
	if r.Block = k.block; r.Block {
		r.Volume = k.name
	}
	return r, nil
}

// ignoreMissing returns err unless it says that a file does not exist.
func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// keep writes the record of a pod's volume.
func (n *Node) keep(uid types.UID, k key, r record) error {
	// Before the record is there, so that nobody overlooks one whose writing fails half-way.
	n.holders.add(holder{uid, k}, uniqueName(r.Driver, r.Handle))
	return writeRecord(n.recordDir(uid, k), r)
}

// erase removes the record of a pod's volume, and what else only berth writes about the volume.
func (n *Node) erase(uid types.UID, k key) error {
	dir, ready := n.recordDir(uid, k), n.readyPath(uid, k)
	n.forgetPublished(ready)
	if err := removeAll(ready, filepath.Join(dir, dataFile), dir); err != nil {
		return err
	}
	n.holders.remove(holder{uid, k})
	return nil
}

// pods returns the pods that have a directory.
func (n *Node) pods() ([]types.UID, error) {
	entries, err := os.ReadDir(filepath.Join(n.cfg.RootDir, "pods"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var out []types.UID
	for _, entry := range entries {
		if entry.IsDir() {
			out = append(out, types.UID(entry.Name()))
		}
	}
	return out, err
}

// survey finds on the disk which pods have which volumes, and calls each for every volume whose
// record can be read. After an error it goes on with the other pods.
func (n *Node) survey(each func(types.UID, key, *record)) error {
	uids, err := n.pods()
	errs := []error{err}
	for _, uid := range uids {
		held, err := n.held(uid)
		errs = append(errs, err)
		for k, r := range held {
			if r == nil {
				n.holders.found(holder{uid, k}, "")
				continue
			}
			n.holders.found(holder{uid, k}, uniqueName(r.Driver, r.Handle))
			each(uid, k, r)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	n.holders.complete()
	return nil
}

// surveyOnce makes a survey unless one was complete.
func (n *Node) surveyOnce() error {
	if n.holders.isComplete() {
		return nil
	}
	return n.survey(func(types.UID, key, *record) {})
}

// hasOthers reports whether another pod, or another volume of the pod, has or may have the driver's
// volume.
func (n *Node) hasOthers(uid types.UID, k key, r *record) (bool, error) {
	if err := n.surveyOnce(); err != nil {
		return false, err
	}
	for _, h := range n.holders.candidates(uniqueName(r.Driver, r.Handle)) {
		if h == (holder{uid, k}) {
			continue
		}
		have, err := n.heldRecord(h.uid, h.key)
		switch {
		case errors.Is(err, errDamaged):
			return true, nil
		case err != nil:
			return false, err
		case have != nil && have.Driver == r.Driver && have.Handle == r.Handle:
			return true, nil
		}
	}
	return false, nil
}

// alone returns an error if another pod of the node has a volume that only one pod may have. The
// caller has the volume's lock, so that the first of two pods gets the volume.
func (n *Node) alone(v *Volume) error {
	if !slices.Contains(v.Modes, v1.ReadWriteOncePod) {
		return nil
	}
	if own, err := readRecord(n.recordDir(v.Pod.UID, v.key())); err != nil || own != nil {
		return err // the pod has it already
	}
	wanted := n.recordOf(v)
	others, err := n.hasOthers(v.Pod.UID, v.key(), &wanted)
	if err == nil && others {
		err = errors.New("volume uses the ReadWriteOncePod access mode and is already in use by another pod")
	}
	return err
}
