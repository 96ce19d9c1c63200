//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/snapshots"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri/remote"
	"github.com/berthd/berth/test/env"
	"github.com/berthd/berth/test/images"
)

// criKills is a "berth cri serve" that is killed again and again.
type criKills struct {
	*testing.T
	env       *env.Env
	service   *env.Program
	socket    string
	namespace string
	// cri is connected to the service, or to the last one before a kill.
	cri *remote.Runtime
}

func newCRIKills(t *testing.T, namespace string, flags ...string) *criKills {
	t.Helper()
	e := env.Containerd(t, env.Options{})
	importInto(t, e, namespace)
	binary, err := env.Binary(t.Context(), e.Checkout)
	if err != nil {
		t.Fatal(err)
	}
	k := &criKills{T: t, env: e, socket: filepath.Join(e.Dir, "cri.sock"), namespace: namespace}
	k.service = e.NewProgram("cri-serve", append([]string{
		binary, "cri", "serve", "--listen", "unix://" + k.socket, "--containerd", e.Endpoint, "--namespace", namespace,
		"--cni-conf-dir", e.CNIConfDir, "--cni-bin-dir", strings.Join(e.CNIBinDirs, ","), "--pause-image", images.Pause,
		"--root-dir", filepath.Join(e.Dir, "cri-root"), "--state-dir", filepath.Join(e.Dir, "cri-state"),
	}, flags...)...)
	k.start()
	return k
}

// start starts the service and waits until it answers.
func (k *criKills) start() {
	k.Helper()
	if err := k.service.Start(); err != nil {
		k.Fatal(err)
	}
	var err error
	if k.cri, err = remote.Dial(k.Context(), remote.Config{Endpoint: "unix://" + k.socket}); err != nil {
		k.Fatal(err)
	}
	rt := k.cri
	k.Cleanup(func() { _ = rt.Close() })
	env.Eventually(k.T, "the service to answer", func() error {
		_, err := rt.Version(k.Context())
		return err
	})
}

func (k *criKills) sandbox(name string) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "default", Uid: name}, Hostname: name,
		LogDirectory: filepath.Join(k.env.Dir, "cri-logs", name),
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent: k.env.CgroupRoot,
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
			},
		},
	}
}

// run runs a pod of one container with a script, and returns the IDs of both.
func (k *criKills) run(
	ctx context.Context, config *runtimeapi.PodSandboxConfig, script string, mounts ...*runtimeapi.Mount,
) (sandbox, container string, err error) {
	if sandbox, err = k.cri.RunPodSandbox(ctx, config, ""); err != nil {
		return "", "", err
	}
	container, err = k.cri.CreateContainer(ctx, sandbox, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "main"}, Image: &runtimeapi.ImageSpec{Image: images.Busybox},
		Command: []string{"sh", "-c", script}, LogPath: "main.log", Mounts: mounts,
		Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
			NamespaceOptions: config.GetLinux().GetSecurityContext().GetNamespaceOptions(),
		}},
	}, config)
	if err != nil {
		return sandbox, "", err
	}
	return sandbox, container, k.cri.StartContainer(ctx, container)
}

