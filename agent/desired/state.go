package desired

import (
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/internal/pods"
)

// State has the pods that the sources want, and knows which sources have said what they want. In
// the zero value, no source has said anything.
type State struct {
	mu   sync.Mutex
	last source.Update
	// files has the manifest of each pod.
	files map[types.UID]origin
}

// origin is the file that a pod came from, and the file's arrival (see [source.Result]).
type origin struct {
	file    string
	arrival int
}

// returned reports whether the file of before was deleted and is there again now.
func (o origin) returned(now origin) bool {
	return o.file == now.file && o.arrival != now.arrival && o.arrival != 0 && now.arrival != 0
}

// set replaces the wanted pods, and reports whether this is the first update with the API server's
// pods.
func (s *State) set(u source.Update) (firstOfAPI bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	firstOfAPI = u.Ready[pods.SourceAPI] && !s.last.Ready[pods.SourceAPI]
	s.last = u
	return firstOfAPI
}

// Ready reports whether the source of that name has said what it wants. If the name is empty or
// unknown, Ready reports whether every source has.
func (s *State) Ready(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return name != "" && s.last.Ready[name] || s.last.AllReady
}

// AllReady reports whether every source has said what it wants.
func (s *State) AllReady() bool { return s.Ready("") }

// ReadAPI reports whether the API server has said which pods it has.
func (s *State) ReadAPI() bool { return s.Ready(pods.SourceAPI) }

// StaticReady reports whether every source of static pods has said what it wants.
func (s *State) StaticReady() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, ready := range s.last.Ready {
		if name != pods.SourceAPI && !ready {
			return false
		}
	}
	return s.last.Ready != nil
}

// Pod returns the pod as its source wants it; nil if no source wants the pod.
func (s *State) Pod(uid types.UID) *v1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last.Pods[uid]
}

// Wants reports whether a source wants the pod.
func (s *State) Wants(uid types.UID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.last.Pods[uid]
	return ok
}

// File returns the manifest that the pod came from; empty if the manifest is not known.
func (s *State) File(uid types.UID) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.files[uid].file
}

// setFiles replaces the files of the pods, and returns the files of before; nil if none were set.
func (s *State) setFiles(files map[types.UID]origin) (before map[types.UID]origin) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, s.files = s.files, files
	return before
}

// Validated returns the validation result of each document of each manifest.
func (s *State) Validated() []source.Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last.Results
}
