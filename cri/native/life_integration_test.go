//go:build integration

package native

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/containerd/v2/core/leases"
	"github.com/containerd/errdefs"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cni"
	"github.com/berthd/berth/test/env"
	"github.com/berthd/berth/test/images"
)

// pod is a sandbox of a test.
type pod struct {
	*testing.T
	host    *host
	runtime *Runtime
	config  *runtimeapi.PodSandboxConfig
	id      string
	logs    string
}

// newPod runs a sandbox. change, if set, changes its config before.
func (h *host) newPod(t *testing.T, r *Runtime, name, handler string, change func(*runtimeapi.PodSandboxConfig)) *pod {
	t.Helper()
	p := &pod{T: t, host: h, runtime: r, logs: t.TempDir()}
	p.config = h.sandboxConfig(name, p.logs)
	if change != nil {
		change(p.config)
	}
	var err error
	if p.id, err = r.RunPodSandbox(t.Context(), p.config, handler); err != nil {
		t.Fatal(err)
	}
	return p
}

func (h *host) sandboxConfig(name, logs string) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "test", Uid: name}, Hostname: "pod-" + name,
		LogDirectory: logs,
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent: h.CgroupRoot,
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
			},
		},
	}
}

// container returns the config of a container that runs a script.
func (p *pod) container(name, script string) *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name}, Image: &runtimeapi.ImageSpec{Image: images.Busybox},
		Command: []string{"sh", "-c", script}, LogPath: name + ".log",
		Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
		}},
	}
}

// start creates and starts a container.
func (p *pod) start(config *runtimeapi.ContainerConfig) string {
	p.Helper()
	id, err := p.runtime.CreateContainer(p.Context(), p.id, config, p.config)
	if err == nil {
		err = p.runtime.StartContainer(p.Context(), id)
	}
	if err != nil {
		p.Fatal(err)
	}
	return id
}

// output returns what a container printed, once it has ended.
func (p *pod) output(id string) string {
	p.Helper()
	var status *runtimeapi.ContainerStatus
	env.Eventually(p.T, "the container to end", func() (err error) {
		if status, err = p.runtime.ContainerStatus(p.Context(), id); err == nil && status.FinishedAt == 0 {
			err = errors.New("it runs")
		}
		return err
	})
	text := p.text(status.LogPath)
	if status.ExitCode != 0 {
		p.Errorf("it ended with %d, and said %q", status.ExitCode, text)
	}
	return text
}

// text returns what a log has.
func (p *pod) text(path string) string {
	p.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		p.Fatal(err)
	}
	var text strings.Builder
	for line := range strings.Lines(string(data)) {
		text.WriteString(strings.SplitN(line, " ", 4)[3])
	}
	return text.String()
}

// says runs a container to its end and returns what it printed.
func (p *pod) says(config *runtimeapi.ContainerConfig) string {
	p.Helper()
	return p.output(p.start(config))
}

// remove removes the sandbox, and reports what is left.
func (p *pod) remove() {
	p.Helper()
	if err := p.runtime.RemovePodSandbox(context.WithoutCancel(p.Context()), p.id); err != nil {
		p.Error(err)
	}
	p.host.nothingLeft(p.T)
}

// Berth is restarted, and containerd killed, while a container writes, one ends, and one waits to
// be started. No line is lost, no process is, and the end is not missed.
func TestRestart(t *testing.T) {
	t.Parallel()
	h := newHost(t, "native-restart")
	inModes(t, h.restart)
}

