package volumes

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	if code, own := RunApart(os.Args); own {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// Steps are done in a process of its own, whose errors are the kernel's.
func TestApart(t *testing.T) {
	needRoot(t)
	target := mountDir(t)
	apart := Apart()
	for _, c := range []struct {
		step    apartStep
		mounted bool // before
		want    error
	}{
		{apartAsk, true, nil},
		{apartUnmount, true, nil},
		{apartUnmount, false, unix.EINVAL},
		{apartDetach, true, nil},
		{apartAbort, true, nil},
		{"nonsense", false, unix.EINVAL},
	} {
		if c.mounted {
			mustMount(t, "none", target, "tmpfs")
		}
		if err := apart("server", string(c.step), target); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.step, err, c.want)
		}
		if c.step == apartAsk {
			must(t, apartUnmount.do(target))
		}
		if mounted, err := inMountTable(target); mounted || err != nil {
			t.Errorf("%s: still mounted: %v, %v", c.step, mounted, err)
		}
	}
	busy, err := os.Create(target + "/file")
	must(t, err)
	must(t, busy.Close())
	mustMount(t, "none", target, "tmpfs")
	if busy, err = os.Create(target + "/file"); err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	if err := apart("server", string(apartUnmount), target); !errors.Is(err, unix.EBUSY) {
		t.Errorf("a busy mount: %v", err)
	}
}
