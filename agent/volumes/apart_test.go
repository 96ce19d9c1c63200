package volumes

import (
	"errors"
	"os"
	"strconv"
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

// One silent server does not take the places of the others.
func TestPlacesOfServers(t *testing.T) {
	p := &places{taken: map[string]int{}}
	var gives []func()
	take := func(server string, want bool) {
		t.Helper()
		give, err := p.take(server)
		if (err == nil) != want {
			t.Errorf("a place for %s with %v taken: %v", server, p.taken, err)
		}
		if err == nil {
			gives = append(gives, give)
		}
	}
	for range maxOfServer {
		take("silent", true)
	}
	take("silent", false)
	take("another", true)
	gives[0]()
	take("silent", true)
	for i := range maxApart - maxOfServer - 1 {
		take(strconv.Itoa(i/maxOfServer), true)
	}
	take("last", false)
	for _, give := range gives[1:] {
		give()
	}
	if p.all != 0 || len(p.taken) != 0 {
		t.Errorf("%d places are taken: %v", p.all, p.taken)
	}
}
