//go:build integration

package logs

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// On a full disk, a part that cannot be compressed stays as it is and no half-written file is left.
// The part is compressed once there is room.
func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.root, r.cfg.Root, r.cfg.MaxSize = dir, dir, 200_000
		r.start()
		w := r.run("web", 0)
		r.settle(time.Second)
		speak := func() {
			for range 300 { // 270 kB that cannot be compressed much
				r.write(w, noise(900))
			}
			r.settle(time.Minute)
		}
		speak()
		if err := os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 350<<10), 0o600); err != nil {
			t.Fatal(err)
		}
		speak()
		if names := r.ls("web"); len(names) != 3 || strings.HasSuffix(strings.Join(names, " "), ".gz") {
			t.Fatalf("with too little room: %v", names)
		}
		if err := os.Remove(filepath.Join(dir, "filler")); err != nil {
			t.Fatal(err)
		}
		r.settle(time.Minute)
		if names := r.ls("web"); len(names) != 3 || !strings.HasSuffix(names[1], ".gz") {
			t.Errorf("once there is room: %v", names)
		}
		if n := len(r.read("web", 0)); n != 600 {
			t.Errorf("%d of 600 lines are left", n)
		}
	})
}

// noise is text that compression does not make smaller.
func noise(n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte('!' + rand.N(90))
	}
	return string(b)
}
