package native

import (
	"context"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
)

// A client that has left does not wait until the container reads its input.
func TestInputEndsWithItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := newInput()
		ctx, leave := context.WithCancel(t.Context())
		left := false
		go func() {
			in.feed(ctx, strings.NewReader("nobody reads this"))
			left = true
		}()
		synctest.Wait()
		if left {
			t.Error("it did not wait for the container")
		}
		leave()
		if synctest.Wait(); !left {
			t.Error("it waits without its client")
		}
	})
}

// What clients send arrives whole, in their order, until the input is ended.
func TestInput(t *testing.T) {
	in := newInput()
	var reading sync.WaitGroup
	var got []byte
	reading.Go(func() {
		var err error
		if got, err = io.ReadAll(small{in}); err != nil {
			t.Error(err)
		}
	})
	long := strings.Repeat("0123456789", 10_000)
	in.feed(t.Context(), strings.NewReader(long))
	in.feed(t.Context(), strings.NewReader("end"))
	in.end()
	reading.Wait()
	if string(got) != long+"end" {
		t.Errorf("%d bytes arrived", len(got))
	}
	in.feed(t.Context(), strings.NewReader("after the end")) // returns
	in.close()
	in.close()
}

// small reads in pieces that are smaller than those of the clients.
type small struct{ io.Reader }

func (s small) Read(p []byte) (int, error) { return s.Reader.Read(p[:min(len(p), 1000)]) }
