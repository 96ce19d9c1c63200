package env

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// qosCgroups are the cgroups that an agent keeps when there are no pods.
var qosCgroups = []string{
	"kubepods", "burstable", "besteffort",
	"kubepods.slice", "kubepods-burstable.slice", "kubepods-besteffort.slice",
}

// Leaks returns what pods have left in this environment, one line for each thing: sandboxes and
// containers, cgroups below the cgroup root, mounts, network namespaces, interfaces, address
// leases, CNI results, shims, pod folders, log folders and log links. It is empty when every pod
// was removed completely. It works only with a private containerd.
func (e *Env) Leaks() []string {
	leaks := e.files()
	if e.private() && !e.Native {
		leaks = append(leaks, e.criLeaks()...)
	}
	mounts, err := e.mounts()
	if err != nil {
		leaks = append(leaks, err.Error())
	}
	mounts = slices.DeleteFunc(mounts, func(m string) bool { return m == e.netns() })
	leaks = append(leaks, prefixed("mount", mounts)...)
	for _, root := range e.cgroupRoots() {
		for _, dir := range cgroupsBelow(root)[1:] {
			if !slices.Contains(qosCgroups, filepath.Base(dir)) && !e.hasAgent(root, dir) {
				leaks = append(leaks, "cgroup "+dir)
			}
		}
	}
	ports, _, err := e.links()
	if err != nil {
		leaks = append(leaks, err.Error())
	}
	for _, p := range ports {
		leaks = append(leaks, "interface "+p.Attrs().Name)
	}
	for _, p := range e.shims() {
		leaks = append(leaks, fmt.Sprintf("shim %d %s", p.pid, strings.Join(p.args, " ")))
	}
	return leaks
}

// hasAgent reports whether a cgroup is the root of an agent with a name: a directory below the
// environment's cgroup that is called as the agent's folder.
func (e *Env) hasAgent(root, dir string) bool {
	name, err := filepath.Rel(root, dir)
	if err != nil || strings.Contains(name, "/") {
		return false
	}
	_, err = os.Stat(filepath.Join(e.Dir, name, agentConfigFile))
	return err == nil
}

// LeaksOf returns the leaks whose line contains any of the given texts: a pod's UID, name or
// sandbox id.
func (e *Env) LeaksOf(texts ...string) []string {
	return slices.DeleteFunc(e.Leaks(), func(line string) bool {
		return !slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(line, text) })
	})
}

// files returns the leaks that are files or folders.
func (e *Env) files() []string {
	agent := filepath.Join(e.Dir, "*")
	native := filepath.Join(agentDirs("", agent).root, "berth", "native")
	var leaks []string
	for _, place := range []struct{ kind, pattern string }{
		{"network namespace", filepath.Join(e.namespaces(), "*")},
		{"address lease", filepath.Join(e.leases(), "[0-9]*")},
		{"CNI result", e.cniCache()},
		{"shim bundle", e.shimBundles()},
		{"runc state", filepath.Join(e.runcRoot(), "*", "*")},
		{"native sandbox", filepath.Join(native, "root", "sandboxes", "*.json")},
		{"native container", filepath.Join(native, "root", "containers", "*.json")},
		{"native sandbox files", filepath.Join(native, "state", "sandboxes", "*")},
		{"native container files", filepath.Join(native, "state", "containers", "*")},
		{"network namespace", filepath.Join(native, "state", "netns", "*")},
		{"CNI attachment", filepath.Join(native, "cni", "attachments", "*")},
		{"CNI result", filepath.Join(native, "cni", "results", "*")},
		{"pod folder", filepath.Join(agentDirs("", agent).root, "pods", "*")},
		{"log folder", filepath.Join(agentDirs("", agent).logs, "*")},
		{"log link", filepath.Join(agentDirs("", agent).links, "*")},
	} {
		found, _ := filepath.Glob(place.pattern)
		leaks = append(leaks, prefixed(place.kind, found)...)
	}
	return leaks
}

// criLeaks returns the sandboxes and containers that containerd lists.
func (e *Env) criLeaks() []string {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var leaks []string
	sandboxes, err := e.Runtime().ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return []string{"cannot list sandboxes: " + err.Error()}
	}
	for _, s := range sandboxes.Items {
		leaks = append(leaks,
			fmt.Sprintf("sandbox %s of %s/%s %s", s.Id, s.Metadata.GetNamespace(), s.Metadata.GetName(),
				s.Metadata.GetUid()))
	}
	containers, err := e.Runtime().ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return append(leaks, "cannot list containers: "+err.Error())
	}
	for _, c := range containers.Containers {
		leaks = append(leaks, fmt.Sprintf("container %s %s of sandbox %s", c.Id, c.Metadata.GetName(), c.PodSandboxId))
	}
	return leaks
}

func prefixed(kind string, names []string) []string {
	lines := make([]string, len(names))
	for i, n := range names {
		lines[i] = kind + " " + n
	}
	return lines
}
