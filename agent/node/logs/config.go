package logs

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/cri"
)

// ConfigFrom reads the part of the agent's config about container logs. If a size is negative, the
// agent leaves logs alone.
func ConfigFrom(cfg *configs.Config) (Config, error) {
	k, bounds := &cfg.Kubelet, cfg.Berth.Logs
	size, err := resource.ParseQuantity(k.ContainerLogMaxSize)
	if err != nil {
		return Config{}, fmt.Errorf("reading containerLogMaxSize %q: %w", k.ContainerLogMaxSize, err)
	}
	most, err := resource.ParseQuantity(bounds.MaxContainerSize)
	if err != nil {
		return Config{}, fmt.Errorf("reading logs.maxContainerSize %q: %w", bounds.MaxContainerSize, err)
	}
	node, err := amountOf(bounds.MaxNodeSize, k.PodLogsDir)
	if err != nil {
		return Config{}, fmt.Errorf("reading logs.maxNodeSize %q: %w", bounds.MaxNodeSize, err)
	}
	return Config{
		Root:         k.PodLogsDir,
		MaxSize:      size.Value(),
		MaxFiles:     int(*k.ContainerLogMaxFiles),
		Interval:     k.ContainerLogMonitorInterval.Duration,
		Workers:      int(*k.ContainerLogMaxWorkers),
		ContainerMax: most.Value(),
		NodeMax:      node,
	}, nil
}

// amountOf parses a number of bytes, or a percentage of the file system of dir. The directory need
// not exist yet.
func amountOf(text, dir string) (int64, error) {
	part, isPart := strings.CutSuffix(text, "%")
	if !isPart {
		q, err := resource.ParseQuantity(text)
		return q.Value(), err
	}
	percent, err := strconv.ParseFloat(part, 64)
	if err != nil {
		return 0, err
	}
	var fs unix.Statfs_t
	for {
		err := unix.Statfs(dir, &fs)
		if err == nil {
			return int64(float64(fs.Blocks) * float64(fs.Bsize) * percent / 100), nil
		}
		if dir == filepath.Dir(dir) {
			return 0, fmt.Errorf("asking for the size of the file system: %w", err)
		}
		dir = filepath.Dir(dir)
	}
}

// Unmanaged leaves logs alone. It is for a config that switches rotation off.
type Unmanaged struct{}

// Track does nothing.
func (Unmanaged) Track(cri.PodID, []Container) {}

// Forget does nothing.
func (Unmanaged) Forget(types.UID) {}

// Rotates is false.
func (Unmanaged) Rotates() bool { return false }

// Set does nothing.
func (Unmanaged) Set(Config) {}

// Run waits for the end of ctx.
func (Unmanaged) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
