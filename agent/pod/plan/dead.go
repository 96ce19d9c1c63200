package plan

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// DeadLimits say which ended attempts of containers are kept for their logs, as a kubelet's flags
// do. The zero value keeps the newest one of each container.
type DeadLimits struct {
	// PerContainer is how many are kept of each container; below 0 all are. The newest one is kept
	// in any case, because it says how long the next one has to wait.
	PerContainer int
	// MinAge is how long ago an attempt must have been made before it is removed.
	MinAge time.Duration
}

// sparesNumber reports whether an attempt is kept beside so many newer ones that have ended.
func (l DeadLimits) sparesNumber(newer int) bool {
	return l.PerContainer < 0 || newer < max(l.PerContainer, 1)
}

// until returns when an attempt is old enough to be removed. created is in nanoseconds since 1970.
func (l DeadLimits) until(created int64) time.Time { return time.Unix(0, created).Add(l.MinAge) }

// spares reports whether an attempt is too young to be removed. One that was made in the future is
// not: the clock was put back.
func (l DeadLimits) spares(created int64, now time.Time) bool {
	return now.Before(l.until(created)) && !time.Unix(0, created).After(now)
}

// earlier returns the earlier of two times. The zero time means never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}

// Dead is an ended attempt of a container on the node.
type Dead struct {
	Pod           types.UID
	Container, ID string
	// Created is when it was made, in nanoseconds since 1970.
	Created int64
	// Needed says that decisions about the pod need it: it is not removed, and counts.
	Needed bool
}

// Surplus returns the dead containers to be removed, the oldest first, so that the node has at most
// so many. It follows the kubelet: each container may have an equal share of them, at least one. If
// these are still too many, the oldest ones go.
func Surplus(dead []Dead, most int) []Dead {
	if most < 0 || len(dead) <= most {
		return nil
	}
	dead = slices.Clone(dead)
	slices.SortStableFunc(dead, func(a, b Dead) int { return cmp.Compare(b.Created, a.Created) }) // newest first
	type unit struct {
		pod       types.UID
		container string
	}
	units := map[unit]int{}
	for _, d := range dead {
		units[unit{d.Pod, d.Container}]++
	}
	share := max(most/len(units), 1)
	clear(units)
	var left, out []Dead
	for _, d := range dead {
		u := unit{d.Pod, d.Container}
		if units[u]++; units[u] > share && !d.Needed {
			out = append(out, d)
		} else {
			left = append(left, d)
		}
	}
	for over := len(left) - most; over > 0 && len(left) > 0; left = left[:len(left)-1] {
		if oldest := left[len(left)-1]; !oldest.Needed {
			out = append(out, oldest)
			over--
		}
	}
	slices.SortStableFunc(out, func(a, b Dead) int { return cmp.Compare(a.Created, b.Created) })
	return out
}
