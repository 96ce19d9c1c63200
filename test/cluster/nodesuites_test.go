//go:build conformance

package cluster

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/test/env"
)

var kubelet = flag.Bool("kubelet", false, "whether TestNodeSuites tests a kubelet instead of berth")

const (
	// nodeTests is upstream's program of the tests of a kubelet.
	nodeTests = "e2e_node.test"
	// token identifies these tests, which have no certificates.
	token = "upstream"
	// nodeTestsConfig is what they expect of a kubelet's config.
	nodeTestsConfig = "clusterDNS: [\"10.96.0.10\"]\nreadOnlyPort: 10255\nhealthzPort: 10248\n"
	// kubeletFolder is where they expect a kubelet's files, and cdiFolder is where their device plugin
	// puts the specs of devices.
	kubeletFolder = "/var/lib/kubelet"
	cdiFolder     = "/var/run/cdi"
)

// suites are the tests that have the node for themselves.
const suites = `\] (InodeEviction|ImageGC|MemoryAllocatableEviction|LocalStorage|Priority\w*Eviction|` +
	`CriticalPod|SystemNodeCriticalPod|GracefulNodeShutdown|Device Plugin|Device Manager|CPU Manager|Memory Manager|` +
	`Topology Manager|POD Resources API|GarbageCollect|ImageGarbageCollect|OOMKiller|PodPidsLimit)|\[DRA\]`

// forNodeTests returns the API server's flags for the tests of a kubelet, and the flags of these
// tests.
func forNodeTests(t *testing.T) (server, tests []string) {
	t.Helper()
	tokens := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(tokens, []byte(token+",admin,admin,system:masters\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	system := filepath.Join(t.TempDir(), "system.yaml") // the requirements for the machine: none
	if err := os.WriteFile(system, []byte("os: Linux\nkernelSpec: {versions: ['.*']}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return []string{"--token-auth-file", tokens}, []string{
		"--host", Server, "--bearer-token", token, "--node-name", env.NodeName, "--dns-domain", "cluster.local",
		"--start-services=false", "--prepull-images=false", "--system-spec-file", system,
	}
}

// TestNodeSuites runs those of Kubernetes' own tests of a kubelet that have the node for
// themselves. They change the kubelet's config, restart it, and look at fixed places of the
// machine: /var/lib/kubelet, where this test mounts the agent's root directory, /var/run/cdi, and
// the cgroup kubepods. Beside other tests with a kubelet they fail: every kubelet removes the
// sockets of device plugins from the same place. Under -kubelet they test a kubelet, to compare.
func TestNodeSuites(t *testing.T) {
	t.Cleanup(func() { removeKubepods(t) }) // registered first: when containerd has ended
	// Nobody taints a node for its conditions: the tests watch the node while it lacks something.
	server, flags := forNodeTests(t)
	c := Start(t, Options{
		APIServer:         append(server, "--disable-admission-plugins", "TaintNodesByCondition"),
		ControllerManager: []string{"--controllers", "-node-lifecycle-controller"},
	})
	c.ServeUpstream(t)
	opts := c.NodeOptions(t, env.NodeName, env.AgentOptions{Kubelet: nodeTestsConfig})
	opts.Kubelet += "cgroupRoot: /\n" + KubeletOptions(c.Env)
	a, err := c.NewAgent(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	mountRoot(t, a.RootDir)
	mountAt(t, c.CDISpecs(), cdiFolder)
	m := manager{agent: a, cluster: c, stop: a.Stop, start: a.Start}
	var agent runner = a
	if *kubelet {
		k := c.NewKubelet(t, a)
		m.stop, m.start, agent = k.Stop, k.Start, k
	}
	m.serve(t)
	if err := m.start(); err != nil {
		t.Fatal(err)
	}
	c.WaitNodeReady(t)
	*procs = "1"
	c.upstream(t, agent, nodeTests, suites, nil, flags...)
}

// mountRoot mounts an agent's root directory where a kubelet has it, until the test ends.
func mountRoot(t *testing.T, root string) {
	t.Helper()
	if _, err := os.Stat(filepath.Join(kubeletFolder, "pods")); err == nil {
		t.Skipf("a kubelet of this machine has its files in %s", kubeletFolder)
	}
	mountAt(t, root, kubeletFolder)
}

// mountAt mounts a folder at another one, until the test ends.
func mountAt(t *testing.T, folder, at string) {
	t.Helper()
	for _, dir := range []string{folder, at} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mount(folder, at, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		t.Fatalf("mount %s at %s: %v", folder, at, err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(at, unix.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", at, err)
		}
	})
}

// removeKubepods removes the cgroup of all pods, which must have ended.
func removeKubepods(t *testing.T) {
	t.Helper()
	roots, _ := filepath.Glob("/sys/fs/cgroup/*/kubepods")
	for _, root := range roots {
		var dirs []string
		err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				dirs = append(dirs, path)
			}
			return err
		})
		for _, dir := range slices.Backward(dirs) {
			err = errors.Join(err, os.Remove(dir))
		}
		if err != nil {
			t.Errorf("remove the pods' cgroups: %v", err)
		}
	}
}

// manager starts and stops an agent for upstream's tests, as systemd would.
type manager struct {
	agent       *env.Agent
	cluster     *Cluster
	stop, start func() error
}

// managerFolder is where the programs are that upstream's tests call to reach a [manager].
func (c *Cluster) managerFolder() string { return filepath.Join(c.Folder, "manager") }

// serve answers the programs sudo and systemctl that it makes, until the test ends.
func (m manager) serve(t *testing.T) {
	t.Helper()
	dir := m.cluster.managerFolder()
	socket := filepath.Join(dir, "s")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"sudo":      `exec "$@"`,
		"systemctl": `exec curl -sS --fail-with-body --unix-socket ` + socket + ` -X POST "http://systemd/$1"`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /list-units", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "kubelet-test.service loaded active running a kubelet")
	})
	mux.HandleFunc("POST /reset-failed", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /kill", answer(m.stop))
	mux.HandleFunc("POST /restart", answer(m.restart))
	server := &http.Server{Handler: mux}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() { _ = server.Close() })
}

// answer makes a handler of an action.
func answer(do func() error) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if err := do(); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
		}
	}
}

// restart starts the agent anew, with the config that the tests have written.
func (m manager) restart() error {
	if err := m.stop(); err != nil {
		return err
	}
	own, err := os.ReadFile(filepath.Join(m.cluster.Folder, "kubelet-config"))
	if os.IsNotExist(err) {
		return m.start()
	}
	if err != nil {
		return err
	}
	if *kubelet {
		if err := os.WriteFile(filepath.Join(m.agent.Home, kubeletConfig), own, 0o600); err != nil {
			return err
		}
		return m.start()
	}
	text, err := os.ReadFile(m.agent.Config)
	if err != nil {
		return err
	}
	docs := bytes.Split(text, []byte("---\n"))
	for i, doc := range docs {
		if isKubelet(doc) {
			docs[i] = append(own, '\n')
		}
	}
	if err := os.WriteFile(m.agent.Config, bytes.Join(docs, []byte("---\n")), 0o600); err != nil {
		return err
	}
	return m.start()
}