// nothingLeft reports what is left when every pod is removed.
func (k *criKills) nothingLeft() {
	k.Helper()
	if err := k.service.Stop(); err != nil {
		k.Error(err)
	}
	env.Eventually(k.T, "nothing to be left", func() error {
		if leaks := k.env.Leaks(); len(leaks) > 0 {
			return errors.New(strings.Join(leaks, "\n"))
		}
		return nil
	})
	c, err := client.New(strings.TrimPrefix(k.env.Endpoint, "unix://"), client.WithDefaultNamespace(k.namespace))
	if err != nil {
		k.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if left, err := c.Containers(k.Context()); err != nil || len(left) > 0 {
		k.Errorf("left in containerd are %v, %v", left, err)
	}
	err = c.SnapshotService("overlayfs").Walk(k.Context(), func(_ context.Context, info snapshots.Info) error {
		// A lease of containerd's client keeps for a day what an unpack that was killed has made.
		if info.Kind == snapshots.KindActive && !strings.HasPrefix(info.Name, "extract-") {
			k.Errorf("left is the snapshot %s", info.Name)
		}
		return nil
	})
	if err != nil {
		k.Error(err)
	}
	for _, dir := range []string{
		"cri-root/sandboxes", "cri-root/containers", "cri-state/sandboxes", "cri-state/containers", "cri-state/netns",
	} {
		entries, err := os.ReadDir(filepath.Join(k.env.Dir, dir))
		if err != nil && !os.IsNotExist(err) || len(entries) > 0 {
			k.Errorf("left in %s are %v, %v", dir, entries, err)
		}
	}
}

// The service is killed while a container writes, while its log is moved away, and a last time
// before the container ends. Each line is in one of the logs, once.
func TestCRILogsOutliveKills(t *testing.T) {
	t.Parallel()
	k := newCRIKills(t, "berth-cri-logs")
	signals := t.TempDir()
	config := k.sandbox("counter")
	sandbox, id, err := k.run(t.Context(), config,
		`i=0; while ! test -e /signals/stop; do echo $i; echo $i >&2; i=$((i+1)); done; printf 'the end'`,
		&runtimeapi.Mount{ContainerPath: "/signals", HostPath: signals})
	if err != nil {
		t.Fatal(err)
	}
	log := filepath.Join(config.GetLogDirectory(), "main.log")
	logs := []string{log}
	for i := range 6 {
		k.grows(log, 20_000)
		if i%2 == 1 {
			logs = append([]string{fmt.Sprintf("%s.%d", log, i)}, logs...)
			if err := os.Rename(log, logs[0]); err != nil {
				t.Fatal(err)
			}
			if err := k.cri.ReopenContainerLog(t.Context(), id); err != nil && i%4 == 1 {
				t.Error(err)
			}
		}
		k.service.Kill9()
		if i == 5 {
			if err := os.WriteFile(filepath.Join(signals, "stop"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		k.start()
	}
	env.Eventually(t, "the container to end", func() error {
		status, err := k.cri.ContainerStatus(t.Context(), id)
		if err == nil && (status.GetFinishedAt() == 0 || status.GetExitCode() != 0) {
			err = fmt.Errorf("it is %v", status)
		}
		return err
	})
	// The newest of the moved logs is the first in the list.
	for i, j := 0, len(logs)-2; i < j; i, j = i+1, j-1 {
		logs[i], logs[j] = logs[j], logs[i]
	}
	lines := k.lines(logs)
	out, errs := lines["stdout"], lines["stderr"]
	if n := len(out); n == 0 || out[n-1] != "the end" || n-1 != len(errs) {
		t.Errorf("there are %d lines of stdout and %d of stderr", n, len(errs))
	}
	for i, line := range errs {
		if line != fmt.Sprint(i) || out[i] != line {
			t.Fatalf("line %d is %q and %q", i, out[i], line)
		}
	}
	if err := k.cri.RemovePodSandbox(t.Context(), sandbox); err != nil {
		t.Error(err)
	}
	k.nothingLeft()
}

// grows waits until a log has grown by so many bytes.
func (k *criKills) grows(log string, bytes int64) {
	k.Helper()
	size := func() int64 {
		info, err := os.Stat(log)
		if err != nil {
			return 0
		}
		return info.Size()
	}
	more := size() + bytes
	env.Eventually(k.T, "the log to grow", func() error {
		if size() < more {
			return fmt.Errorf("it has %d bytes", size())
		}
		return nil
	})
}

// lines returns the texts of logs by stream.
func (k *criKills) lines(logs []string) map[string][]string {
	k.Helper()
	out := map[string][]string{}
	for _, path := range logs {
		data, err := os.ReadFile(path)
		if err != nil {
			k.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			fields := strings.SplitN(strings.TrimSuffix(line, "\n"), " ", 4)
			if len(fields) != 4 || fields[2] != "F" {
				k.Fatalf("%s has the line %q", path, line)
			}
			out[fields[1]] = append(out[fields[1]], fields[3])
		}
	}
	return out
}

// The service is killed at moments that chance chooses, while pods come and go. Afterwards the
// lists say what there is, all of it can be removed, and nothing is left.
func TestCRILifeOutlivesKills(t *testing.T) {
	t.Parallel()
	for _, pause := range []string{"auto", "always"} {
		t.Run(pause, func(t *testing.T) {
			k := newCRIKills(t, "berth-cri-life-"+pause, "--pause", pause)
			for round := range 5 {
				k.killedWhilePodsLive(round)
			}
			k.nothingLeft()
		})
	}
}

// killedWhilePodsLive kills the service while pods come and go, starts it, and removes what it has.
func (k *criKills) killedWhilePodsLive(round int) {
	k.Helper()
	ctx, cancel := context.WithCancel(k.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; ctx.Err() == nil; i++ {
			sandbox, _, err := k.run(ctx, k.sandbox(fmt.Sprintf("pod-%d-%d", round, i)), "exec sleep 1000")
			if err == nil {
				err = k.cri.StopPodSandbox(ctx, sandbox)
			}
			if err == nil {
				err = k.cri.RemovePodSandbox(ctx, sandbox)
			}
			if err != nil {
				return // it was killed
			}
		}
	}()
	for range rand.IntN(400) {
		if _, err := k.cri.Version(ctx); err != nil {
			k.Error(err)
		}
	}
	k.service.Kill9()
	cancel()
	<-ended
	k.start()
	sandboxes, err := k.cri.ListPodSandbox(k.Context(), nil)
	if err != nil {
		k.Fatal(err)
	}
	containers, err := k.cri.ListContainers(k.Context(), nil)
	if err != nil {
		k.Fatal(err)
	}
	for _, c := range containers {
		status, err := k.cri.ContainerStatus(k.Context(), c.GetId())
		if err != nil || status.GetState() != c.GetState() {
			k.Errorf("a container is %v in the list, and %v, %v", c, status, err)
		}
	}
	for _, s := range sandboxes {
		if err := k.cri.RemovePodSandbox(k.Context(), s.GetId()); err != nil {
			k.Errorf("round %d: %v", round, err)
		}
	}
}