func (h *host) restart(t *testing.T, mode func(*Config, *cni.Config)) {
	first := h.runtime(t, mode)
	p := h.newPod(t, first, "restart", "", nil)
	signals := t.TempDir()
	shared := []*runtimeapi.Mount{{ContainerPath: "/signals", HostPath: signals}}
	writer := p.container("writer", `i=0; while ! test -e /signals/stop; do echo $i; i=$((i+1)); sleep 0.01; done`)
	writer.Mounts = shared
	ends := p.container("ends", `while ! test -e /signals/end; do sleep 0.01; done; printf 'last\nwords'; exit 7`)
	ends.Mounts = shared
	writes, ending := p.start(writer), p.start(ends)
	waits, err := first.CreateContainer(t.Context(), p.id, p.container("waits", "echo at last"), p.config)
	if err != nil {
		t.Fatal(err)
	}
	before, err := first.ContainerStatus(t.Context(), writes)
	if err != nil {
		t.Fatal(err)
	}
	sandbox, err := first.PodSandboxStatus(t.Context(), p.id)
	if err != nil {
		t.Fatal(err)
	}
	pid := first.store.containers[ending].pid()
	first.Close()
	if err := os.WriteFile(filepath.Join(signals, "end"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the container to end", func() error {
		// A process that has ended waits for its shim, or is gone.
		if stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid)); err == nil && !strings.Contains(string(stat), ") Z") {
			return errors.New("it runs")
		}
		return nil
	})
	p.runtime = h.runtime(t, mode)
	again, err := p.runtime.PodSandboxStatus(t.Context(), p.id)
	if err != nil || again.State != runtimeapi.PodSandboxState_SANDBOX_READY || again.Network.Ip != sandbox.Network.Ip ||
		again.CreatedAt != sandbox.CreatedAt {
		t.Errorf("the sandbox is %v, %v, and was %v", again, err, sandbox)
	}
	after, err := p.runtime.ContainerStatus(t.Context(), writes)
	if err != nil || after.State != runtimeapi.ContainerState_CONTAINER_RUNNING || after.StartedAt != before.StartedAt {
		t.Errorf("the writer is %v, %v, and was %v", after, err, before)
	}
	env.Eventually(t, "the end to be noticed", func() error {
		status, err := p.runtime.ContainerStatus(t.Context(), ending)
		if err == nil && status.ExitCode != 7 {
			err = fmt.Errorf("it is %v", status)
		}
		return err
	})
	if got := p.text(filepath.Join(p.logs, "ends.log")); got != "last\nwords\n" {
		t.Errorf("the one that ended meanwhile said %q", got)
	}
	if err := p.runtime.StartContainer(t.Context(), waits); err != nil {
		t.Error(err)
	} else if got := p.output(waits); got != "at last\n" {
		t.Errorf("the one that waited said %q", got)
	}
	if err := h.Kill9(); err != nil {
		t.Fatal(err)
	}
	if err := h.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(signals, "stop"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Fields(p.output(writes)) {
		if line != fmt.Sprint(i) {
			t.Fatalf("line %d of the log is %q", i, line)
		}
	}
	p.remove()
}

