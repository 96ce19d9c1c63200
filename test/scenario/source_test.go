package scenario

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/internal/pods"
)

// manifests is the manifest directory: its files, decoded as the file source does.
type manifests struct {
	mu      sync.Mutex
	files   map[string][]byte
	silent  bool
	changed chan struct{} // of the source that runs
}

func newManifests() *manifests {
	return &manifests{files: map[string][]byte{}}
}

// put writes a manifest. It fails if the decoder accepts nothing of the manifest.
func (m *manifests) put(name string, data []byte) error {
	for _, i := range (source.Decoder{NodeName: nodeName}).Decode(name, data) {
		if !i.Result.Accepted {
			return fmt.Errorf("manifest %s: %s", name, i.Result.Message)
		}
	}
	m.change(func() { m.files[name] = data })
	return nil
}

func (m *manifests) remove(name string) { m.change(func() { delete(m.files, name) }) }

func (m *manifests) setSilent(silent bool) { m.change(func() { m.silent = silent }) }

func (m *manifests) change(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
	if m.changed != nil {
		select {
		case m.changed <- struct{}{}:
		default:
		}
	}
}

// snapshot returns the pods in the directory, false while it is silent.
func (m *manifests) snapshot() (source.Snapshot, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := source.Snapshot{Source: pods.SourceFile, Ready: true}
	for _, name := range slices.Sorted(maps.Keys(m.files)) {
		for _, i := range (source.Decoder{NodeName: nodeName}).Decode(name, m.files[name]) {
			s.Results = append(s.Results, i.Result)
			if i.Pod != nil {
				s.Pods = append(s.Pods, i.Pod)
			}
			if i.Object != nil {
				s.Objects = append(s.Objects, i.Object)
			}
		}
	}
	return s, !m.silent
}

// Name is the file source's, so that pods look as those of a manifest directory do.
func (m *manifests) Name() string { return pods.SourceFile }

// Run reports every change.
func (m *manifests) Run(ctx context.Context, out func(source.Snapshot)) error {
	changed := make(chan struct{}, 1)
	m.mu.Lock()
	m.changed = changed
	m.mu.Unlock()
	for {
		if s, ok := m.snapshot(); ok {
			out(s)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}
