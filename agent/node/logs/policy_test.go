package logs

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/berthd/berth/cri/logs"
)

const mib = 1 << 20

// usual is the policy of the default settings.
func usual() policy {
	return policy{size: 10 * mib, files: 5, container: 100 * mib, node: 1 << 40, interval: 10 * time.Second}
}

func TestJudge(t *testing.T) {
	tight := usual()
	tight.container = 8 * mib
	huge := usual()
	huge.size, huge.container = 1<<40, 1<<50
	for name, c := range map[string]struct {
		policy      policy
		observation observation
		want        decision
	}{
		"nothing was written": {
			usual(), observation{size: 5, before: 5, since: time.Hour, room: 1 << 40}, decision{},
		},
		"truncated by somebody": {
			usual(), observation{size: 0, before: 5, since: time.Second, room: 1 << 40}, decision{},
		},
		"full": {
			usual(),
			observation{size: 10 * mib, before: 10 * mib, since: time.Second, room: 1 << 40},
			decision{rotate: true},
		},
		"full by half of a tight bound": {
			tight, observation{size: 4 * mib, before: 4 * mib, room: 1 << 40}, decision{rotate: true},
		},
		"not full by half of it": {
			tight, observation{size: 4*mib - 1, before: 4*mib - 1, room: 1 << 40}, decision{},
		},
		"others leave no room": {
			usual(), observation{size: mib, before: mib, others: 100 * mib, room: 1 << 40}, decision{rotate: true},
		},
		"slow: before a burst fills it": {
			usual(),
			observation{size: mib + 100, before: mib, since: time.Second, others: 9*mib - 100, room: 1 << 40},
			decision{wait: 225 * time.Millisecond, rate: 100},
		},
		"fast: before it is full": {
			usual(),
			observation{size: 5 * mib, before: 0, since: 100 * time.Millisecond, room: 1 << 40},
			decision{wait: 100 * time.Millisecond, rate: 50 * mib},
		},
		"the node has less room": {
			usual(),
			observation{size: mib, before: 0, since: time.Hour, room: 4 * mib},
			decision{wait: 10 * time.Millisecond, rate: float64(mib) / 3600},
		},
		"the node has no room at all": {
			usual(),
			observation{size: mib, before: 0, since: time.Hour, others: 59 * mib, room: -1},
			decision{wait: 100 * time.Millisecond, rate: float64(mib) / 3600},
		},
		"never sooner than the least wait": {
			usual(),
			observation{size: 10*mib - 1, before: 0, since: time.Millisecond, room: 1 << 40},
			decision{wait: 10 * time.Millisecond, rate: float64(10*mib-1) * 100},
		},
		"never later than the interval": {
			huge,
			observation{size: mib, before: 0, since: time.Second, room: 1 << 60},
			decision{wait: 10 * time.Second, rate: mib},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := c.policy.decide(c.observation); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

func TestPressed(t *testing.T) {
	for rate, want := range map[float64]bool{0: false, 1: false, 4 * mib: false, 6 * mib: true, 1 << 40: true} {
		if got := usual().tooFast(rate); got != want {
			t.Errorf("at %.0f bytes per second: %v", rate, got)
		}
	}
}

// files makes an inventory of names and sizes.
func files(live string, sizes map[string]int64) inventory {
	i := inventory{live: live}
	for _, name := range slices.Sorted(maps.Keys(sizes)) {
		e := logs.Entry{
			Name:    name,
			Size:    sizes[name],
			Base:    name[:5],
			Attempt: int(name[0] - '0'),
			Rotated: len(name) > 5,
		}
		e.Temporary = e.Rotated && name[len(name)-4:] == ".tmp"
		i.entries = append(i.entries, e)
	}
	return i
}

func names(entries []logs.Entry) []string {
	out := []string{}
	for _, e := range entries {
		out = append(out, e.Name)
	}
	return out
}

func TestInventory(t *testing.T) {
	looping := files("2.log", map[string]int64{
		"2.log":                    5,
		"2.log.20260101-000002":    4,
		"2.log.20260101-000001.gz": 3,
		"2.log.20260101-000000":    3,
		"1.log":                    2,
		"1.log.20260101-000000":    1,
		"0.log":                    1,
	})
	between := files("0.log", map[string]int64{"0.log.20260101-000000": 3, "0.log.20260101-000001": 3})
	ended := files("", map[string]int64{"1.log": 5, "0.log": 5, "1.log.20260101-000001.gz": 1})
	crashed := files("0.log", map[string]int64{
		"0.log":                     1,
		"0.log.20260101-000000":     1,
		"0.log.20260101-000000.gz":  1,
		"0.log.20260101-000001":     1,
		"0.log.20260101-000001.tmp": 1,
	})
	three := usual()
	three.files = 3
	for name, c := range map[string]struct {
		got, want []string
	}{
		"the oldest instance's go first": {
			names(looping.removable(false)),
			[]string{
				"0.log", "1.log.20260101-000000", "1.log", "2.log.20260101-000000", "2.log.20260101-000001.gz",
				"2.log.20260101-000002",
			},
		},
		"what may be written to stays": {names(between.removable(true)), []string{"0.log.20260101-000000"}},
		"the last words of an ended container": {
			names(ended.removable(false)), []string{"0.log", "1.log.20260101-000001.gz"},
		},
		"the last words go last": {
			names(ended.removable(true)), []string{"0.log", "1.log.20260101-000001.gz", "1.log"},
		},
		"files too many":                        {names(looping.excess(three)), []string{"2.log.20260101-000000"}},
		"files enough":                          {names(looping.excess(usual())), []string{}},
		"all but the newest are compressed":     {names(looping.compressible()), []string{"2.log.20260101-000000"}},
		"the newest is not, nor what it may be": {names(between.compressible()), []string{"0.log.20260101-000000"}},
		"what a crash left": {
			names(crashed.leftovers()), []string{"0.log.20260101-000000", "0.log.20260101-000001.tmp"},
		},
		"bytes too many": {
			names(looping.over(14)), []string{"0.log", "1.log.20260101-000000", "1.log", "2.log.20260101-000000"},
		},
		"bytes just enough": {names(looping.over(19)), []string{}},
		"bytes too many, whatever could be spared": {
			names(ended.over(1)), []string{"0.log", "1.log.20260101-000001.gz"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, c.got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestRelieve(t *testing.T) {
	big := int64(leastRotated)
	all := map[key]inventory{
		"a": files("0.log", map[string]int64{"0.log": 10, "0.log.20260101-000000.gz": 30, "0.log.20260101-000001": 60}),
		"b": files("1.log", map[string]int64{"1.log": 10, "0.log": 50}),
		"c": files("", map[string]int64{"0.log": 40}),
	}
	loud := map[key]inventory{
		"quiet": files("0.log", map[string]int64{"0.log": big - 1}),
		"loud":  files("0.log", map[string]int64{"0.log": 2 * big}),
	}
	for name, c := range map[string]struct {
		all   map[key]inventory
		limit int64
		want  map[key]relief
	}{
		"room enough": {all, 200, map[key]relief{}},
		"who takes most gives first": {
			all, 199, map[key]relief{"a": {remove: part(all, "a", "0.log.20260101-000000.gz")}},
		},
		"and again whoever takes most": {
			all, 110,
			map[key]relief{"a": {remove: part(all, "a", "0.log.20260101-000000.gz", "0.log.20260101-000001")}},
		},
		"earlier instances' logs": {all, 109, map[key]relief{
			"a": {remove: part(all, "a", "0.log.20260101-000000.gz", "0.log.20260101-000001")},
			"b": {remove: part(all, "b", "0.log")},
		}},
		"last words go last": {all, 0, map[key]relief{
			"a": {remove: part(all, "a", "0.log.20260101-000000.gz", "0.log.20260101-000001")},
			"b": {remove: part(all, "b", "0.log")},
			"c": {remove: part(all, "c", "0.log")},
		}},
		"what is written is rotated early": {loud, 2 * big, map[key]relief{"loud": {rotate: true}}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(c.want, relieve(c.all, c.limit), cmp.AllowUnexported(relief{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// part returns entries of an inventory by their names.
func part(all map[key]inventory, k key, names ...string) (out []logs.Entry) {
	for _, name := range names {
		for _, e := range all[k].entries {
			if e.Name == name {
				out = append(out, e)
			}
		}
	}
	return out
}
