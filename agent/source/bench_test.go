package source

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// BenchmarkDecode is the cost of one manifest.
func BenchmarkDecode(b *testing.B) {
	data, err := os.ReadFile("testdata/golden/rich.yaml")
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if items := (Decoder{NodeName: "n"}).Decode("/d/f.yaml", data); !items[0].Result.Accepted {
			b.Fatal(items[0].Result)
		}
	}
}

// BenchmarkManifestSeen is the time from the start of writing a manifest to the snapshot with its
// pod, beside 100 others.
func BenchmarkManifestSeen(b *testing.B) {
	dir := b.TempDir()
	data, err := os.ReadFile("testdata/golden/rich.yaml")
	if err != nil {
		b.Fatal(err)
	}
	for i := range 100 {
		name := fmt.Sprintf("p%d", i)
		if err := os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(podManifest(name, "i")), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	snapshots, done := make(chan int, 16), make(chan error, 1)
	go func() {
		done <- NewFile(FileConfig{Path: dir, NodeName: "n", Rescan: noRescan}, FileDeps{}).Run(ctx, func(s Snapshot) {
			snapshots <- len(s.Pods)
		})
	}()
	<-snapshots
	path := filepath.Join(dir, "new.yaml")
	for b.Loop() {
		if err := os.WriteFile(path, data, 0o644); err != nil {
			b.Fatal(err)
		}
		for <-snapshots != 101 {
		}
		b.StopTimer()
		if err := os.Remove(path); err != nil {
			b.Fatal(err)
		}
		for <-snapshots != 100 {
		}
		b.StartTimer()
	}
	cancel()
	<-done
}

// BenchmarkIdleRescan is the cost of a look through 100 manifests that did not change.
func BenchmarkIdleRescan(b *testing.B) {
	dir := b.TempDir()
	for i := range 100 {
		name := fmt.Sprintf("p%d", i)
		if err := os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(podManifest(name, "i")), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	f := NewFile(FileConfig{Path: dir, NodeName: "n"}, FileDeps{})
	f.out = func(Snapshot) {}
	defer f.stopWatching()
	f.lookThrough()
	b.ReportAllocs()
	for b.Loop() {
		f.lookThrough()
	}
}
