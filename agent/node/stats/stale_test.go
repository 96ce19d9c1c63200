package stats

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"

	"github.com/berthd/berth/internal/silent"
	"github.com/berthd/berth/test/env"
)

// silentVolume mounts a volume of the pod u-web, whose server can fall silent.
func silentVolume(t *testing.T) (cfg Config, dir string, server *env.SilentServer) {
	t.Helper()
	if unix.Geteuid() != 0 || unix.Access("/dev/fuse", unix.R_OK|unix.W_OK) != nil {
		t.Skip("needs root and FUSE: it mounts a file system")
	}
	cfg = files(t)
	dir = filepath.Join(cfg.RootDir, "pods/u-web/volumes/kubernetes.io~nfs/share")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return cfg, dir, env.MountSilent(t, dir)
}

// A volume whose server falls silent has its last stats, with the time at which they were true.
// Nobody waits for its server but what measures it.
func TestVolumeOfASilentServer(t *testing.T) {
	cfg, dir, server := silentVolume(t)
	c := collector(cfg, &machine{began: time.Now(), cores: 1})
	pod := podsOf(&machine{})[0]
	measured := c.spaceOf(pod.UID, dir)
	<-measured.done
	before, ok := measured.value(t.Context())
	if !ok || before.host == nil || !before.mounted {
		t.Fatalf("of a server that answers: %+v", before)
	}
	if age := time.Since(before.host.Time.Time); age < 0 || age > time.Hour {
		t.Errorf("the stats are of %s", before.host.Time)
	}
	server.FallSilent()
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // who asks has no time
	shares := make(chan *statsapi.FsStats)
	go func() {
		defer close(shares)
		for range 3 {
			shares <- volumeOf(ctx, c, pod, "share")
		}
	}()
	for range 3 {
		select {
		case got := <-shares:
			if got == nil || !got.Time.Equal(&before.host.Time) || *got.CapacityBytes != *before.host.CapacityBytes {
				t.Errorf("while the server is silent: %+v, want %+v", got, before.host)
			}
		case <-time.After(5 * time.Minute):
			t.Error("the stats wait for the server")
		}
	}
	server.Close() // which ends all that waits
	<-shares
	c.spaces.mu.Lock()
	done := c.spaces.known[dirKey{pod.UID, dir}].done
	c.spaces.mu.Unlock()
	<-done
}

// volumeOf returns the stats of a pod's volume; nil if there are none.
func volumeOf(ctx context.Context, c *Collector, pod *v1.Pod, name string) *statsapi.FsStats {
	all, _ := c.volumes(ctx, pod, false)
	for i := range all {
		if all[i].Name == name {
			return &all[i].FsStats
		}
	}
	return nil
}

// The directories of a pod are counted on the pod's budget: as long as that is taken, their sizes
// are not known, and all else is.
func TestDirectoriesAreOnTheBudget(t *testing.T) {
	cfg := files(t)
	synctest.Test(t, func(t *testing.T) {
		c := collector(cfg, &machine{began: time.Now(), cores: 1})
		taken := make(chan struct{})
		go func() {
			_ = c.budget.spend(t.Context(), "u-web", func(*turn) error { <-taken; return nil })
		}()
		synctest.Wait()
		look := func() (volume, logs *statsapi.FsStats) {
			pod := c.Storage(t.Context(), map[types.UID]bool{"u-web": false})["u-web"]
			return &pod.VolumeStats[0].FsStats, pod.Containers[0].Logs
		}
		began := time.Now()
		if volume, logs := look(); volume.UsedBytes != nil || logs.UsedBytes != nil || *volume.CapacityBytes == 0 ||
			time.Since(began) != patience {
			t.Errorf("the budget is taken, and after %s there are %+v and %+v", time.Since(began), volume, logs)
		}
		close(taken)
		synctest.Wait()
		if volume, logs := look(); volume.UsedBytes == nil || *volume.UsedBytes < 10000 || logs.UsedBytes == nil {
			t.Errorf("the counts have their turn, and there are %+v and %+v", volume, logs)
		}
	})
}

// A measurement of a volume waits while too many wait for the volume's server already, with no
// thread in the kernel.
func TestMeasurementsOfASilentServerAreBounded(t *testing.T) {
	cfg, dir, _ := silentVolume(t)
	c := collector(cfg, &machine{began: time.Now(), cores: 1})
	c.deps.Looks = silent.NewLooks(cfg.RootDir)
	var leaves []func()
	for range silent.MostOfServer {
		leave, err := c.deps.Looks.Enter(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		leaves = append(leaves, leave)
	}
	measured := c.spaceOf("u-web", dir)
	env.Eventually(t, "the measurement to wait", func() error {
		select {
		case <-measured.done:
			t.Fatal("it has no place, and was made")
		default:
		}
		if c.deps.Looks.Full(dir) == "" {
			return errors.New("it does not wait")
		}
		return nil
	})
	leaves[0]()
	<-measured.done
	if now, ok := measured.value(t.Context()); !ok || !now.mounted {
		t.Errorf("measured %v, %+v", ok, now)
	}
}
