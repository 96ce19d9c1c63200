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

// runRoot has the root directories of the agents of "berth run".
const runRoot = "/var/lib/berth/run"

// maxSocket is the longest path of a socket, in bytes (unix(7)).
const maxSocket = 107

// podName is the name of a pod for the user.
type podName struct{ namespace, name string }

func (p podName) hash() string {
	h := fnv.New32a()
	_, _ = io.WriteString(h, p.namespace+"/"+p.name)
	return fmt.Sprintf("%08x", h.Sum32())
}

// dir returns the name of the pod's directory. A long name is shortened.
func (p podName) dir() string {
	full := p.namespace + "_" + p.name
	if len(full) > 60 {
		return full[:48] + "-" + p.hash()
	}
	return full
}

// runHome is the root directory of one run with everything in it.
type runHome struct {
	root, manifests, logs, links, socket string
}

// homeAt returns the home with a root directory.
func homeAt(root string) *runHome {
	return &runHome{
		root: root, manifests: filepath.Join(root, "manifests"), logs: filepath.Join(root, "logs"),
		links: filepath.Join(root, "links"), socket: filepath.Join(root, "berth.sock"),
	}
}

// makeHome sets a root directory, sockets, ports, cgroups and a manifest directory in the config
// that no other agent has.
func makeHome(cfg *configs.Config, pod podName, rootGiven bool) (*runHome, error) {
	if !rootGiven {
		cfg.RootDir = filepath.Join(runRoot, pod.dir())
	}
	h := homeAt(cfg.RootDir)
	if len(h.socket) > maxSocket {
		h.socket = "/run/berth-run-" + pod.hash() + ".sock"
	}
	h.set(cfg, pod)
	if err := os.MkdirAll(h.manifests, 0o700); err != nil {
		return nil, fmt.Errorf("making the run's directory: %w", err)
	}
	if rootGiven {
		if err := os.MkdirAll(runRoot, 0o700); err != nil {
			return nil, fmt.Errorf("making the directory of runs: %w", err)
		}
		if err := os.Symlink(h.root, h.link()); err != nil && !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("making the link to the run's directory: %w", err)
		}
	}
	return h, h.save(cfg)
}

// set sets in the config what no other agent may have.
func (h *runHome) set(cfg *configs.Config, pod podName) {
	k, none := &cfg.Kubelet, int32(0)
	k.StaticPodPath, k.StaticPodURL = h.manifests, ""
	k.PodLogsDir = h.logs
	k.HealthzPort, k.ReadOnlyPort, k.EnableServer = &none, 0, new(bool)
	k.CgroupRoot = path.Join("/", k.CgroupRoot, "berth-run-"+pod.hash())
	cfg.Berth.Socket, cfg.Berth.SocketGroup, cfg.Berth.ContainerLogsDir = h.socket, "", h.links
	// Another agent serves the CRI there, and removes what it does not know in its namespace.
	cfg.Berth.CRISocket, cfg.Berth.Containerd.Namespace = "", ""
	cfg.Lock.File = ""
}

// link is the link to a root directory outside of [runRoot]. With it, others find the run.
func (h *runHome) link() string { return filepath.Join(runRoot, "at-"+podName{name: h.root}.hash()) }

// config is the file with the run's config. A run that was killed is cleaned up with it.
func (h *runHome) config() string { return filepath.Join(h.root, "config.yaml") }

// save writes the run's config.
func (h *runHome) save(cfg *configs.Config) error {
	kubelet, berth := cfg.Kubelet, cfg.Berth
	kubelet.APIVersion, kubelet.Kind = "kubelet.config.k8s.io/v1beta1", "KubeletConfiguration"
	kubelet.StaticPodURLHeader = nil // may have a password, and there is no URL
	berth.APIVersion, berth.Kind = configs.BerthAPIVersion, configs.BerthKind
	var text bytes.Buffer
	for _, doc := range []any{kubelet, berth} {
		data, err := json.Marshal(doc)
		if err != nil {
			return fmt.Errorf("writing the run's config: %w", err)
		}
		fmt.Fprintf(&text, "---\n%s\n", data)
	}
	if err := os.WriteFile(h.config(), text.Bytes(), 0o600); err != nil {
		return fmt.Errorf("writing the run's config: %w", err)
	}
	return nil
}

func (h *runHome) manifest() string { return filepath.Join(h.manifests, "pod.yaml") }

// put writes the manifest for the agent.
func (h *runHome) put(manifest []byte) error {
	if err := os.WriteFile(h.manifest(), manifest, 0o600); err != nil {
		return fmt.Errorf("writing the run's manifest: %w", err)
	}
	return nil
}

// empty removes the manifest, which ends the pod.
func (h *runHome) empty() error {
	if err := os.Remove(h.manifest()); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the run's manifest: %w", err)
	}
	return nil
}

// remove removes the run's own files, and stops at the first mount point. It leaves pods'
// directories that are not empty.
func (h *runHome) remove(ctx context.Context) error {
	err := removeRootFiles(ctx, h.root)
	if errors.Is(err, errPodLeft) {
		return fmt.Errorf("%s: %w; \"berth run --clean\" removes it", h.root, err)
	}
	for _, dir := range []string{h.manifests, h.logs, h.links, filepath.Join(h.root, "image_manager")} {
		err = errors.Join(err, volumes.RemoveDir(ctx, dir))
	}
	if err != nil {
		return err
	}
	// The config is removed last: without it, nobody finds what is left.
	for _, path := range []string{h.config(), h.root} {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("removing the run's directory: %w", err)
		}
	}
	if to, err := os.Readlink(h.link()); err == nil && to == h.root {
		_ = os.Remove(h.link())
	}
	return nil
}

// runOnce changes the restartPolicy of the manifest's pod from Always (given or by default) to
// Never. changed is false if there is no such pod.
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
