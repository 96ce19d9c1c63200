package thread

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// f runs on a thread that nobody has afterwards, whatever thread the caller has.
func TestOwn(t *testing.T) {
	want := errors.New("it failed")
	for range 50 {
		var id int
		err := Own(func() error {
			id = unix.Gettid()
			return want
		})
		if !errors.Is(err, want) || id == unix.Getpid() || id == unix.Gettid() {
			t.Fatalf("on thread %d of process %d, called on %d: %v", id, unix.Getpid(), unix.Gettid(), err)
		}
	}
}
