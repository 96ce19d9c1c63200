package stats

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
)

// sizePeriod is how long a measured size is valid. It is the default of the kubelet's
// volumeStatsAggPeriod.
const sizePeriod = time.Minute

// limitEffort is the effort of measuring what has a limit: it takes at most a ten-thousandth of a
// core for each directory, or [sizePeriod] is over.
const limitEffort = 10_000

// dirKey is a directory of a pod.
type dirKey struct {
	pod  types.UID
	path string
}

// size is what a directory takes.
type size struct {
	bytes, inodes uint64
}

// sizeOf wants the size of a directory of a pod, which is measured at most once in [sizePeriod]. A
// directory that takes long to count has at least the size that was counted so far: limits of local
// storage hold however many files there are.
func (c *Collector) sizeOf(pod types.UID, dir string) wanted[dirKey, size] {
	key := dirKey{pod, dir}
	return c.sizes.want(key, sizePeriod, func(ctx context.Context) (size, error) {
		var out size
		err := c.budget.spend(ctx, pod, func(t *turn) (err error) {
			out, err = count(dir, func(so size) error {
				c.counted(key, so)
				return t.next(ctx)
			})
			return err
		})
		return out, err
	})
}

// counted records what the count of a directory has counted so far. Until the count ends, the
// directory does not get smaller.
func (c *Collector) counted(dir dirKey, so size) {
	c.sizes.update(dir, func(last size) size {
		return size{bytes: max(last.bytes, so.bytes), inodes: max(last.inodes, so.inodes)}
	})
}

// space is the file system of a volume's directory; host is nil if the directory holds no volume.
type space struct {
	host *statsapi.FsStats
	// mounted says that the volume is a file system of its own.
	mounted bool
}

// spaceOf wants the space of a volume's directory, as it is now. The volume may be a network file
// system whose server does not answer.
func (c *Collector) spaceOf(pod types.UID, dir string) wanted[dirKey, space] {
	return c.spaces.want(dirKey{pod, dir}, 0, func(ctx context.Context) (space, error) {
		leave, err := c.look(ctx, dir)
		if err != nil {
			return space{}, err
		}
		defer leave()
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() {
			return space{}, nil // there is no volume any more
		}
		return space{host: fileSystem(dir, time.Now()), mounted: mounted(dir)}, nil
	})
}

// deviceOf wants the size of the block device of a volume, as it is now. To open a device may take
// as long as the device likes.
func (c *Collector) deviceOf(pod types.UID, link string) wanted[dirKey, space] {
	return c.spaces.want(dirKey{pod, link}, 0, func(ctx context.Context) (space, error) {
		leave, err := c.look(ctx, link)
		if err != nil {
			return space{}, err
		}
		defer leave()
		return space{host: device(link, time.Now())}, nil
	})
}

// look waits for a place for a look at a volume. Only what is not the agent's own may not answer.
func (c *Collector) look(ctx context.Context, volume string) (leave func(), err error) {
	switch filepath.Base(filepath.Dir(volume)) {
	case kindLocal, kindNFS:
		return c.deps.Looks.Enter(ctx, volume)
	}
	return func() {}, nil
}

// fileSystem returns the space of the file system of a path; nil if it cannot be read.
func fileSystem(path string, at time.Time) *statsapi.FsStats {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return nil
	}
	block := uint64(st.Bsize)
	return &statsapi.FsStats{
		Time:           metav1.NewTime(at),
		AvailableBytes: new(st.Bavail * block),
		CapacityBytes:  new(st.Blocks * block),
		UsedBytes:      new((st.Blocks - st.Bfree) * block),
		Inodes:         new(st.Files),
		InodesFree:     new(st.Ffree),
		InodesUsed:     new(st.Files - st.Ffree),
	}
}

// within returns the stats of a directory that uses a part of a file system. How much it uses is
// left out as long as that is not known.
func within(host *statsapi.FsStats, used size, known bool) *statsapi.FsStats {
	if host == nil {
		return nil
	}
	out := *host
	out.UsedBytes, out.InodesUsed = nil, nil
	if known {
		out.UsedBytes, out.InodesUsed = new(used.bytes), new(used.inodes)
	}
	return &out
}

