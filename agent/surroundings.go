package agent

import (
	"context"
	"fmt"
	"os"
	"time"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/generate"
	"github.com/berthd/berth/agent/images"
	"github.com/berthd/berth/agent/objects"
	"github.com/berthd/berth/agent/plan"
	"github.com/berthd/berth/agent/volumes"
	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/cri"
)

// nodeView is the node as the starter sees it.
type nodeView struct{ a *Agent }

func (n nodeView) Generate() generate.Node      { return n.a.node.Generate() }
func (n nodeView) HostIPs() []string            { return n.a.node.HostIPs() }
func (n nodeView) Allocatable() v1.ResourceList { return n.a.node.Allocatable() }
func (n nodeView) HostsFile() []byte            { return n.a.node.HostsFile() }
func (n nodeView) Objects() generate.Objects    { return localObjects{n.a.objects} }
func (n nodeView) Resources(pod *v1.Pod, c *v1.Container) *runtimeapi.LinuxContainerResources {
	return n.a.deps.Cgroups.ContainerResources(pod, c)
}

// localObjects are the node's ConfigMaps and Secrets without their revisions.
type localObjects struct{ store *objects.Store }

// ConfigMap returns the object, or false where there is none.
func (o localObjects) ConfigMap(namespace, name string) (*v1.ConfigMap, bool) {
	cm, _ := o.store.ConfigMap(namespace, name)
	return cm, cm != nil
}

// Secret returns the object, or false where there is none.
func (o localObjects) Secret(namespace, name string) (*v1.Secret, bool) {
	s, _ := o.store.Secret(namespace, name)
	return s, s != nil
}

// fieldValue resolves a fieldRef for downward API volumes.
func fieldValue(pod *v1.Pod, ref *v1.ObjectFieldSelector, dyn volumes.Dynamic) (string, error) {
	return generate.FieldValue(pod, ref, generate.Addresses{HostIPs: dyn.HostIPs, PodIPs: dyn.PodIPs})
}

// resourceValue resolves a resourceFieldRef for downward API volumes.
func (a *Agent) resourceValue(pod *v1.Pod, ref *v1.ResourceFieldSelector) (string, error) {
	return generate.ResourceValue(pod, nil, ref, a.node.Allocatable())
}

// exec runs a command in a container for a probe or a hook.
func (a *Agent) exec(ctx context.Context, id string, cmd []string, timeout time.Duration) (exitCode int, output []byte, err error) {
	resp, err := a.deps.Runtime.ExecSync(ctx, id, cmd, timeout)
	if err != nil {
		return 0, nil, err
	}
	return int(resp.ExitCode), append(resp.Stdout, resp.Stderr...), nil
}

func containerHash(c *v1.Container) string { return cri.ContainerHash(c) }

// backoffLimits are the config's crash back-off limits.
func backoffLimits(cfg *configs.Config) plan.BackoffLimits {
	l := plan.DefaultBackoffLimits()
	if m := cfg.Kubelet.CrashLoopBackOff.MaxContainerRestartPeriod; m != nil {
		l.Max = m.Duration
		l.Initial = min(l.Initial, l.Max)
	}
	return l
}

// defaultParallelPulls is how many images are pulled at once where the config sets no limit (D6).
const defaultParallelPulls = 4

// imagesConfig reads the config's part about images. A config that says serializeImagePulls gets one pull at a time.
func imagesConfig(cfg *configs.Config) images.Config {
	n := defaultParallelPulls
	switch k := &cfg.Kubelet; {
	case k.SerializeImagePulls != nil && *k.SerializeImagePulls && cfg.IsSet("serializeImagePulls"):
		n = 1
	case k.MaxParallelImagePulls != nil:
		n = int(*k.MaxParallelImagePulls)
	}
	return images.Config{MaxParallelPulls: n, ImagesDir: cfg.Berth.ImagesDir}
}

// makeDirs makes the directories that the agent keeps things in.
func makeDirs(cfg *configs.Config) error {
	for dir, mode := range map[string]os.FileMode{
		cfg.RootDir:                0o750,
		cfg.RootDir + "/pods":      0o750,
		cfg.Kubelet.PodLogsDir:     0o755,
		cfg.Berth.ContainerLogsDir: 0o755,
	} {
		if err := os.MkdirAll(dir, mode); err != nil {
			return fmt.Errorf("making the agent's directories: %w", err)
		}
	}
	return nil
}
