package agent

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthd/berth/configs"
)

func TestLockKeepsASecondAgentOut(t *testing.T) {
	dir := t.TempDir()
	cfg := &configs.Config{Flags: configs.Flags{RootDir: dir}}
	unlock, err := lock(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock(cfg); err == nil || !strings.Contains(err.Error(), "another agent holds") {
		t.Fatalf("second lock: %v", err)
	}
	unlock()
	again, err := lock(cfg)
	if err != nil {
		t.Fatalf("lock given back is not free: %v", err)
	}
	again()
}

func TestWatchLockEndsOnContention(t *testing.T) {
	file := filepath.Join(t.TempDir(), "lock")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a := &Agent{log: slog.New(slog.DiscardHandler), cfg: &configs.Config{Flags: configs.Flags{
		Lock: configs.LockOptions{File: file, ExitOnContention: true},
	}}}
	done := make(chan error, 1)
	go func() { done <- a.watchLock(t.Context()) }()
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
