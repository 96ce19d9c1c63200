package lock

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthd/berth/configs"
)

func TestLockKeepsASecondAgentOut(t *testing.T) {
	dir := t.TempDir()
	cfg := &configs.Config{Flags: configs.Flags{RootDir: dir}}
	held, err := Take(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Take(cfg); err == nil || !strings.Contains(err.Error(), "another agent holds") {
		t.Fatalf("second lock: %v", err)
	}
	held.Release()
	again, err := Take(cfg)
	if err != nil {
		t.Fatalf("lock given back is not free: %v", err)
	}
	again.Release()
}

func TestWatchLockEndsOnContention(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lock")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	options := configs.LockOptions{File: file, ExitOnContention: true}
	done := make(chan error, 1)
	go func() { done <- Watch(t.Context(), options) }()
	for {
		select {
		case err := <-done:
			if !errors.Is(err, errContended) {
				t.Fatal(err)
			}
			return
		default:
			f, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			_ = f.Close()
		}
	}
}
