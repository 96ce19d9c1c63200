package runtimes

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/internal/atomicfile"
)

// notes say which runtimes may have pods of the agent.
type notes struct {
	// Kinds are the runtimes that may have pods, the one that makes new pods first. It is empty if
	// nothing was noted: another agent, or an earlier version of this one, knew only CRI sockets.
	Kinds []configs.RuntimeKind `json:"kinds"`
	// Native is where the native runtime's pods are; the zero value if it has none.
	Native place `json:"native,omitzero"`
}

// place is where a native runtime has its pods.
type place struct {
	// Address is the path of containerd's socket.
	Address string `json:"address"`
	// Namespace is a namespace of that containerd.
	Namespace string `json:"namespace"`
}

// has reports whether a runtime may have pods.
func (n notes) has(kind configs.RuntimeKind) bool { return slices.Contains(n.Kinds, kind) }

// last returns the runtime that made the newest pods; empty if nothing was noted.
func (n notes) last() configs.RuntimeKind {
	if len(n.Kinds) == 0 {
		return ""
	}
	return n.Kinds[0]
}

// notesFile is the file of the notes in a root directory.
func notesFile(rootDir string) string { return filepath.Join(rootDir, "berth", "runtimes.json") }

func readNotes(rootDir string) (notes, error) {
	var n notes
	data, err := os.ReadFile(notesFile(rootDir))
	if errors.Is(err, fs.ErrNotExist) {
		return n, nil
	}
	if err != nil {
		return n, fmt.Errorf("read which container runtimes have pods: %w", err)
	}
	if err := json.Unmarshal(data, &n); err != nil {
		return notes{}, fmt.Errorf("read which container runtimes have pods: %s is damaged, and no pod starts before that "+
			"is known: write into it {\"kinds\": [\"remote\"]} if all pods run by the CRI socket, or remove it if the node "+
			"has no pods: %w", notesFile(rootDir), err)
	}
	return n, nil
}

// write replaces the notes, if they change.
func (n notes) write(rootDir string) error {
	old, err := readNotes(rootDir)
	if err == nil && slices.Equal(old.Kinds, n.Kinds) && old.Native == n.Native {
		return nil
	}
	data, err := json.Marshal(n)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(notesFile(rootDir)), 0o750)
	}
	if err == nil {
		err = atomicfile.Write(notesFile(rootDir), data, 0o600, atomicfile.OverPowerLoss)
	}
	if err != nil {
		return fmt.Errorf("note which container runtimes have pods: %w", err)
	}
	return nil
}
