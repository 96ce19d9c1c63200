package cgroups

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"golang.org/x/sys/unix"
)

const (
	// removeBound is the longest time of a removal whose context has no deadline: a process that
	// sleeps in the kernel may never end.
	removeBound = 30 * time.Second
	// firstWait and longestWait are the pauses between two attempts. The kernel frees the cgroup of
	// a killed process within milliseconds.
	firstWait   = 2 * time.Millisecond
	longestWait = 100 * time.Millisecond
)

// RemovePod kills the processes that are left in a pod's cgroup, and removes the cgroup with
// everything below it. It does so in all hierarchies and for every quality-of-service class. It
// works even if EnsurePod never ran, and succeeds if there is nothing to remove.
//
// RemovePod waits for processes to end until ctx ends, at most 30 s. The error then names the
// processes, and a later call continues.
func (m *Manager) RemovePod(ctx context.Context, uid types.UID) error {
	if !m.config.CgroupsPerQOS {
		return nil
	}
	if err := validUID(uid); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, removeBound)
	defer cancel()
	var errs []error
	for _, class := range QOSClasses() {
		if err := m.removeTree(ctx, m.layout.PodPath(uid, class)); err != nil {
			errs = append(errs, fmt.Errorf("remove cgroup of pod %s: %w", uid, err))
		}
	}
	if len(errs) == 0 {
		m.mu.Lock()
		delete(m.made, uid)
		m.mu.Unlock()
	}
	return errors.Join(errs...)
}

// removeTree kills the processes in one cgroup and removes it.
func (m *Manager) removeTree(ctx context.Context, path string) error {
	dirs := existing(m.host.dirs(path))
	if len(dirs) == 0 {
		return nil
	}
	begun := time.Now()
	defer func() { m.observe(opDestroy, time.Since(begun)) }()
	if m.layout.Driver == Systemd {
		if err := killAll(dirs); err != nil {
			return err
		}
		mgr, err := m.library(path, Limits{AnyHugePages: true})
		if err != nil {
			return err
		}
		// Destroy stops the slice. The loop below removes what it leaves.
		if err := mgr.Destroy(); err != nil {
			m.log.Debug("Stopping a slice failed", "cgroup", path, "err", err)
		}
	}
	for wait := firstWait; ; wait = min(2*wait, longestWait) {
		if err := killAll(dirs); err != nil {
			return err
		}
		if dirs = removeDirs(dirs); len(dirs) == 0 {
			return nil
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return fmt.Errorf("%s is still in use by processes %v: %w", strings.Join(dirs, ", "), pidsBelow(dirs),
				ctx.Err())
		}
	}
}

func existing(dirs []string) []string {
	return slices.DeleteFunc(slices.Clone(dirs), func(dir string) bool {
		_, err := os.Lstat(dir)
		return errors.Is(err, fs.ErrNotExist)
	})
}

// removeDirs removes cgroups, deepest first, and returns those that are left.
func removeDirs(dirs []string) []string {
	var left []string
	for _, dir := range dirs {
		for _, sub := range slices.Backward(treeOf(dir)) {
			_ = unix.Rmdir(sub) // the next attempt removes what is still in use
		}
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			left = append(left, dir)
		}
	}
	return left
}

// treeOf lists a cgroup and the cgroups below it, parents first. It leaves out cgroups that end at
// the same time.
func treeOf(dir string) []string {
	var tree []string
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			tree = append(tree, path)
		}
		return nil
	})
	return tree
}

// Teardown removes the cgroups of the classes and of all pods, and the root if nothing else is in
// it. It fails if pods are left. Call it only when the node is taken out of service: an agent that
// ends leaves all cgroups to the next agent.
func (m *Manager) Teardown(ctx context.Context) error {
	if !m.config.CgroupsPerQOS {
		return nil
	}
	left, err := m.List(ctx)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return fmt.Errorf("remove cgroup of all pods: cgroups of pods %v are below it, which this agent does not have: "+
			"another agent with the same cgroupRoot has them, or their root directory was removed before they ended", left)
	}
	m.mu.Lock()
	m.nodeLimited = false
	m.mu.Unlock()
	var errs []error
	for _, path := range []string{
		m.layout.ClassPath(corev1.PodQOSBurstable), m.layout.ClassPath(corev1.PodQOSBestEffort), m.layout.PodsPath(),
	} {
		errs = append(errs, m.removeEmpty(path))
	}
	for path := m.layout.RootPath(); path != "/"; path = filepath.Dir(path) {
		for _, dir := range m.host.dirs(path) {
			_ = unix.Rmdir(dir) // cgroups of others may be in it
		}
	}
	return errors.Join(errs...)
}

// removeEmpty removes an empty cgroup.
func (m *Manager) removeEmpty(path string) error {
	dirs := existing(m.host.dirs(path))
	if len(dirs) > 0 && m.layout.Driver == Systemd {
		mgr, err := m.library(path, Limits{AnyHugePages: true})
		if err != nil {
			return err
		}
		return mgr.Destroy()
	}
	var errs []error
	for _, dir := range dirs {
		if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
			errs = append(errs, fmt.Errorf("remove cgroup %s: %w", dir, err))
		}
	}
	return errors.Join(errs...)
}
