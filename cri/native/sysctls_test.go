package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// noImages are images of which a list fails. asked counts the lists.
type noImages struct {
	images.Store
	asked int
}

func (n *noImages) List(context.Context, ...string) ([]images.Image, error) {
	n.asked++
	return nil, errors.New("no images")
}

// notingNetwork returns a directory with a network whose only plugin notes its calls in the file
// calls, and runs a script for ADD.
func notingNetwork(t *testing.T, add string) string {
	t.Helper()
	dir := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\ncat >/dev/null\necho $CNI_COMMAND >>%q\ntest $CNI_COMMAND = ADD || exit 0\n%s\n",
		filepath.Join(dir, "calls"), add)
	for name, text := range map[string]string{
		"noting":           script,
		"10-test.conflist": `{"cniVersion":"1.0.0","name":"pods","plugins":[{"type":"noting"}]}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// Sysctls of the network are set when its devices are there: a plugin has attached the network
// before a sysctl fails, and no pause process, whose OCI runtime sets them, is made before.
func TestSysctlsComeAfterTheNetwork(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("namespaces need root")
	}
	const good = `echo '{"cniVersion":"1.0.0","ips":[{"address":"10.1.2.3/24"}]}'`
	const bad = `echo '{"msg":"no addresses"}'; exit 1`
	for name, c := range map[string]struct {
		pause  PauseMode
		add    string
		sysctl string
		want   string // in the error
		asked  int    // for the image of pause processes
	}{
		"without pause":           {PauseAuto, good, "net.no.such", "/proc/sys/net/no/such", 0},
		"network before pause":    {PauseAlways, bad, "net.ipv4.ip_forward", "no addresses", 0},
		"network beside pause":    {PauseAlways, bad, "kernel.sem", "no addresses", 1},
		"pause after the network": {PauseAlways, good, "net.ipv4.ip_forward", "no images", 1},
	} {
		t.Run(name, func(t *testing.T) {
			stored := &noImages{}
			dir := notingNetwork(t, c.add)
			r := fakeContainerd{
				services: []client.ServicesOpt{
					client.WithImageStore(stored), client.WithContainerStore(noContainers{}),
				}, networks: dir,
			}.runtime(t)
			r.cfg.Pause = c.pause
			_, err := r.RunPodSandbox(t.Context(), &runtimeapi.PodSandboxConfig{
				Metadata: &runtimeapi.PodSandboxMetadata{Name: "a", Namespace: "test", Uid: "a"},
				Linux: &runtimeapi.LinuxPodSandboxConfig{
					Sysctls: map[string]string{c.sysctl: "1"},
					SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
						NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
					},
				},
			}, "")
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q in it", err, c.want)
			}
			if calls, err := os.ReadFile(filepath.Join(dir, "calls")); err != nil || !strings.HasPrefix(string(calls), "ADD\n") {
				t.Errorf("the plugin was called %q, %v", calls, err)
			}
			if stored.asked != c.asked {
				t.Errorf("the pause image was asked for %d times, want %d", stored.asked, c.asked)
			}
			if list, err := r.ListPodSandbox(t.Context(), nil); err != nil || len(list) > 0 {
				t.Errorf("left are %v, %v", list, err)
			}
		})
	}
}
