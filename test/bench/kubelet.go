package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/test/env"
)

// kubeletVariable names the kubelet to measure.
const kubeletVariable = "KUBELET"

// logLinks is where a kubelet makes links to its containers' logs. It has no setting for this.
const logLinks = "/var/log/containers"

// kubelet is a stock kubelet without an API server.
type kubelet struct {
	manifests
	home, url string
	args      []string
	cmd       *exec.Cmd
	done      chan struct{}
}

func newKubelet(_ context.Context, b *bed) (subject, error) {
	home := filepath.Join(b.env.Dir, "k")
	k := &kubelet{manifests: manifests(filepath.Join(home, "manifests")), home: home}
	if err := os.MkdirAll(string(k.manifests), 0o755); err != nil {
		return nil, fmt.Errorf("make the kubelet's folders: %w", err)
	}
	if err := b.env.MakeCgroupRoot(); err != nil {
		return nil, err
	}
	ports, err := freePorts(2)
	if err != nil {
		return nil, err
	}
	k.url = fmt.Sprintf("http://127.0.0.1:%d", ports[0])
	config, err := yaml.Marshal(map[string]any{
		"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
		"staticPodPath": string(k.manifests), "podLogsDir": filepath.Join(home, "pods"),
		"containerRuntimeEndpoint": b.env.Endpoint, "cgroupRoot": b.env.CgroupRoot, "cgroupDriver": "cgroupfs",
		"address": "127.0.0.1", "port": ports[1], "readOnlyPort": ports[0], "healthzPort": 0,
		"failSwapOn": false, "failCgroupV1": false, "oomScoreAdj": 0, "makeIPTablesUtilChains": false,
		"volumePluginDir": filepath.Join(home, "plugins"), "maxPods": b.maxPods(),
		"authentication": map[string]any{
			"anonymous": map[string]any{"enabled": true}, "webhook": map[string]any{"enabled": false},
		},
		"authorization": map[string]any{"mode": "AlwaysAllow"},
	})
	if err != nil {
		return nil, fmt.Errorf("write the kubelet's config: %w", err)
	}
	file := filepath.Join(home, "config.yaml")
	if err := os.WriteFile(file, config, 0o600); err != nil {
		return nil, fmt.Errorf("write the kubelet's config: %w", err)
	}
	k.args = []string{
		"--config", file, "--root-dir", filepath.Join(home, "root"), "--cert-dir", filepath.Join(home, "pki"),
		"--hostname-override", env.NodeName,
	}
	return k, nil
}

func (k *kubelet) start() error {
	log, err := os.OpenFile(filepath.Join(k.home, "kubelet.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("open the kubelet's log: %w", err)
	}
	defer log.Close()
	cmd := exec.CommandContext(context.Background(), os.Getenv(kubeletVariable), k.args...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, k.home
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	done, begun := make(chan struct{}), make(chan error)
	go func() {
		// The kernel sends the death signal when the starting thread ends, so the thread stays.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		begun <- err
		if err == nil {
			_ = cmd.Wait()
			close(done)
		}
	}()
	if err := <-begun; err != nil {
		return fmt.Errorf("start the kubelet: %w", err)
	}
	k.cmd, k.done = cmd, done
	return nil
}

func (k *kubelet) kill9() {
	if k.cmd != nil {
		_ = k.cmd.Process.Kill()
		<-k.done
	}
}

func (k *kubelet) pid() int { return k.cmd.Process.Pid }

// close ends the kubelet and removes its links outside its folder.
func (k *kubelet) close() error {
	k.kill9()
	links, _ := filepath.Glob(filepath.Join(logLinks, "*.log"))
	var errs []error
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && strings.HasPrefix(to, k.home+"/") {
			errs = append(errs, os.Remove(link))
		}
	}
	return errors.Join(errs...)
}

func (k *kubelet) get(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, k.url+path, nil)
	if err != nil {
		return nil, fmt.Errorf("ask the kubelet: %w", err)
	}
	return answer(http.DefaultClient.Do(req))
}

func (k *kubelet) summaries(ctx context.Context) ([]api.PodSummary, error) {
	text, err := k.get(ctx, "/pods")
	if err != nil {
		return nil, err
	}
	var list corev1.PodList
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("read the kubelet's answer: %w", err)
	}
	pods := make([]api.PodSummary, len(list.Items))
	for i := range list.Items {
		pods[i] = api.Summarize(&list.Items[i])
	}
	return pods, nil
}

func (k *kubelet) restart(context.Context, container) error { return nil }

func (k *kubelet) seen(ctx context.Context, c container) error {
	return until(ctx, k, func(pods []api.PodSummary) bool { return showsDeath(pods, c.pod) })
}

// freePorts returns ports of the loopback on which nobody listens.
func freePorts(n int) ([]int, error) {
	var ports []int
	for range n {
		l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer func() { _ = l.Close() }()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