// volumes returns the stats of a pod's volumes, and how much its local volumes use of the node's
// disk. claims leaves out all volumes but claims. Volumes that do not answer have their last stats,
// with the time of those.
func (c *Collector) volumes(
	ctx context.Context, pod *v1.Pod, claims bool,
) (out []statsapi.VolumeStats, local size) {
	names := c.names(pod)
	if claims && len(names.claims) == 0 {
		return nil, size{}
	}
	base := filepath.Join(c.cfg.RootDir, "pods", string(pod.UID))
	type directory struct {
		path  string
		space wanted[dirKey, space]
	}
	var dirs, devices []directory
	var driven []wanted[driverKey, *statsapi.FsStats]
	var drivenNames []string
	ask := func(path string, block bool) {
		name := filepath.Base(path)
		driven = append(driven, c.driverStatsOf(driverKey{pod.UID, name, block}))
		drivenNames = append(drivenNames, name)
	}
	// everything is begun before anything is waited for
	for _, dir := range glob(filepath.Join(base, "volumes", "*", "*")) {
		switch kind := filepath.Base(filepath.Dir(dir)); {
		case claims && names.claim(filepath.Base(dir)) == nil:
		case kind == kindCSI:
			ask(dir, false)
		default:
			dirs = append(dirs, directory{dir, c.spaceOf(pod.UID, dir)})
		}
	}
	for _, link := range glob(filepath.Join(base, "volumeDevices", kindCSI, "*")) {
		ask(link, true)
	}
	for _, link := range glob(filepath.Join(base, "volumeDevices", kindLocal, "*")) {
		devices = append(devices, directory{link, c.deviceOf(pod.UID, link)})
	}
	for _, d := range dirs {
		if stats, used := c.directoryStats(ctx, pod.UID, d.path, d.space); stats != nil {
			out = append(out, names.stats(filepath.Base(d.path), stats))
			local.bytes, local.inodes = local.bytes+used.bytes, local.inodes+used.inodes
		}
	}
	for i, d := range driven {
		if s, _ := d.value(ctx); s != nil {
			out = append(out, names.stats(drivenNames[i], s))
		}
	}
	for _, d := range devices {
		if found, _ := d.space.value(ctx); found.host != nil {
			out = append(out, names.stats(filepath.Base(d.path), found.host))
		}
	}
	return out, local
}

// directoryStats returns the stats of a volume in a directory, nil if they are not known, and what
// an emptyDir or a ConfigMap uses of the node's disk.
func (c *Collector) directoryStats(
	ctx context.Context, pod types.UID, dir string, of wanted[dirKey, space],
) (stats *statsapi.FsStats, local size) {
	found, _ := of.value(ctx)
	if found.host == nil || found.mounted {
		return found.host, size{}
	}
	used, known := c.sizeOf(pod, dir).value(ctx)
	if kind := filepath.Base(filepath.Dir(dir)); kind == kindEmptyDir || kind == kindConfigMap {
		local = used
	}
	return within(found.host, used, known), local
}

// own returns what a pod's hosts file and termination logs use of the node's disk: its containers
// can write to them as much as to a volume.
func (c *Collector) own(pod types.UID) (out size) {
	base := filepath.Join(c.cfg.RootDir, "pods", string(pod))
	for _, path := range append(glob(filepath.Join(base, "containers", "*", "*")), filepath.Join(base, "etc-hosts")) {
		var st unix.Stat_t
		if unix.Lstat(path, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFREG {
			out.bytes, out.inodes = out.bytes+uint64(st.Blocks)*512, out.inodes+1 // stat(2) has the unit
		}
	}
	return out
}

// device returns the size of the block device behind a link; nil if the device cannot be opened.
// The other fields are 0, as the kubelet has them.
func device(link string, at time.Time) *statsapi.FsStats {
	file, err := os.Open(link)
	if err != nil {
		return nil
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil || info.Mode().Type() != fs.ModeDevice {
		return nil
	}
	end, err := file.Seek(0, unix.SEEK_END)
	if err != nil {
		return nil
	}
	return &statsapi.FsStats{
		Time:           metav1.NewTime(at),
		CapacityBytes:  new(uint64(max(end, 0))),
		AvailableBytes: new(uint64),
		UsedBytes:      new(uint64),
		Inodes:         new(uint64),
		InodesFree:     new(uint64),
		InodesUsed:     new(uint64),
	}
}

// glob returns the paths that match a pattern.
func glob(pattern string) []string {
	found, err := filepath.Glob(pattern)
	if err != nil {
		return nil
	}
	return found
}

// mounted reports whether something is mounted on a directory.
func mounted(dir string) bool {
	var own, parent unix.Stat_t
	return unix.Stat(dir, &own) == nil && unix.Stat(filepath.Dir(dir), &parent) == nil && own.Dev != parent.Dev
}

// logs returns the size of the logs of a pod, or of one of its containers, and whether it is known.
func (c *Collector) logs(ctx context.Context, pod *v1.Pod, container string) (used size, known bool) {
	dir := filepath.Join(c.cfg.PodLogsDir, pod.Namespace+"_"+pod.Name+"_"+string(pod.UID), container)
	if _, err := os.Lstat(dir); errors.Is(err, fs.ErrNotExist) {
		return size{}, true
	}
	return c.sizeOf(pod.UID, dir).value(ctx)
}
