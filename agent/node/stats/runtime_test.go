package stats

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// silentMachine is a machine whose runtime does not answer.
type silentMachine struct{ *machine }

func (s silentMachine) ListContainerStats(
	ctx context.Context, _ *runtimeapi.ContainerStatsFilter,
) ([]*runtimeapi.ContainerStats, error) {
	s.calls.Add(1)
	<-ctx.Done()
	return nil, ctx.Err()
}

func (s silentMachine) ImageFsInfo(ctx context.Context) (*runtimeapi.ImageFsInfoResponse, error) {
	s.calls.Add(1)
	<-ctx.Done()
	return nil, ctx.Err()
}

// A runtime that does not answer holds each request up for a short time, and none of the requests
// that do not need it. What it said before stays.
func TestSilentRuntime(t *testing.T) {
	cfg := files(t)
	synctest.Test(t, func(t *testing.T) {
		m := &machine{began: time.Now(), cores: 1}
		c := collector(cfg, m)
		c.Summary(t.Context(), false)
		time.Sleep(sizePeriod)
		c.deps.Runtime = silentMachine{m}
		m.calls.Store(0)
		for name, request := range map[string]func(){
			"summary": func() { c.Summary(t.Context(), false) },
			"node":    func() { c.Node(t.Context()) },
			"storage": func() { c.Storage(t.Context(), map[types.UID]bool{"u-web": true}) },
			"scrape":  func() { scrape(t, c, "main") },
		} {
			began, ended := time.Now(), false
			go func() {
				request()
				ended = true
			}()
			synctest.Wait()
			if _, err := c.Resource().Gather(); err != nil || len(c.Summary(t.Context(), true).Pods) != 1 ||
				time.Since(began) != 0 {
				t.Errorf("%s: another request took %s: %v", name, time.Since(began), err)
			}
			time.Sleep(patience)
			if synctest.Wait(); !ended {
				t.Errorf("%s takes longer than %s", name, patience)
			}
			time.Sleep(runtimeTimeout)
		}
		s := c.Summary(t.Context(), false)
		if main := s.Pods[0].Containers[0]; *s.Pods[0].EphemeralStorage.UsedBytes < *main.Logs.UsedBytes+4096 {
			t.Errorf("what the layer took is forgotten: %+v", s.Pods[0].EphemeralStorage)
		}
		time.Sleep(runtimeTimeout)
		m.calls.Store(0)
		if scrape(t, c, "main"); m.calls.Load() != 0 {
			t.Errorf("the scrape after a failure asks again at once")
		}
	})
}

// What containers have open is counted on the pod's budget: as long as that is taken, a scrape has
// all but that.
func TestOpenFilesAreOnTheBudget(t *testing.T) {
	cfg := files(t)
	if err := os.MkdirAll(filepath.Join(cfg.Proc, "7", "fd"), 0o755); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		c := collector(cfg, &machine{began: time.Now(), cores: 1})
		taken := make(chan struct{})
		go func() {
			_ = c.budget.spend(t.Context(), "u-web", func(*turn) error { <-taken; return nil })
		}()
		synctest.Wait()
		began := time.Now()
		got := scrape(t, c, "main")
		if slices.Contains(got, "container_file_descriptors{} 0") || !slices.Contains(got, "container_processes{} 2") ||
			time.Since(began) != patience {
			t.Errorf("after %s: %q", time.Since(began), got)
		}
		close(taken)
		synctest.Wait()
		if got := scrape(t, c, "main"); !slices.Contains(got, "container_file_descriptors{} 0") {
			t.Errorf("the count has its turn, and there is %q", got)
		}
		m := &machine{gone: true}
		c.deps.Cgroups = func() Cgroups { return m }
		if scrape(t, c, "main"); len(c.files.known) != 0 {
			t.Errorf("of containers that are gone remains %v", c.files.known)
		}
	})
}

// A block device whose opening hangs holds nobody up, and is not opened a second time.
func TestLocalDeviceThatHangs(t *testing.T) {
	c, _ := driven(t)
	dir := filepath.Join(c.cfg.RootDir, "pods/uid/volumeDevices/kubernetes.io~local-volume")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "pv-1")
	if err := unix.Mkfifo(path, 0o600); err != nil { // to open it takes until somebody writes
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 3 {
		c.volumes(ctx, c.deps.Pods()[0], false)
	}
	c.spaces.mu.Lock()
	of := c.spaces.known[dirKey{"uid", path}]
	opening := of != nil && of.busy
	c.spaces.mu.Unlock()
	if !opening {
		t.Fatal("the device is not being opened")
	}
	done := of.done
	writer, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	<-done
	if err := writer.Close(); err != nil {
		t.Error(err)
	}
}
