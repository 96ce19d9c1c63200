package stats

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// driver answers all questions in the same way, and remembers them.
type driver struct {
	mu     sync.Mutex
	asked  []string
	answer func(context.Context) (*statsapi.FsStats, error)
}

func (d *driver) stats(ctx context.Context, pod types.UID, volume string, block bool) (*statsapi.FsStats, error) {
	d.mu.Lock()
	d.asked = append(d.asked, fmt.Sprint(pod, " ", volume, " ", block))
	answer := d.answer
	d.mu.Unlock()
	return answer(ctx)
}

// questions waits until nobody is asked any more, and returns the questions so far, sorted.
func (d *driver) questions() []string {
	synctest.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(slices.Values(d.asked))
}

// answers forgets the questions, and sets the answer to the next.
func (d *driver) answers(answer func(context.Context) (*statsapi.FsStats, error)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.asked, d.answer = nil, answer
}

// driven is a pod with volumes of CSI drivers: a claim, one that is a block device, and its own;
// and with an emptyDir.
func driven(t *testing.T) (*Collector, *driver) {
	t.Helper()
	root := t.TempDir()
	base := filepath.Join(root, "pods", "uid")
	for _, dir := range []string{
		"volumes/kubernetes.io~csi/pv-1", "volumes/kubernetes.io~csi/own", "volumes/kubernetes.io~empty-dir/tmp",
		"volumeDevices/kubernetes.io~csi",
	} {
		if err := os.MkdirAll(filepath.Join(base, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/nowhere", filepath.Join(base, "volumeDevices/kubernetes.io~csi/pv-2")); err != nil {
		t.Fatal(err)
	}
	pod := &v1.Pod{}
	pod.Namespace, pod.Name, pod.UID = "ns", "pod", "uid"
	claim := func(name string) v1.VolumeSource {
		return v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{ClaimName: name}}
	}
	pod.Spec.Volumes = []v1.Volume{
		{Name: "one", VolumeSource: claim("files")},
		{Name: "two", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{}}},
		{Name: "own", VolumeSource: v1.VolumeSource{CSI: &v1.CSIVolumeSource{}}},
		{Name: "tmp", VolumeSource: v1.VolumeSource{EmptyDir: &v1.EmptyDirVolumeSource{}}},
	}
	d := &driver{answer: func(context.Context) (*statsapi.FsStats, error) {
		return &statsapi.FsStats{CapacityBytes: new(uint64(1000)), UsedBytes: new(uint64(300))}, nil
	}}
	other := pod.DeepCopy() // shares the claim, and has nothing up
	other.UID = "other"
	return New(Config{RootDir: root}, Deps{
		Pods:    func() []*v1.Pod { return []*v1.Pod{pod, other} },
		Claimed: func(*v1.Pod) map[string]string { return map[string]string{"pv-1": "one", "pv-2": "two"} },
		Driver:  d.stats,
		Logger:  slog.New(slog.DiscardHandler),
	}), d
}

// Volumes have the pod's names and their claims, and drivers are asked once a minute, and only for
// what somebody asks.
func TestVolumesOfDrivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := driven(t)
		look := func(claims bool) []string {
			var out []string
			stats, _ := c.volumes(t.Context(), c.deps.Pods()[0], claims)
			for _, v := range stats {
				text := v.Name
				if v.PVCRef != nil {
					text += " of " + v.PVCRef.Namespace + "/" + v.PVCRef.Name
				}
				if v.Name != "tmp" {
					text += fmt.Sprint(" ", *v.UsedBytes, "/", *v.CapacityBytes)
				}
				out = append(out, text)
			}
			slices.Sort(out)
			return out
		}
		claims := []string{"one of ns/files 300/1000", "two of ns/pod-two 300/1000"}
		if got := look(true); !slices.Equal(got, claims) {
			t.Errorf("claims are %q", got)
		}
		if want := []string{"uid pv-1 false", "uid pv-2 true"}; !slices.Equal(d.questions(), want) {
			t.Errorf("asked for %q", d.questions())
		}
		all := []string{claims[0], "own 300/1000", "tmp", claims[1]}
		slices.Sort(all)
		for range 2 {
			if got := look(false); !slices.Equal(got, all) {
				t.Errorf("volumes are %q, want %q", got, all)
			}
		}
		if len(d.questions()) != 3 {
			t.Errorf("asked for %q", d.questions())
		}
		time.Sleep(sizePeriod)
		look(true)
		if len(d.questions()) != 5 {
			t.Errorf("a minute later asked for %q", d.questions())
		}
	})
}

// A driver that fails or hangs holds nobody up for long: what it said last stays.
func TestVolumesOfBadDrivers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := driven(t)
		if got := claimsOf(c); len(got) != 2 {
			t.Errorf("got %+v", got)
		}
		for _, bad := range []func(context.Context) (*statsapi.FsStats, error){
			func(context.Context) (*statsapi.FsStats, error) { return nil, errors.New("it fails") },
			func(ctx context.Context) (*statsapi.FsStats, error) { <-ctx.Done(); return nil, ctx.Err() },
		} {
			time.Sleep(sizePeriod)
			d.answers(bad)
			began := time.Now()
			for range 2 {
				if got := claimsOf(c); len(got) != 2 || *got[0].UsedBytes != 300 {
					t.Errorf("got %+v", got)
				}
			}
			took := time.Since(began)
			time.Sleep(driverTimeout)
			if took > 2*patience || len(d.questions()) > 2 {
				t.Errorf("it took %v, and asked for %q", took, d.questions())
			}
		}
		time.Sleep(sizePeriod)
		// it does not tell any more
		d.answers(func(context.Context) (*statsapi.FsStats, error) { return nil, nil })
		if got := claimsOf(c); len(got) != 0 {
			t.Errorf("got %+v", got)
		}
	})
}

// The volumes of a pod that has no cgroup yet or any more are measured no second time while the
// first one hangs, whatever is asked.
func TestVolumesWithoutCgroups(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, d := driven(t)
		c.deps.Cgroups = func() Cgroups { return nil }
		hang := make(chan struct{})
		d.answers(func(context.Context) (*statsapi.FsStats, error) { <-hang; return nil, nil })
		for range 3 {
			claimsOf(c)
			c.Summary(t.Context(), true)
			time.Sleep(sizePeriod)
		}
		if got := d.questions(); len(got) != 2 {
			t.Errorf("asked for %q", got)
		}
		close(hang)
	})
}

// claimsOf returns the stats of claims.
func claimsOf(c *Collector) []statsapi.VolumeStats {
	claims, _ := c.diskStats()
	return claims
}

// The metrics are of claims, each once.
func TestClaimMetrics(t *testing.T) {
	c, _ := driven(t)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(c.DiskMetrics())
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			got = append(got,
				fmt.Sprint(f.GetName(), " ", m.GetLabel()[0].GetValue(), "/", m.GetLabel()[1].GetValue(), " ",
					m.GetGauge().GetValue()))
		}
	}
	want := "kubelet_volume_stats_capacity_bytes ns/files 1000\nkubelet_volume_stats_capacity_bytes ns/pod-two 1000\n" +
		"kubelet_volume_stats_used_bytes ns/files 300\nkubelet_volume_stats_used_bytes ns/pod-two 300"
	if text := strings.Join(got, "\n"); text != want {
		t.Errorf("got %s", text)
	}
}
