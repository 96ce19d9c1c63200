package store

import (
	"context"
	"errors"
	"testing"
)

func TestWait(t *testing.T) {
	dir := t.TempDir()
	unlock, err := Lock(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(unlock)
	s, err := Start(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	ended, end := context.WithCancel(t.Context())
	end()
	if err := s.Wait(ended); err != nil {
		t.Errorf("when the context ends: %v", err)
	}
	s.etcd.Server.Stop() // as etcd does after an error of its log or its disk
	if err := s.Wait(t.Context()); !errors.Is(err, errStopped) {
		t.Errorf("when the store ends by itself: %v", err)
	}
}
