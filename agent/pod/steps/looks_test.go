package steps

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/berthd/berth/agent/pod/tasks"
	"github.com/berthd/berth/agent/volumes"
	"github.com/berthd/berth/internal/silent"
)

// A pod whose look at a file system lasts for too long goes without the end of the look, which
// changes nothing any more. A look that does change something holds the pod.
func TestRemoveLeavesLooksBehind(t *testing.T) {
	for name, holds := range map[string]bool{"looks": false, "mounts": true} {
		root := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			group := tasks.New(ctx, func() {}, nil)
			defer func() { cancel(); group.Wait() }()
			p := syncOf(t)
			p.Tasks, p.Log = group, slog.New(slog.DiscardHandler)
			m := volumes.New(volumes.Config{RootDir: root}, volumes.Deps{Objects: noObjects{}})
			if err := m.EnsureDirs(ctx, p.Pod); err != nil {
				t.Fatal(err)
			}
			answers, late := make(chan struct{}), make(chan error, 1)
			began := time.Now()
			if err := p.Briefly(ctx, "subPath/main/0", root, func(ctx context.Context) error {
				if holds {
					late <- tasks.Hold(ctx)
				}
				<-answers
				if !holds {
					late <- tasks.Hold(ctx)
				}
				return nil
			}); !errors.Is(err, volumes.ErrUnderWay) {
				t.Fatalf("%s: %v", name, err)
			}
			remove := func() Outcome {
				t.Helper()
				out, err := Volumes{Manager: m}.Remove(ctx, p)
				if err != nil {
					t.Errorf("%s: %v", name, err)
				}
				return out
			}
			if out := remove(); !out.Halt || !out.RetryAt.Equal(began.Add(volumes.SilentFor)) {
				t.Errorf("%s: before its time: %+v", name, out)
			}
			time.Sleep(time.Until(began.Add(volumes.SilentFor)))
			if out := remove(); out.Halt != holds || !out.RetryAt.IsZero() {
				t.Errorf("%s: after its time: %+v", name, out)
			}
			if !holds {
				group.Wait() // nobody waits for it
			}
			if _, err := os.Lstat(m.PodDir(p.Pod.UID)); errors.Is(err, os.ErrNotExist) == holds {
				t.Errorf("%s: the pod's directory: %v", name, err)
			}
			close(answers)
			if err := <-late; (err == nil) != holds {
				t.Errorf("%s: may it go on: %v", name, err)
			}
			group.Wait()
			if out := remove(); out.Halt {
				t.Errorf("%s: at its end: %+v", name, out)
			}
		})
	}
}

// Only so many looks wait in the kernel for file systems that do not answer, whosever they are. The
// others say why they wait, and come in when there is a place.
func TestLooksAreBounded(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		const crowd = silent.MostOfDisk + 2
		ctx, cancel := context.WithCancel(t.Context())
		looks := silent.NewLooks(dir)
		var inKernel atomic.Int32
		answers := make(chan struct{})
		groups := make([]*tasks.Group, crowd)
		for i := range groups {
			p := syncOf(t)
			p.Tasks, p.Looks = tasks.New(ctx, func() {}, nil), looks
			groups[i] = p.Tasks
			err := p.Briefly(ctx, fmt.Sprint(i), dir, func(context.Context) error {
				inKernel.Add(1)
				<-answers
				return nil
			})
			full := strings.Contains(fmt.Sprint(err),
				fmt.Sprintf("%d looks at local file systems are under way already", silent.MostOfDisk))
			if !errors.Is(err, volumes.ErrUnderWay) || full != (i >= silent.MostOfDisk) {
				t.Errorf("look %d: %v", i, err)
			}
		}
		if n := inKernel.Load(); n != silent.MostOfDisk {
			t.Errorf("%d looks wait in the kernel", n)
		}
		answers <- struct{}{}
		synctest.Wait()
		if n := inKernel.Load(); n != silent.MostOfDisk+1 {
			t.Errorf("%d looks have come in after the first has ended", n)
		}
		close(answers)
		cancel()
		for _, g := range groups {
			g.Wait()
		}
	})
}
