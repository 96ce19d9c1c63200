package agent

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/berthd/berth/agent/logs"
	"github.com/berthd/berth/agent/plan"
	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/cri"
)

// logKeeper makes what keeps container logs small; nil where the config, or the agent's surroundings, leave logs alone.
func (a *Agent) logKeeper() (*logs.Manager, error) {
	if !a.deps.KeepLogs {
		return nil, nil
	}
	cfg, err := logsConfig(a.cfg)
	if err != nil || cfg.MaxSize < 0 {
		return nil, err
	}
	return logs.New(cfg, logs.Deps{Runtime: a.deps.Runtime, Logger: a.log}), nil
}

// logsConfig reads the config's part about container logs. A negative size says that logs are left alone.
func logsConfig(cfg *configs.Config) (logs.Config, error) {
	k, bounds := &cfg.Kubelet, cfg.Berth.Logs
	size, err := resource.ParseQuantity(k.ContainerLogMaxSize)
	if err != nil {
		return logs.Config{}, fmt.Errorf("reading containerLogMaxSize %q: %w", k.ContainerLogMaxSize, err)
	}
	most, err := resource.ParseQuantity(bounds.MaxContainerSize)
	if err != nil {
		return logs.Config{}, fmt.Errorf("reading logs.maxContainerSize %q: %w", bounds.MaxContainerSize, err)
	}
	node, err := amountOf(bounds.MaxNodeSize, k.PodLogsDir)
	if err != nil {
		return logs.Config{}, fmt.Errorf("reading logs.maxNodeSize %q: %w", bounds.MaxNodeSize, err)
	}
	return logs.Config{
		Root: k.PodLogsDir, MaxSize: size.Value(), MaxFiles: int(*k.ContainerLogMaxFiles), Interval: k.ContainerLogMonitorInterval.Duration,
		Workers: int(*k.ContainerLogMaxWorkers), ContainerMax: most.Value(), NodeMax: node,
	}, nil
}

// amountOf reads a number of bytes, or how many so many percent of the file system of dir are. dir need not be there yet.
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

// keepLogs is the loop that keeps container logs small.
func (a *Agent) keepLogs(ctx context.Context) error {
	if a.logs == nil {
		<-ctx.Done()
		return nil
	}
	return a.logs.Run(ctx)
}

// trackLogs says which containers a pod has, and which instances of them run.
func (a *Agent) trackLogs(pod *v1.Pod, observed *plan.Observed) {
	if a.logs == nil {
		return
	}
	dir := cri.PodLogDir(a.cfg.Kubelet.PodLogsDir, cri.IDOf(pod))
	byName := map[string]logs.Container{}
	for _, c := range allContainers(pod) {
		byName[c] = logs.Container{Name: c}
	}
	for _, c := range observed.Containers {
		known := byName[c.Name()]
		known.Name = c.Name()
		if c.Running() && known.ID == "" && filepath.Dir(c.LogPath) == filepath.Join(dir, c.Name()) { // the newest instance comes first
			known.ID, known.LogPath = c.Id, c.LogPath
		}
		byName[c.Name()] = known
	}
	list := make([]logs.Container, 0, len(byName))
	for _, c := range byName {
		list = append(list, c)
	}
	a.logs.Track(cri.IDOf(pod), list)
}

// forgetLogs says that a pod's logs are gone.
func (a *Agent) forgetLogs(uid podUID) {
	if a.logs != nil {
		a.logs.Forget(uid)
	}
}

// allContainers returns the names of all containers that a pod's spec has.
func allContainers(pod *v1.Pod) (names []string) {
	for i := range pod.Spec.InitContainers {
		names = append(names, pod.Spec.InitContainers[i].Name)
	}
	for i := range pod.Spec.Containers {
		names = append(names, pod.Spec.Containers[i].Name)
	}
	for i := range pod.Spec.EphemeralContainers {
		names = append(names, pod.Spec.EphemeralContainers[i].Name)
	}
	return names
}
