package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/berthd/berth/agent/volumes"
	"github.com/berthd/berth/configs"
)

// runRoot is where the agents of "berth run" have their root directories.
const runRoot = "/var/lib/berth/run"

// maxSocket is how long a socket's path may be (unix(7)).
const maxSocket = 107

// podName is a pod's identity for a human.
type podName struct{ namespace, name string }

func (p podName) hash() string {
	h := fnv.New32a()
	_, _ = io.WriteString(h, p.namespace+"/"+p.name)
	return fmt.Sprintf("%08x", h.Sum32())
}

// dir names the pod's directory, shortened where the name is long.
func (p podName) dir() string {
	full := p.namespace + "_" + p.name
	if len(full) > 60 {
		return full[:48] + "-" + p.hash()
	}
	return full
}

// runHome is the root directory of one run, and all that is in it.
type runHome struct {
	root, manifests, logs, links, socket string
}

// makeHome gives the config a root directory, sockets, ports, cgroups and a manifest directory that nobody else has.
func makeHome(cfg *configs.Config, pod podName, rootGiven bool) (*runHome, error) {
	if !rootGiven {
		cfg.RootDir = filepath.Join(runRoot, pod.dir())
	}
	h := &runHome{root: cfg.RootDir}
	h.manifests = filepath.Join(h.root, "manifests")
	h.logs = filepath.Join(h.root, "logs")
	h.links = filepath.Join(h.root, "links")
	h.socket = filepath.Join(h.root, "berth.sock")
	if len(h.socket) > maxSocket {
		h.socket = "/run/berth-run-" + pod.hash() + ".sock"
	}
	k, none := &cfg.Kubelet, int32(0)
	k.StaticPodPath, k.StaticPodURL = h.manifests, ""
	k.PodLogsDir = h.logs
	k.HealthzPort, k.ReadOnlyPort, k.EnableServer = &none, 0, new(bool)
	k.CgroupRoot = path.Join("/", k.CgroupRoot, "berth-run-"+pod.hash())
	cfg.Berth.Socket, cfg.Berth.SocketGroup, cfg.Berth.ContainerLogsDir = h.socket, "", h.links
	cfg.Lock.File = ""
	if err := os.MkdirAll(h.manifests, 0o700); err != nil {
		return nil, fmt.Errorf("making the run's directory: %w", err)
	}
	return h, nil
}

func (h *runHome) manifest() string { return filepath.Join(h.manifests, "pod.yaml") }

// put hands the manifest to the agent.
func (h *runHome) put(manifest []byte) error {
	if err := os.WriteFile(h.manifest(), manifest, 0o600); err != nil {
		return fmt.Errorf("writing the run's manifest: %w", err)
	}
	return nil
}

// empty takes the manifest away, which ends the pod.
func (h *runHome) empty() error {
	if err := os.Remove(h.manifest()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the run's manifest: %w", err)
	}
	return nil
}

// remove removes what is the run's own, and ends at the first mount point in it. Pods' directories are removed only if they are empty: the agent has done so
// with the care that mounts need, and what it left is not to be forced.
func (h *runHome) remove(ctx context.Context) error {
	if err := os.Remove(filepath.Join(h.root, "pods")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("something of the pod is left in %s; run the same command again to clean up: %w", h.root, err)
	}
	var errs []error
	for _, dir := range []string{h.manifests, h.logs, h.links, filepath.Join(h.root, "berth"), filepath.Join(h.root, "image_manager")} {
		errs = append(errs, volumes.RemoveDir(ctx, dir))
	}
	for _, dir := range []string{"plugins", "plugins_registry", "seccomp"} {
		_ = os.Remove(filepath.Join(h.root, dir)) // the agent may have made it
	}
	if err := os.Remove(h.root); err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs = append(errs, fmt.Errorf("the run's directory is not empty: %w", err))
	}
	return errors.Join(errs...)
}

// runOnce returns the manifest with its pod's restartPolicy Always, given or by default, made Never; changed is false if there is none.
func runOnce(manifest []byte) (out []byte, changed bool, err error) {
	in := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifest), 4096)
	var b bytes.Buffer
	for {
		var doc map[string]any
		if err := in.Decode(&doc); errors.Is(err, io.EOF) {
			return b.Bytes(), changed, nil
		} else if err != nil {
			return nil, false, err
		}
		objects := []any{doc}
		if items, ok := doc["items"].([]any); ok {
			objects = items
		}
		for _, o := range objects {
			pod, ok := o.(map[string]any)
			if !ok {
				continue
			}
			spec, ok := pod["spec"].(map[string]any)
			if !ok {
				continue
			}
			if policy := spec["restartPolicy"]; policy == nil || policy == "" || policy == "Always" {
				spec["restartPolicy"] = "Never"
				changed = true
			}
		}
		data, err := json.Marshal(doc)
		if err != nil {
			return nil, false, err
		}
		b.WriteString("---\n")
		b.Write(data)
		b.WriteString("\n")
	}
}
