package logs

import (
	"maps"
	"slices"
	"strings"

	"github.com/berthd/berth/cri/logs"
)

// key names a container of a pod, by the path of its log directory beneath the root.
type key string

// relief is what one container gives up for the node's sake.
type relief struct {
	remove []logs.Entry
	// rotate says that its log is rotated before it is full, so that it can be removed.
	rotate bool
}

// relieve picks what has to go for all logs together to take at most limit bytes, as far as that can be had: always from the container that takes most then. Rotated
// parts and earlier instances' logs go first; where these are not enough, logs that are written are rotated early; and last go the logs of containers that have
// ended.
func relieve(all map[key]inventory, limit int64) map[key]relief {
	h := hoard{limit: limit, sizes: map[key]int64{}, out: map[key]relief{}}
	for k, i := range all {
		h.sizes[k] = i.size()
		h.total += h.sizes[k]
	}
	h.give(all, false)
	h.rotate(all)
	h.give(all, true)
	return h.out
}

// hoard is all logs on their way to being less.
type hoard struct {
	limit, total int64
	sizes        map[key]int64
	out          map[key]relief
}

// give removes files until there is enough room, or none is left that may go.
func (h *hoard) give(all map[key]inventory, last bool) {
	left := map[key][]logs.Entry{}
	for k, i := range all {
		files := slices.DeleteFunc(i.removable(last), func(e logs.Entry) bool { return slices.Contains(h.out[k].remove, e) })
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

// rotate has the largest logs that are written rotated; what they hold can go afterwards.
func (h *hoard) rotate(all map[key]inventory) {
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

func (h *hoard) take(k key, size int64) {
	h.sizes[k] -= size
	h.total -= size
}

// largest returns the container that takes most, of those that have something to give; of equals, the first by name.
func (h *hoard) largest(left map[key][]logs.Entry) key {
	return slices.MaxFunc(slices.Collect(maps.Keys(left)), func(a, b key) int {
		if h.sizes[a] != h.sizes[b] {
			return int(min(max(h.sizes[a]-h.sizes[b], -1), 1))
		}
		return strings.Compare(string(b), string(a))
	})
}
