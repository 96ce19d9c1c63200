package steps

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/volumes"
)

// The runtime is not asked for a container whose volume does not answer: it would wait for the
// volume, and with it the sync.
func TestLookAtSilentSource(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: it mounts a file system")
	}
	fuse, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skipf("the kernel has no FUSE: %v", err)
	}
	dir := t.TempDir()
	p := syncOf(t)
	options := fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fuse)
	if err := unix.Mount("silent", dir, "fuse", 0, options); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = unix.Close(fuse) // which ends all that waits
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	mounts := []*runtimeapi.Mount{{HostPath: t.TempDir()}, {HostPath: "/nowhere"}, {}}
	err = volumes.ErrUnderWay
	for errors.Is(err, volumes.ErrUnderWay) { // a busy machine may need longer
		err = p.lookAt(t.Context(), "main", mounts)
	}
	if err != nil {
		t.Errorf("sources that answer: %v", err)
	}
	mounts = append(mounts, &runtimeapi.Mount{HostPath: dir})
	began := time.Now()
	for range 2 { // the second one does not begin another look
		if err := p.lookAt(t.Context(), "main", mounts); !errors.Is(err, volumes.ErrUnderWay) {
			t.Errorf("a source that does not answer: %v", err)
		}
	}
	if took := time.Since(began); took > moment+time.Minute {
		t.Errorf("the sync waited %s", took)
	}
}
