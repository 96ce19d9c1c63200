package env

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const (
	// binaryVariable names the berth that agents run. Without it, the berth of the checkout is
	// built first.
	binaryVariable = "BERTH_BIN"
	// podTimeout bounds the waits for pods. It is many times what a busy machine takes, because it
	// only matters if something is wrong.
	podTimeout = 10 * time.Minute
)

// AgentOptions are the options of one agent.
type AgentOptions struct {
	// Name distinguishes the agents of one environment. The first agent has no name.
	Name string
	// Kubelet and Berth are YAML that is merged into the agent's KubeletConfiguration and
	// BerthConfiguration.
	Kubelet, Berth string
	// Flags are added to "berth agent --config FILE --root-dir DIR --hostname-override node".
	Flags []string
	// Env is added to the agent's environment, as KEY=VALUE.
	Env []string
}

// Agent is a berth on an environment's containerd, with folders and a socket of its own.
type Agent struct {
	// Home contains all folders that follow. RootDir is --root-dir, Manifests is staticPodPath,
	// LogsDir is podLogsDir, and LinksDir is containerLogsDir.
	Home, RootDir, Manifests, LogsDir, LinksDir string
	// Config is the agent's config file. Socket is its local API.
	Config, Socket string
	// Log has the agent's output since its first start.
	Log string

	layout Layout
	name   string
	opts   AgentOptions
	// native says that the agent's config has the native runtime, and moved that it may have had
	// another one before.
	native, moved bool
	binary        string
	args          []string
	env           []string
	client        http.Client
	p             *process
}

// StartAgent starts an agent for a test, and the environment stops it. StartAgent does not wait
// until the agent is ready; [Agent.WaitUp] does.
func (e *Env) StartAgent(t testing.TB, opts AgentOptions) *Agent {
	t.Helper()
	a, err := e.NewAgent(t.Context(), opts)
	if err != nil {
		t.Fatalf("prepare an agent: %v", err)
	}
	if err := a.Start(); err != nil {
		t.Fatalf("start the agent: %v", err)
	}
	return a
}

// NewAgent makes an agent's folders and config but does not start it, so that a test can write
// manifests first.
func (e *Env) NewAgent(ctx context.Context, opts AgentOptions) (*Agent, error) {
	if opts.Name == "" {
		opts.Name = firstAgent
	}
	binary, err := Binary(ctx, e.Checkout)
	if err != nil {
		return nil, err
	}
	d := agentDirs(e.Dir, opts.Name)
	for _, dir := range []string{d.root, d.manifests, d.logs, d.links, d.images} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("make the agent's folders: %w", err)
		}
	}
	a := &Agent{
		name: opts.Name, opts: opts, native: e.Native,
		Home: d.home, RootDir: d.root, Manifests: d.manifests, LogsDir: d.logs, LinksDir: d.links,
		Config: filepath.Join(d.home, agentConfigFile), Socket: d.socket(), Log: filepath.Join(d.home, agentLog),
		layout: e.Layout, binary: binary, env: opts.Env,
	}
	a.args = append([]string{"agent", "--config", a.Config, "--root-dir", d.root, "--hostname-override", NodeName},
		opts.Flags...)
	a.client.Transport = &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, "unix", a.Socket)
		},
		ResponseHeaderTimeout: podTimeout,
	}
	e.mu.Lock()
	e.agents = append(e.agents, a)
	e.mu.Unlock()
	if err := e.writeConfig(a); err != nil {
		return nil, err
	}
	if a.native {
		return a, e.importFor(ctx, a.name)
	}
	return a, nil
}

// SetNative writes the agent's config anew, with the native runtime or with the CRI socket. The
// agent reads it at its next start.
func (e *Env) SetNative(ctx context.Context, a *Agent, native bool) error {
	was := a.native
	e.mu.Lock()
	a.native, a.moved = native, true
	e.mu.Unlock()
	if err := e.writeConfig(a); err != nil {
		return err
	}
	if native && !was {
		return e.importFor(ctx, a.name)
	}
	return nil
}

// Binary returns the path of the berth to test: the file that $BERTH_BIN names, or else a fresh
// build of the checkout.
func Binary(ctx context.Context, checkout string) (string, error) {
	if b := os.Getenv(binaryVariable); b != "" {
		return filepath.Abs(b)
	}
	out := filepath.Join(checkout, ".cache", "berth")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", out, "./cmd/berth")
	cmd.Dir = checkout
	if text, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build berth: %w: %s", err, bytes.TrimSpace(text))
	}
	return out, nil
}

// Start starts the agent, for the first time or again.
func (a *Agent) Start() error {
	if a.Running() {
		return errors.New("the agent runs already")
	}
	cmd := exec.CommandContext(context.Background(), a.binary, a.args...)
	cmd.Env = append(os.Environ(), a.env...)
	cmd.Dir = a.Home
	p, err := a.layout.startProcess(cmd, a.Log)
	if err != nil {
		return err
	}
	a.p = p
	return nil
}

