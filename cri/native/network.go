package native

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cni"
)

// netns is the path by which a sandbox's network namespace is kept.
func (r *Runtime) netns(id string) string { return filepath.Join(r.cfg.StateDir, "netns", id) }

// attach attaches the network namespace.
func (r *Runtime) attach(ctx context.Context, sb *sandbox) error {
	if sb.hostNetwork() {
		return nil
	}
	m := sb.config.GetMetadata()
	result, err := r.cfg.Network.Add(ctx, cni.Sandbox{
		ID: sb.id, NetNS: r.netns(sb.id), Namespace: m.GetNamespace(), Name: m.GetName(), UID: m.GetUid(),
		Capabilities: capabilities(sb.config),
	})
	if err != nil {
		return err
	}
	return r.changeSandbox(sb, func(rec *sandboxRecord) { rec.IPs = result.IPs })
}

// detach gives back the network and its namespace. A restart of the machine takes the namespace and
// may leave the file, which plugins would not understand.
func (r *Runtime) detach(ctx context.Context, sb *sandbox) error {
	if sb.hostNetwork() {
		return nil
	}
	if path := r.netns(sb.id); !isNamespace(path) {
		if err := unmountAndRemove(path); err != nil {
			return err
		}
	}
	if err := r.cfg.Network.Del(ctx, sb.id); err != nil {
		return err
	}
	return unmountAndRemove(r.netns(sb.id))
}

// unmountAndRemove unmounts a path, if anything is mounted there, and removes the file or the empty
// directory. It succeeds if there is none.
func unmountAndRemove(path string) error {
	for {
		err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
			break // not mounted any more
		}
		if err != nil {
			return fmt.Errorf("unmount %s: %w", path, err)
		}
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// capabilities returns what the pod wishes of its network.
func capabilities(config *runtimeapi.PodSandboxConfig) cni.Capabilities {
	out := cni.Capabilities{Annotations: config.GetAnnotations(), CgroupPath: config.GetLinux().GetCgroupParent()}
	for _, p := range config.GetPortMappings() {
		if p.GetHostPort() <= 0 {
			continue // the CRI's way to say that the node has no port for it
		}
		out.PortMappings = append(out.PortMappings, cni.PortMapping{
			HostPort: p.GetHostPort(), ContainerPort: p.GetContainerPort(),
			Protocol: strings.ToLower(p.GetProtocol().String()), HostIP: p.GetHostIp(),
		})
	}
	if dns := config.GetDnsConfig(); dns != nil {
		out.DNS = &cni.DNS{Servers: dns.GetServers(), Searches: dns.GetSearches(), Options: dns.GetOptions()}
	}
	out.Bandwidth = bandwidth(config.GetAnnotations())
	return out
}
