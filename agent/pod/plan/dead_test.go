package plan

import (
	"slices"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestGarbageLimits(t *testing.T) {
	now := time.Unix(1_000_000, 0)
	for name, c := range map[string]struct {
		limits DeadLimits
		ages   []int // of the ended attempts in seconds, the newest first
		want   int   // how many of them are kept
		tidyIn int   // seconds
	}{
		"none given":        {DeadLimits{}, []int{1, 2, 3}, 1, 0},
		"one":               {DeadLimits{PerContainer: 1}, []int{1, 2, 3}, 1, 0},
		"two":               {DeadLimits{PerContainer: 2}, []int{1, 2, 3}, 2, 0},
		"no limit":          {DeadLimits{PerContainer: -1}, []int{1, 2, 3}, 3, 0},
		"young ones":        {DeadLimits{PerContainer: 1, MinAge: 10 * time.Second}, []int{1, 2, 9, 10, 11}, 3, 1},
		"young ones, spare": {DeadLimits{PerContainer: 2, MinAge: 10 * time.Second}, []int{1, 2, 10}, 2, 0},
		"from the future":   {DeadLimits{PerContainer: 1, MinAge: 10 * time.Second}, []int{-2, -1, 11}, 1, 0},
	} {
		in := Input{Now: now, Dead: c.limits, Pod: &v1.Pod{}}
		for i, age := range c.ages {
			attempt := parseObserved(t, "S1 ready", "web#1 exited 1 @S1 10s").Containers[0]
			attempt.Metadata.Attempt = uint32(len(c.ages) - i)
			attempt.CreatedAt = now.Unix()*1e9 - int64(age)*1e9
			in.Observed.Containers = append(in.Observed.Containers, attempt)
		}
		d := newDecision(in)
		d.garbage()
		if got := len(c.ages) - len(d.RemoveContainers); got != c.want ||
			!slices.Equal(d.RemoveContainers, in.Observed.Containers[c.want:]) {
			t.Errorf("%s: %d are kept, want %d", name, got, c.want)
		}
		want := time.Time{}
		if c.tidyIn > 0 {
			want = time.Unix(now.Unix()+int64(c.tidyIn), 0)
		}
		if !d.TidyAt.Equal(want) {
			t.Errorf("%s: tidies at %v, want %v", name, d.TidyAt, want)
		}
	}
}

func TestSurplus(t *testing.T) {
	dead := func(pod, container, id string, created int64) Dead {
		return Dead{Pod: types.UID(pod), Container: container, ID: id, Created: created}
	}
	needed := func(d Dead) Dead { d.Needed = true; return d }
	two := []Dead{dead("p", "c", "p2", 9), dead("p", "c", "p1", 8), dead("q", "c", "q1", 1)}
	many := []Dead{
		dead("p", "a", "a4", 40), dead("p", "a", "a3", 30), dead("p", "a", "a2", 20), dead("p", "a", "a1", 10),
		dead("p", "b", "b1", 5),
	}
	for name, c := range map[string]struct {
		dead []Dead
		most int
		want []string
	}{
		"no limit":              {two, -1, nil},
		"enough room":           {two, 3, nil},
		"each has its share":    {two, 2, []string{"p1"}},
		"the oldest go":         {two, 1, []string{"q1", "p1"}},
		"all go":                {two, 0, []string{"q1", "p1", "p2"}},
		"as a kubelet: too few": {many, 4, []string{"a1", "a2"}},
		"none":                  {nil, 0, nil},
		"what is needed stays": {
			[]Dead{needed(dead("p", "c", "p2", 2)), needed(dead("p", "c", "p1", 1)), dead("q", "c", "q1", 3)}, 1, []string{"q1"},
		},
		"what is needed counts": {
			[]Dead{needed(dead("p", "c", "p1", 1)), dead("q", "c", "q1", 2), dead("r", "c", "r1", 3)}, 2, []string{"q1"},
		},
	} {
		var got []string
		for _, d := range Surplus(c.dead, c.most) {
			got = append(got, d.ID)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