// A sandbox cannot be made, for many reasons. Nothing is left, and its name is free.
func TestSandboxFails(t *testing.T) {
	t.Parallel()
	h := newHost(t, "native-fails")
	bad := t.TempDir()
	script := "#!/bin/sh\ncat >/dev/null\ntest $CNI_COMMAND = DEL || { echo '{\"msg\":\"no addresses\"}'; exit 1; }\n"
	for path, text := range map[string]string{
		"bad":             script,
		"10-bad.conflist": `{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"bad"}]}`,
	} {
		if err := os.WriteFile(filepath.Join(bad, path), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		change func(*Config, *cni.Config)
		config func(*runtimeapi.PodSandboxConfig)
		want   string
	}{
		"network": {func(_ *Config, n *cni.Config) { n.ConfDir, n.BinDirs = bad, []string{bad} }, nil, "no addresses"},
		"pause image": {
			func(c *Config, _ *cni.Config) { c.PauseImage, c.Pause = "127.0.0.1:1/pause:v9", PauseAlways }, nil,
			"127.0.0.1:1/pause:v9",
		},
		"sysctl": {nil, func(c *runtimeapi.PodSandboxConfig) {
			c.Linux.Sysctls = map[string]string{"net.no.such": "1"}
		}, "/proc/sys/net/no/such"},
		"seccomp": {nil, func(c *runtimeapi.PodSandboxConfig) {
			c.Linux.SecurityContext.Seccomp = &runtimeapi.SecurityProfile{
				ProfileType: runtimeapi.SecurityProfile_Localhost, LocalhostRef: "/no/such/profile",
			}
		}, "/no/such/profile"},
		"name": {nil, func(c *runtimeapi.PodSandboxConfig) { c.Metadata.Uid = "" }, "no name, namespace or uid"},
	} {
		t.Run(name, func(t *testing.T) {
			var changes []func(*Config, *cni.Config)
			if c.change != nil {
				changes = append(changes, c.change)
			}
			r := h.runtime(t, changes...)
			config := h.sandboxConfig("bad", t.TempDir())
			if c.config != nil {
				c.config(config)
			}
			for range 2 { // the name is free again
				_, err := r.RunPodSandbox(t.Context(), config, "")
				if err == nil || !strings.Contains(err.Error(), c.want) || errdefs.IsAlreadyExists(err) {
					t.Errorf("got %v, want %q in it", err, c.want)
				}
			}
			if list, err := r.ListPodSandbox(t.Context(), nil); err != nil || len(list) > 0 {
				t.Errorf("the list is %v, %v", list, err)
			}
			r.Close()
			h.nothingLeft(t)
		})
	}
}

// The network cannot be given back. The sandbox stays in the list, also after a restart, until a
// later removal can.
func TestUndoFails(t *testing.T) {
	t.Parallel()
	h := newHost(t, "native-undo")
	dir := t.TempDir()
	plugin := filepath.Join(dir, "stuck")
	const script = "#!/bin/sh\ncat >/dev/null\ntest -e %q || { echo '{\"msg\":\"stuck\"}'; exit 1; }\n"
	for path, text := range map[string]string{
		plugin:                                  fmt.Sprintf(script, plugin+".free"),
		filepath.Join(dir, "10-stuck.conflist"): `{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"stuck"}]}`,
	} {
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	change := func(_ *Config, n *cni.Config) { n.ConfDir, n.BinDirs = dir, []string{dir} }
	r := h.runtime(t, change)
	config := h.sandboxConfig("stuck", t.TempDir())
	if _, err := r.RunPodSandbox(t.Context(), config, ""); err == nil || !strings.Contains(err.Error(), "undo") {
		t.Errorf("got %v, want both failures", err)
	}
	r.Close()
	r = h.runtime(t, change)
	list, err := r.ListPodSandbox(t.Context(), nil)
	if err != nil || len(list) != 1 || list[0].State != runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
		t.Fatalf("the list is %v, %v", list, err)
	}
	if err := r.RemovePodSandbox(t.Context(), list[0].Id); err == nil {
		t.Error("what is stuck was removed")
	}
	if err := os.WriteFile(plugin+".free", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := r.RemovePodSandbox(t.Context(), list[0].Id); err != nil {
		t.Error(err)
	}
	h.nothingLeft(t)
}

// The records are lost, as by a power loss that the rest survives. The next start removes what they
// told of.
func TestLostRecords(t *testing.T) {
	t.Parallel()
	h := newHost(t, "native-lost")
	first := h.runtime(t)
	p := h.newPod(t, first, "lost", "", nil)
	p.start(p.container("main", "sleep 1000"))
	kept := h.newPod(t, first, "kept", "", nil)
	first.Close()
	records := filepath.Join(h.Dir, "native", "root")
	ids, err := filepath.Glob(filepath.Join(records, "*", "*"+recordExtension))
	if err != nil || len(ids) != 3 {
		t.Fatalf("the records are %v, %v", ids, err)
	}
	for _, path := range ids {
		if filepath.Base(path) != kept.id+recordExtension {
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
		}
	}
	kept.runtime = h.runtime(t)
	if _, err := h.client.LoadContainer(t.Context(), p.id); !errdefs.IsNotFound(err) {
		t.Errorf("the lost sandbox is still there: %v", err)
	}
	attached, err := os.ReadDir(filepath.Join(h.Dir, "native", "cni", "attachments"))
	if err != nil || len(attached) != 1 {
		t.Errorf("attached are %v, %v, want the sandbox that was kept", attached, err)
	}
	status, err := kept.runtime.PodSandboxStatus(t.Context(), kept.id)
	if err != nil || status.State != runtimeapi.PodSandboxState_SANDBOX_READY {
		t.Errorf("the other sandbox is %v, %v", status, err)
	}
	kept.remove()
}

// Berth is killed while it has leases in containerd. The next start ends them, and no one else's.
func TestLeasesOfKilledProcess(t *testing.T) {
	t.Parallel()
	h := newHost(t, "native-leases")
	first := h.runtime(t)
	ctx, cancel := first.bounded(t.Context())
	defer cancel()
	if _, _, err := first.Leased(ctx); err != nil { // as by a kill, nobody ends it
		t.Fatal(err)
	}
	others, err := h.client.LeasesService().Create(ctx, leases.WithRandomID())
	if err != nil {
		t.Fatal(err)
	}
	first.Close()
	p := h.newPod(t, h.runtime(t), "leases", "", nil)
	p.start(p.container("main", "sleep 1000"))
	left, err := h.client.LeasesService().List(ctx)
	if err != nil || len(left) != 1 || left[0].ID != others.ID {
		t.Errorf("the leases are %v, %v, want %s", left, err, others.ID)
	}
	p.remove()
}

// What a pod's config and its containers' configs ask for is there.
func TestSettings(t *testing.T) {
	t.Parallel()
	h := newHost(t, "native-settings")
	inModes(t, func(t *testing.T, mode func(*Config, *cni.Config)) { h.settings(t, h.runtime(t, mode)) })
}

func (h *host) settings(t *testing.T, r *Runtime) {
	p := h.newPod(t, r, "settings", "", func(c *runtimeapi.PodSandboxConfig) {
		c.DnsConfig = &runtimeapi.DNSConfig{Servers: []string{"10.9.8.7"}, Searches: []string{"x.local"}}
		c.Linux.Sysctls = map[string]string{
			"net.ipv4.ip_unprivileged_port_start": "7", "net.ipv4.conf.eth0.accept_local": "1",
			"net.ipv4.conf.default.shared_media": "0", // not for eth0, which is there by then
		}
	})
	data := t.TempDir()
	if err := os.WriteFile(filepath.Join(data, "file"), []byte("data\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		script, want string
		change       func(*runtimeapi.ContainerConfig, *runtimeapi.LinuxContainerSecurityContext)
	}{
		"names": {
			"hostname; cat /etc/hostname; echo $HOSTNAME; cat /etc/resolv.conf",
			"pod-settings\npod-settings\npod-settings\nsearch x.local\nnameserver 10.9.8.7\n", nil,
		},
		"sysctl": {
			"cd /proc/sys/net/ipv4; cat ip_unprivileged_port_start conf/eth0/accept_local conf/eth0/shared_media",
			"7\n1\n1\n", nil,
		},
		"environment": {"echo $A $B; pwd", "2 3\n/tmp\n", func(
			c *runtimeapi.ContainerConfig, _ *runtimeapi.LinuxContainerSecurityContext,
		) {
			c.WorkingDir = "/tmp"
			for _, kv := range [][2]string{{"A", "1"}, {"B", "3"}, {"A", "2"}} {
				c.Envs = append(c.Envs, &runtimeapi.KeyValue{Key: kv[0], Value: []byte(kv[1])})
			}
		}},
		"user": {"id -u; id -g; id -G", "1000\n2000\n2000 3000\n", func(
			_ *runtimeapi.ContainerConfig, s *runtimeapi.LinuxContainerSecurityContext,
		) {
			s.RunAsUser, s.RunAsGroup = &runtimeapi.Int64Value{Value: 1000}, &runtimeapi.Int64Value{Value: 2000}
			s.SupplementalGroups = []int64{3000}
		}},
		"mounts": {
			"exec 2>/dev/null; cat /data/file; touch /data/x || echo read-only; touch /x || echo no root; touch /dev/shm/x",
			"data\nread-only\nno root\n",
			func(c *runtimeapi.ContainerConfig, s *runtimeapi.LinuxContainerSecurityContext) {
				c.Mounts = []*runtimeapi.Mount{{ContainerPath: "/data", HostPath: data, Readonly: true, RecursiveReadOnly: true}}
				s.ReadonlyRootfs = true
			},
		},
		"confined": {
			"grep -E '^(CapEff|NoNewPrivs|Seccomp):' /proc/self/status",
			"CapEff:\t0000000000000400\nNoNewPrivs:\t1\nSeccomp:\t2\n",
			func(_ *runtimeapi.ContainerConfig, s *runtimeapi.LinuxContainerSecurityContext) {
				s.NoNewPrivs, s.Seccomp = true, &runtimeapi.SecurityProfile{}
				s.Capabilities = &runtimeapi.Capability{
					DropCapabilities: []string{"ALL"}, AddCapabilities: []string{"NET_BIND_SERVICE"},
				}
			},
		},
		"privileged": {
			"test -e /dev/kmsg && mkdir /m && mount -t tmpfs none /m && grep Seccomp: /proc/self/status", "Seccomp:\t0\n",
			func(_ *runtimeapi.ContainerConfig, s *runtimeapi.LinuxContainerSecurityContext) { s.Privileged = true },
		},
		"masked": {"cat /etc/passwd | wc -c; touch /etc/x || echo kept", "0\n", func(
			_ *runtimeapi.ContainerConfig, s *runtimeapi.LinuxContainerSecurityContext,
		) {
			s.MaskedPaths = []string{"/etc/passwd"}
		}},
		"device": {"test -c /dev/mine && head -c 3 /dev/mine | wc -c", "3\n", func(
			c *runtimeapi.ContainerConfig, _ *runtimeapi.LinuxContainerSecurityContext,
		) {
			c.Devices = []*runtimeapi.Device{{ContainerPath: "/dev/mine", HostPath: "/dev/zero", Permissions: "rwm"}}
		}},
		"terminal": {"test -t 1 && echo $TERM", "xterm\r\n", func(
			c *runtimeapi.ContainerConfig, _ *runtimeapi.LinuxContainerSecurityContext,
		) {
			c.Tty = true
		}},
	} {
		config := p.container(strings.ReplaceAll(name, " ", "-"), c.script)
		if c.change != nil {
			c.change(config, config.Linux.SecurityContext)
		}
		if got := p.says(config); got != c.want {
			t.Errorf("%s: it said %q, want %q", name, got, c.want)
		}
	}
	p.remove()
}

// A container that cannot be made says why, and leaves nothing.
func TestContainerFails(t *testing.T) {
	t.Parallel()
	h := newHost(t, "native-refused")
	p := h.newPod(t, h.runtime(t), "refused", "", nil)
	for want, change := range map[string]func(*runtimeapi.ContainerConfig){
		"/no/such/source": func(c *runtimeapi.ContainerConfig) {
			c.Mounts = []*runtimeapi.Mount{{ContainerPath: "/x", HostPath: "/no/such/source"}}
		},
		"no.such/image:v1": func(c *runtimeapi.ContainerConfig) { c.Image.Image = "no.such/image:v1" },
		"/dev/nothing": func(c *runtimeapi.ContainerConfig) {
			c.Devices = []*runtimeapi.Device{{HostPath: "/dev/nothing"}}
		},
		"nobody-here": func(c *runtimeapi.ContainerConfig) {
			c.Linux.SecurityContext.RunAsUsername = "nobody-here"
		},
		"CDI":     func(c *runtimeapi.ContainerConfig) { c.CDIDevices = []*runtimeapi.CDIDevice{{Name: "a/b=c"}} },
		"no name": func(c *runtimeapi.ContainerConfig) { c.Metadata.Name = "" },
	} {
		config := p.container("main", "true")
		change(config)
		_, err := p.runtime.CreateContainer(t.Context(), p.id, config, p.config)
		if err == nil || !strings.Contains(err.Error(), want) || errdefs.IsNotFound(err) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
	if list, err := p.runtime.ListContainers(t.Context(), nil); err != nil || len(list) > 0 {
		t.Errorf("the list is %v, %v", list, err)
	}
	p.remove()
}

// stream opens the streams of a URL, and returns the error with which they ended.
func (p *pod) stream(at string, opts remotecommand.StreamOptions) error {
	p.Helper()
	parsed, err := url.Parse(at)
	if err != nil {
		p.Fatal(err)
	}
	executor, err := remotecommand.NewSPDYExecutor(&rest.Config{}, "POST", parsed)
	if err != nil {
		p.Fatal(err)
	}
	return executor.StreamWithContext(p.Context(), opts)
}

// Commands, attached clients and forwarded ports have their streams.
func TestStreams(t *testing.T) {
	t.Parallel()
	h := newHost(t, "native-streams")
	p := h.newPod(t, h.runtime(t), "streams", "", nil)
	config := p.container("main", `nc -l -p 8080 -e cat & while read line; do echo "got $line"; done; echo end`)
	config.Stdin, config.StdinOnce = true, true
	id := p.start(config)

	at, err := p.runtime.Exec(t.Context(), &runtimeapi.ExecRequest{
		ContainerId: id, Cmd: []string{"sh", "-c", "cat; echo problem >&2; exit 3"}, Stdin: true, Stdout: true, Stderr: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	var stdout, stderr bytes.Buffer
	err = p.stream(at, remotecommand.StreamOptions{
		Stdin: strings.NewReader("some input\n"), Stdout: &stdout, Stderr: &stderr,
	})
	if err == nil || !strings.Contains(err.Error(), "exit code 3") || stdout.String() != "some input\n" ||
		stderr.String() != "problem\n" {
		t.Errorf("the command said %q and %q, and ended with %v", &stdout, &stderr, err)
	}

	// a command with a terminal knows one, though its container has none
	if at, err = p.runtime.Exec(t.Context(), &runtimeapi.ExecRequest{
		ContainerId: id, Cmd: []string{"sh", "-c", "echo $TERM"}, Tty: true, Stdout: true,
	}); err != nil {
		t.Fatal(err)
	}
	stdout.Reset()
	err = p.stream(at, remotecommand.StreamOptions{Stdout: &stdout, Tty: true})
	if err != nil || stdout.String() != "xterm\r\n" {
		t.Errorf("its terminal is %q, %v", &stdout, err)
	}

	// a client may send all that it has at once
	large := strings.Repeat("0123456789abcdef", 200_000)
	if at, err = p.runtime.Exec(t.Context(), &runtimeapi.ExecRequest{
		ContainerId: id, Cmd: []string{"sha256sum"}, Stdin: true, Stdout: true,
	}); err != nil {
		t.Fatal(err)
	}
	var sum bytes.Buffer
	err = p.stream(at, remotecommand.StreamOptions{Stdin: strings.NewReader(large), Stdout: &sum})
	if want := fmt.Sprintf("%x  -\n", sha256.Sum256([]byte(large))); err != nil || sum.String() != want {
		t.Errorf("the sum of a large input is %q, want %q, %v", &sum, want, err)
	}

	here, there := net.Pipe()
	forwarded := make(chan error, 1)
	go func() {
		forwarded <- (&streamRuntime{p.runtime}).PortForward(t.Context(), p.id, 8080, there)
	}()
	if _, err := here.Write([]byte("ping")); err != nil {
		t.Error(err)
	}
	answer := make([]byte, 4)
	if _, err := io.ReadFull(here, answer); err != nil || string(answer) != "ping" {
		t.Errorf("the port answered %q, %v", answer, err)
	}
	_ = here.Close()
	if err := <-forwarded; err != nil {
		t.Error(err)
	}
	if err := (&streamRuntime{p.runtime}).PortForward(t.Context(), p.id, 9, there); err == nil {
		t.Error("a port where nobody listens answered")
	}

	at, err = p.runtime.Attach(t.Context(), &runtimeapi.AttachRequest{
		ContainerId: id, Stdin: true, Stdout: true, Stderr: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	stdout.Reset()
	err = p.stream(at, remotecommand.StreamOptions{
		Stdin: strings.NewReader("one\ntwo\n"), Stdout: &stdout, Stderr: io.Discard,
	})
	if err != nil || stdout.String() != "got one\ngot two\nend\n" {
		t.Errorf("the container said %q, and the stream ended with %v", &stdout, err)
	}
	if got := p.output(id); got != "got one\ngot two\nend\n" {
		t.Errorf("the log is %q", got)
	}
	p.remove()
}

// A pod has its own users. Its root is nobody on the node.
func TestUserNamespace(t *testing.T) {
	t.Parallel()
	h := newHost(t, "native-userns")
	ids := []*runtimeapi.IDMapping{{ContainerId: 0, HostId: 1_000_000, Length: 65536}}
	options := func() *runtimeapi.NamespaceOption {
		return &runtimeapi.NamespaceOption{
			Pid:           runtimeapi.NamespaceMode_CONTAINER,
			UsernsOptions: &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_POD, Uids: ids, Gids: ids},
		}
	}
	inModes(t, func(t *testing.T, mode func(*Config, *cni.Config)) { h.userNamespace(t, h.runtime(t, mode), options) })
}

func (h *host) userNamespace(t *testing.T, r *Runtime, options func() *runtimeapi.NamespaceOption) {
	status, err := r.Status(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	for _, handler := range status.RuntimeHandlers {
		if handler.Name == env.NewerHandler && !handler.Features.UserNamespaces {
			t.Errorf("the handler is %v, and has no user namespaces", handler)
		}
	}
	p := h.newPod(t, r, "userns", env.NewerHandler, func(c *runtimeapi.PodSandboxConfig) {
		c.Linux.SecurityContext.NamespaceOptions = options()
	})
	config := p.container("main", `id -u; awk '{print $1, $2, $3}' /proc/self/uid_map; touch /x; stat -c %u /x; ip addr show eth0 | grep -c 'inet '`)
	config.Linux.SecurityContext.NamespaceOptions = options()
	if got, want := p.says(config), "0\n0 1000000 65536\n0\n1\n"; got != want {
		t.Errorf("it said %q, want %q", got, want)
	}
	// its output is its own, as root and as anybody else
	for name, uid := range map[string]int64{"root": 0, "other": 1000} {
		config := p.container(name, "echo out >/dev/stdout; echo err >/dev/stderr; sh -c 'echo more >/dev/stdout'")
		config.Linux.SecurityContext.NamespaceOptions = options()
		config.Linux.SecurityContext.RunAsUser = &runtimeapi.Int64Value{Value: uid}
		got := strings.Fields(p.says(config))
		slices.Sort(got) // the two streams have no order
		if want := []string{"err", "more", "out"}; !slices.Equal(got, want) {
			t.Errorf("%s said %q, want %q", name, got, want)
		}
	}
	p.remove()
}

// Many pods come and go at once, and nothing of them is left.
func TestManyPods(t *testing.T) {
	t.Parallel()
	h := newHost(t, "native-many")
	r := h.runtime(t)
	errs := make(chan error)
	const pods = 8
	for i := range pods {
		go func() {
			errs <- func() error {
				p := &pod{T: t, host: h, runtime: r, config: h.sandboxConfig(fmt.Sprintf("many-%d", i), t.TempDir())}
				id, err := r.RunPodSandbox(t.Context(), p.config, "")
				if err != nil {
					return err
				}
				c, err := r.CreateContainer(t.Context(), id, p.container("main", "sleep 1000"), p.config)
				if err != nil {
					return err
				}
				if err := r.StartContainer(t.Context(), c); err != nil {
					return err
				}
				if err := r.StopContainer(t.Context(), c, time.Millisecond); err != nil {
					return err
				}
				return r.RemovePodSandbox(t.Context(), id)
			}()
		}()
	}
	for range pods {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	h.nothingLeft(t)
}
