package env

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/internal/flock"
)

const (
	// defaultBase contains all environments. It is short because sockets are below it, and the path
	// of a socket has at most 107 bytes.
	defaultBase = "/var/lib/berth-test"
	// baseVariable names another folder in its place.
	baseVariable = "BERTH_TEST_DIR"
	// cniResults is where the CNI library keeps results. containerd has no setting for it.
	cniResults = "/var/lib/cni/results"
	// maxSlot keeps the slot within one byte of an address.
	maxSlot = 250
)

// slot is a number that this process holds.
type slot struct {
	number int
	lock   *os.File
}

// Layout has the place of everything in an environment. All of it follows from the slot.
type Layout struct {
	// Slot is the environment's number, 1 to 250.
	Slot int
	// Dir contains everything of the environment.
	Dir string
	// Endpoint is containerd's address, unix://…
	Endpoint string
	// Network is the name of the CNI network. Bridge is the network's bridge.
	Network, Bridge string
	// PodCIDR is the pods' subnet. Its first address is the node's.
	PodCIDR netip.Prefix
	// CNIConfDir has the network's config.
	CNIConfDir string
	// CNIBinDirs have the CNI plugins.
	CNIBinDirs []string
	// CgroupRoot is the parent of all pods' cgroups, as a path in each hierarchy. It has no dash,
	// because a dash in the name of a systemd slice separates the names of its parents.
	CgroupRoot string
	// RootDir and LogsDir are the first agent's --root-dir and podLogsDir.
	RootDir, LogsDir string
}

func base() string {
	if dir := os.Getenv(baseVariable); dir != "" {
		return dir
	}
	return defaultBase
}

func layoutOf(number int) Layout {
	dir := filepath.Join(base(), strconv.Itoa(number))
	first := agentDirs(dir, firstAgent)
	return Layout{
		Slot:       number,
		Dir:        dir,
		Endpoint:   "unix://" + filepath.Join(dir, "c.sock"),
		Network:    "berth-test-" + strconv.Itoa(number),
		Bridge:     "bt" + strconv.Itoa(number),
		PodCIDR:    netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 222, byte(number), 0}), 24),
		CNIConfDir: filepath.Join(dir, "cni"),
		CNIBinDirs: cniBinDirs(),
		CgroupRoot: "/berthtest" + strconv.Itoa(number),
		RootDir:    first.root,
		LogsDir:    first.logs,
	}
}

// The paths in an environment that only this package uses.
func (l Layout) socket() string   { return filepath.Join(l.Dir, "c.sock") }
func (l Layout) state() string    { return filepath.Join(l.Dir, "s") }
func (l Layout) runcRoot() string { return filepath.Join(l.Dir, "runc") }
func (l Layout) leases() string   { return filepath.Join(l.Dir, "ipam", l.Network) }
func (l Layout) log() string      { return filepath.Join(l.Dir, "containerd.log") }
func (l Layout) config() string   { return filepath.Join(l.Dir, "containerd.toml") }
func (l Layout) netns() string    { return filepath.Join(l.Dir, "netns") }
func (l Layout) cniCache() string { return filepath.Join(cniResults, l.Network+"-*") }

// CDISpecs is the directory from which containerd 2 reads CDI specs.
func (l Layout) CDISpecs() string { return filepath.Join(l.Dir, "cdi") }

// registryConfigs is the folder of the registries' configs for containerd. For each registry it has
// a folder with a hosts.toml.
func (l Layout) registryConfigs() string { return filepath.Join(l.Dir, "certs.d") }

func (l Layout) namespaces() string {
	return filepath.Join(l.state(), "io.containerd.grpc.v1.cri", "netns")
}

func (l Layout) shimBundles() string {
	return filepath.Join(l.state(), "io.containerd.runtime.v2.task", "*", "*")
}

// cniBinDirs returns the usual plugin folders that have the bridge plugin.
func cniBinDirs() []string {
	var dirs []string
	for _, dir := range []string{"/opt/cni/bin", "/usr/lib/cni", "/usr/libexec/cni"} {
		if _, err := os.Stat(filepath.Join(dir, "bridge")); err == nil {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// acquire takes the lowest free slot whose subnet nobody on this host uses. It first removes what
// the slot's last owner left. A slot whose remains cannot be removed is left for a later process.
func acquire() (slot, error) {
	if err := os.MkdirAll(base(), 0o711); err != nil {
		return slot{}, fmt.Errorf("make the folder of environments: %w", err)
	}
	var errs []error
	for n := 1; n <= maxSlot; n++ {
		s, ok, err := tryLock(n)
		if err != nil {
			return slot{}, err
		}
		if !ok {
			continue
		}
		layout := layoutOf(n)
		if err := layout.remove(); err != nil {
			s.release()
			errs = append(errs, fmt.Errorf("remove what was left in slot %d: %w", n, err))
			continue
		}
		if inUse(layout.PodCIDR) {
			s.release()
			continue
		}
		return s, nil
	}
	return slot{}, errors.Join(append(errs, fmt.Errorf("all %d slots in %s are taken", maxSlot, base()))...)
}

// Sweep removes what killed processes have left in slots that nobody holds.
func Sweep() error {
	var errs []error
	for n := 1; n <= maxSlot; n++ {
		layout := layoutOf(n)
		if _, err := os.Stat(layout.Dir); err != nil {
			continue
		}
		s, ok, err := tryLock(n)
		if err != nil || !ok {
			errs = append(errs, err)
			continue
		}
		errs = append(errs, layout.remove())
		s.release()
	}
	return errors.Join(errs...)
}

func tryLock(n int) (slot, bool, error) {
	f, err := os.OpenFile(filepath.Join(base(), strconv.Itoa(n)+".lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return slot{}, false, fmt.Errorf("open the lock of slot %d: %w", n, err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) || errors.Is(err, unix.EINTR) {
			return slot{}, false, nil
		}
		return slot{}, false, fmt.Errorf("lock slot %d: %w", n, err)
	}
	return slot{number: n, lock: f}, true, nil
}

// release frees the slot. The lock file stays, because removing it would let two processes hold one
// slot.
func (s slot) release() { _ = flock.Release(s.lock) }

func inUse(subnet netip.Prefix) bool {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, a := range addrs {
		p, err := netip.ParsePrefix(a.String())
		if err == nil && p.Overlaps(subnet) {
			return true
		}
	}
	return false
}