// Kill9 kills the agent and nothing else. The agent's pods run on.
func (a *Agent) Kill9() {
	if a.p != nil {
		a.p.kill()
	}
}

// Stop ends the agent with SIGTERM. The agent's pods run on. It is no error if the agent has
// already ended.
func (a *Agent) Stop() error {
	a.client.CloseIdleConnections()
	if a.p == nil {
		return nil
	}
	return a.p.stop(stopTimeout)
}

// Restart stops the agent with SIGTERM and starts it again.
func (a *Agent) Restart() error {
	if err := a.Stop(); err != nil {
		return err
	}
	return a.Start()
}

// Running reports whether the agent's process lives.
func (a *Agent) Running() bool { return a.p != nil && !a.p.ended() }

// Done returns a channel that is closed when the running agent's process has ended, nil before the
// first start.
func (a *Agent) Done() <-chan struct{} {
	if a.p == nil {
		return nil
	}
	return a.p.done
}

// PID returns the agent's process id, 0 before the first start.
func (a *Agent) PID() int {
	if a.p == nil {
		return 0
	}
	return a.p.cmd.Process.Pid
}

// LogTail returns the end of the agent's output.
func (a *Agent) LogTail() string { return tail(a.Log) }

// WaitEnded waits until the agent's process has ended.
func (a *Agent) WaitEnded(t testing.TB) {
	t.Helper()
	select {
	case <-a.Done():
	case <-time.After(podTimeout):
		t.Fatalf("the agent does not end; its goroutines:\n%s", a.goroutines())
	}
}

// CLI runs a verb of berth against this agent. It returns what the verb printed and its exit code,
// -1 if the verb could not be run. A verb that does not end is ended, and says where it was.
func (a *Agent) CLI(args ...string) (stdout, stderr string, code int) {
	full := append([]string{args[0], "--socket", a.Socket}, args[1:]...)
	cmd := exec.CommandContext(context.Background(), a.binary, full...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // as from a login of its own
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	cmd.WaitDelay = stopTimeout
	if err := cmd.Start(); err != nil {
		return "", err.Error(), -1
	}
	if err := a.Await(cmd); err != nil && !errors.As(err, new(*exec.ExitError)) {
		return out.String(), errOut.String() + err.Error(), -1
	}
	return out.String(), errOut.String(), cmd.ProcessState.ExitCode()
}

// Await waits for a verb of berth that asks this agent. If the verb does not end, the error has the
// agent's goroutines, and the verb prints its own.
func (a *Agent) Await(verb *exec.Cmd) error {
	stuck := make(chan string, 1)
	late := time.AfterFunc(podTimeout, func() {
		stuck <- a.goroutines()
		_ = verb.Process.Signal(syscall.SIGQUIT) // unless it has just ended
	})
	err := verb.Wait()
	if !late.Stop() {
		return fmt.Errorf("%v did not end within %v; the agent's goroutines:\n%s", verb.Args, podTimeout, <-stuck)
	}
	return err
}

// goroutines returns where the agent's goroutines are, or why that is not known.
func (a *Agent) goroutines() string {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	resp, err := a.Get(ctx, "/debug/pprof/goroutine?debug=1")
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Get returns the answer of the agent's local API to a path such as /pods.
func (a *Agent) Get(ctx context.Context, path string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://berth"+path, nil)
	if err != nil {
		return nil, fmt.Errorf("ask the agent for %s: %w", path, err)
	}
	return a.client.Do(req)
}

// Pods returns the agent's pods with their status, as its API has them.
func (a *Agent) Pods(ctx context.Context) ([]corev1.Pod, error) {
	resp, err := a.Get(ctx, "/pods")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("ask the agent for its pods: %s", resp.Status)
	}
	var list corev1.PodList
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		return nil, fmt.Errorf("read the agent's pods: %w", err)
	}
	return list.Items, nil
}

// WriteManifest writes a manifest in one step, by a rename, as a careful user does.
func (a *Agent) WriteManifest(t testing.TB, file, text string) {
	t.Helper()
	// The temporary file is outside the folder, so that the agent sees one change.
	tmp := filepath.Join(a.Home, "."+file)
	if err := os.WriteFile(tmp, []byte(text), 0o600); err != nil {
		t.Fatalf("write manifest: %v", err)
	}
	if err := os.Rename(tmp, filepath.Join(a.Manifests, file)); err != nil {
		t.Fatalf("put manifest in place: %v", err)
	}
}

// RemoveManifest deletes a manifest.
func (a *Agent) RemoveManifest(t testing.TB, file string) {
	t.Helper()
	if err := os.Remove(filepath.Join(a.Manifests, file)); err != nil {
		t.Fatalf("remove manifest: %v", err)
	}
}
