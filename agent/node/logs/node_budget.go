package logs

import (
	"maps"
	"slices"
	"strings"

	"github.com/berthd/berth/cri/logs"
)

// key names a container of a pod. It is the path of the container's log directory relative to the
// root.
type key string

// relief says what one container gives up when the node's logs are too large.
type relief struct {
	remove []logs.Entry
	// rotate says that the current log is rotated before it is full, so that it can be removed
	// later.
	rotate bool
}

// relieve chooses what has to be removed so that all logs together take at most limit bytes, as far
// as possible. It always takes from the container whose logs are largest at that point. Rotated
// parts and logs of earlier instances are removed first. If these are not enough, current logs are
// rotated early. The logs of containers that have ended come last.
func relieve(all map[key]inventory, limit int64) map[key]relief {
	h := nodeBudget{limit: limit, sizes: map[key]int64{}, out: map[key]relief{}}
	for k, i := range all {
		h.sizes[k] = i.size()
		h.total += h.sizes[k]
	}
	h.give(all, false)
	h.rotate(all)
	h.give(all, true)
	return h.out
}

// nodeBudget follows the sizes of all logs while relieve chooses.
type nodeBudget struct {
	limit, total int64
	sizes        map[key]int64
	out          map[key]relief
}

// give chooses files to remove until there is enough room, or until no file may be removed.
func (h *nodeBudget) give(all map[key]inventory, last bool) {
	left := map[key][]logs.Entry{}
	for k, i := range all {
		files := slices.DeleteFunc(i.removable(last), func(e logs.Entry) bool {
			return slices.Contains(h.out[k].remove, e)
		})
		if len(files) > 0 {
			left[k] = files
		}
	}
	for h.total > h.limit && len(left) > 0 {
		k := h.largest(left)
		r := h.out[k]
		r.remove = append(r.remove, left[k][0])
		h.take(k, left[k][0].Size)
		h.out[k] = r
		if left[k] = left[k][1:]; len(left[k]) == 0 {
			delete(left, k)
		}
	}
}

// rotate has the largest current logs rotated. Their parts can be removed afterwards.
func (h *nodeBudget) rotate(all map[key]inventory) {
	left := map[key][]logs.Entry{}
	for k, i := range all {
		for _, e := range i.entries {
			if e.Name == i.live && e.Size >= leastRotated {
				left[k] = []logs.Entry{e}
			}
		}
	}
	for h.total > h.limit && len(left) > 0 {
		k := h.largest(left)
		r := h.out[k]
		r.rotate = true
		h.out[k] = r
		h.take(k, left[k][0].Size)
		delete(left, k)
	}
}

func (h *nodeBudget) take(k key, size int64) {
	h.sizes[k] -= size
	h.total -= size
}

// largest returns the container with the largest logs, among those that can give something up. For
// equal sizes, it returns the first by name.
func (h *nodeBudget) largest(left map[key][]logs.Entry) key {
	return slices.MaxFunc(slices.Collect(maps.Keys(left)), func(a, b key) int {
		if h.sizes[a] != h.sizes[b] {
			return int(min(max(h.sizes[a]-h.sizes[b], -1), 1))
		}
		return strings.Compare(string(b), string(a))
	})
}
