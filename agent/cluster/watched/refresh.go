package watched

import (
	"context"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/source/objects"
	"github.com/berthd/berth/internal/retry"
)

// refreshPeriod is how often a claim is fetched whose volume may grow. A kubelet fetches claim and
// volume at each sync of the pod, which is about as often.
const refreshPeriod = time.Minute

// refresh fetches, one after the other, the claims in use whose volumes a driver may have to expand
// on this node: the API server does not notify a node of them. A round lasts one period for any
// number of claims. refresh ends with ctx.
func (w *Watcher) refresh(ctx context.Context) {
	for {
		keys := w.growing()
		pause := refreshPeriod / time.Duration(max(len(keys), 1))
		if len(keys) == 0 && !retry.Sleep(ctx, pause) {
			return
		}
		for _, key := range keys {
			if !retry.Sleep(ctx, pause) {
				return
			}
			// check again: the node may not fetch a claim that no pod uses
			if slices.Contains(w.growing(), key) {
				w.renew(ctx, key)
			}
		}
	}
}

// growing returns the sorted keys of the claims in use whose volumes may grow.
func (w *Watcher) growing() []objects.Key {
	w.mu.Lock()
	defer w.mu.Unlock()
	found := map[objects.Key]bool{}
	for _, u := range w.pods {
		for key, e := range u.of {
			if key.Kind != objects.KindClaim {
				continue
			}
			if _, pv := e.pair(); pv != nil && pv.Spec.CSI != nil && w.deps.Grows(pv.Spec.CSI.Driver) {
				found[key] = true
			}
		}
	}
	keys := make([]objects.Key, 0, len(found))
	for key := range found {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b objects.Key) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	return keys
}

// pair returns an entry's claim and its volume; what is not known is nil. The caller holds the
// watcher's mutex.
func (e *entry) pair() (claim *v1.PersistentVolumeClaim, volume *v1.PersistentVolume) {
	for _, o := range e.items {
		switch o := o.(type) {
		case *v1.PersistentVolumeClaim:
			claim = o
		case *v1.PersistentVolume:
			volume = o
		}
	}
	return claim, volume
}

// renew fetches a claim, and its volume if the claim has changed. After a failure the last known
// state stays.
func (w *Watcher) renew(ctx context.Context, key objects.Key) {
	got, err := w.api.get(ctx, key)
	claim, ok := got.(*v1.PersistentVolumeClaim)
	if err != nil || !ok || !w.news(claim) {
		if err != nil && ctx.Err() == nil {
			w.deps.Logger.Debug("a claim in use cannot be read; it is tried again", "object", describe(key), "err", err)
		}
		return
	}
	got, err = w.api.get(ctx, objects.Key{Kind: objects.KindPersistentVolume, Name: claim.Spec.VolumeName})
	volume, ok := got.(*v1.PersistentVolume)
	if err != nil || !ok || bound(claim, volume) != nil {
		return
	}
	w.learn(claim, volume)
}

// news reports whether a claim differs from the known one.
func (w *Watcher) news(claim *v1.PersistentVolumeClaim) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, e := range w.having(claim) {
		if have, _ := e.pair(); have.ResourceVersion != claim.ResourceVersion {
			return true
		}
	}
	return false
}

// having returns the entries that have a claim with the same volume. The caller holds the watcher's
// mutex.
func (w *Watcher) having(claim *v1.PersistentVolumeClaim) []*entry {
	var out []*entry
	key := objects.KeyOf(claim)
	for _, u := range w.pods {
		e := u.of[key]
		if e == nil || slices.Contains(out, e) {
			continue
		}
		if have, _ := e.pair(); have != nil && have.UID == claim.UID && have.Spec.VolumeName == claim.Spec.VolumeName {
			out = append(out, e)
		}
	}
	return out
}

// learn takes the claim's current state, and its volume's unless volume is nil.
func (w *Watcher) learn(claim *v1.PersistentVolumeClaim, volume *v1.PersistentVolume) {
	w.mu.Lock()
	entries := w.having(claim)
	w.mu.Unlock()
	for _, e := range entries {
		w.change(e, func() bool {
			_, now := e.pair()
			if volume != nil {
				now = volume.DeepCopy()
			}
			return e.take([]objects.Object{claim.DeepCopy(), now})
		})
	}
}

// Learn takes the current state of a claim that the caller has read or changed.
func (w *Watcher) Learn(claim *v1.PersistentVolumeClaim) { w.learn(claim, nil) }

// Claim returns a pod's claim, nil while it is not known. The claim must not be changed.
func (w *Watcher) Claim(pod *v1.Pod, name string) *v1.PersistentVolumeClaim {
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.pods[pod.UID].of[objects.Key{Kind: objects.KindClaim, Namespace: pod.Namespace, Name: name}]
	if e == nil {
		return nil
	}
	claim, _ := e.pair()
	return claim
}
