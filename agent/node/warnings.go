package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/utils/ptr"

	"github.com/berthd/berth/agent/pod/generate"
)

// Warnings returns what is wrong with the node from the start on, as events about the Node in the
// kubelet's words: search domains that no pod can get, and memory that is written to disk.
func (n *Node) Warnings() []generate.Warning {
	n.refresh()
	n.mu.Lock()
	defer n.mu.Unlock()
	var out []generate.Warning
	if path := ptr.Deref(n.cfg.Kubelet.ResolverConfig, ""); path != "" && n.resolv != nil {
		out = append(out, generate.CheckSearches(path, n.resolv.Searches, n.cfg.Kubelet.ClusterDomain)...)
	}
	if to, err := Swap(); err == nil && to != "" && !tmpfsNeverSwaps() {
		out = append(out, generate.Warning{
			Reason: "PossibleMemoryBackedVolumesOnDisk",
			Message: "The tmpfs noswap option is not supported. Memory-backed volumes (e.g. secrets, emptyDirs, etc.) " +
				"might be swapped to disk and should no longer be considered secure.",
		})
	}
	return out
}

// Swap returns where this machine swaps to; empty if it does not swap.
func Swap() (to string, err error) {
	data, err := os.ReadFile("/proc/swaps")
	if errors.Is(err, fs.ErrNotExist) { // a kernel without swap
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("looking for swap: %w", err)
	}
	return swapIn(string(data)), nil
}

// swapIn returns the first file or device of a /proc/swaps.
func swapIn(table string) string {
	lines := strings.Split(strings.TrimSpace(table), "\n") // the first line is the heading
	if len(lines) < 2 {
		return ""
	}
	return strings.Fields(lines[1])[0]
}

// tmpfsNeverSwaps reports whether the kernel can keep a tmpfs out of swap (from Linux 6.4 on). It
// mounts nothing.
func tmpfsNeverSwaps() bool {
	fd, err := unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Close(fd) }()
	return unix.FsconfigSetFlag(fd, "noswap") == nil
}
