// Package stopped keeps the static pods stopped that an operator has stopped, and restarts
// containers for operators.
//
// Purpose: [Marks] says which pods are to stay stopped. [Operator] carries out "berth stop",
// "berth start" and "berth restart".
//
// Truth owned: which static pods an operator has stopped, by the pods' full names. A file on the
// disk keeps this over restarts of the agent, changes of the manifests, and drains. A manifest that
// goes and comes back finds its pod stopped, unless it was away for so long that nobody can still
// mean the stop. A pod of an API server is never in it: only the API server says whether such a pod
// runs.
//
// Concurrency: [Marks] and [Operator] are safe for concurrent use.
package stopped

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/pod/worker"
	"github.com/berthd/berth/internal/atomicfile"
	"github.com/berthd/berth/internal/pods"
)

// mark says that a pod is to stay stopped.
type mark struct {
	// Since is when the operator stopped the pod, and Hash is the hash of the pod's manifest then.
	Since time.Time `json:"since"`
	Hash  string    `json:"hash,omitempty"`
	// Away is for how many hours of the agent's life no source has wanted the pod. The clock may
	// jump, so it is not asked.
	Away int `json:"away,omitempty"`
}

// awayLimit is the number of hours after which the mark of a pod that no source wants is forgotten:
// 30 days.
const awayLimit = 30 * 24

// Marks are the pods that operators have stopped. Make it with [Open].
type Marks struct {
	file string
	log  *slog.Logger

	mu sync.Mutex
	// byName has the marks by the pods' full names. It is replaced, and never changed.
	byName map[string]mark
}

// Open reads the marks beneath the agent's root directory. Marks that cannot be read are logged and
// count for nothing: their pods run.
func Open(rootDir string, log *slog.Logger) *Marks {
	m := &Marks{file: filepath.Join(rootDir, "berth", "stopped.json"), log: log}
	text, err := os.ReadFile(m.file)
	if errors.Is(err, fs.ErrNotExist) {
		return m
	}
	if err == nil {
		err = json.Unmarshal(text, &m.byName)
	}
	if err != nil {
		log.Error("the pods that were stopped are not known, and start: stop them again", "file", m.file, "err", err)
		m.byName = nil
	}
	return m
}

// Of returns the stop of a pod that an operator has stopped; nil for any other pod. It forgets the
// mark of a pod whose manifest has changed and asks to be started then ([pods.AnnotationStart]).
func (m *Marks) Of(pod *v1.Pod) *worker.Stop {
	m.mu.Lock()
	defer m.mu.Unlock()
	name := pods.FullName(pod)
	mark, ok := m.byName[name]
	if !ok || pods.FromAPI(pod) || pods.RuntimeOnly(pod) {
		return nil
	}
	if pod.Annotations[pods.AnnotationStart] == "true" && mark.Hash != hashOf(pod) {
		if err := m.drop(name); err != nil {
			m.log.Error("the pod starts, and is stopped again by the next agent", "pod", name, "err", err)
		}
		return nil
	}
	return &worker.Stop{
		Cause: worker.CauseOperator, Reason: pods.ReasonStopped,
		Message: fmt.Sprintf("Pod was stopped by an operator at %s. \"berth start %s\" starts it.",
			mark.Since.UTC().Format(time.RFC3339), name),
	}
}

// hashOf returns a hash that changes with a static pod's manifest.
func hashOf(pod *v1.Pod) string {
	if hash := pod.Annotations[pods.AnnotationHash]; hash != "" {
		return hash + pod.Annotations[pods.AnnotationContent]
	}
	return string(pod.UID)
}

// add marks a pod as stopped. A pod that is marked keeps its mark.
func (m *Marks) add(pod *v1.Pod) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	name := pods.FullName(pod)
	if _, ok := m.byName[name]; ok {
		return nil
	}
	next := maps.Clone(m.byName)
	if next == nil {
		next = map[string]mark{}
	}
	next[name] = mark{Since: time.Now(), Hash: hashOf(pod)}
	return m.write(next)
}

// remove forgets a mark, and reports whether there was one.
func (m *Marks) remove(pod *v1.Pod) (had bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	name := pods.FullName(pod)
	if _, ok := m.byName[name]; !ok {
		return false, nil
	}
	return true, m.drop(name)
}

// age counts an hour for the marks of pods that no source wants, and forgets those that were away
// for too long. wanted has the full names of the pods that the sources want.
func (m *Marks) age(wanted map[string]bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := map[string]mark{}
	for name, mark := range m.byName {
		if mark.Away++; wanted[name] {
			mark.Away = 0
		}
		if mark.Away < awayLimit {
			next[name] = mark
			continue
		}
		m.log.Info("the stop of a pod is forgotten: no manifest has had the pod for 30 days", "pod", name)
	}
	if maps.Equal(next, m.byName) {
		return nil
	}
	return m.write(next)
}

// drop forgets the mark of a name that has one; m.mu is held.
func (m *Marks) drop(name string) error {
	next := maps.Clone(m.byName)
	delete(next, name)
	return m.write(next)
}

// write replaces the marks, on the disk first; m.mu is held.
func (m *Marks) write(next map[string]mark) error {
	text, err := json.Marshal(next)
	if err == nil {
		err = atomicfile.Write(m.file, text, 0o600, atomicfile.OverPowerLoss)
	}
	if err != nil {
		return fmt.Errorf("recording which pods are stopped: %w", err)
	}
	m.byName = next
	return nil
}
