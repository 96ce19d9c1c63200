//go:build integration

package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	corev1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	resourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/test/deviceplugin"
	"github.com/berthd/berth/test/env"
)

// cardPod is a pod that wants a number of devices of the tests' plugin. Its init container has one
// of them before.
const cardPod = `
initContainers:
  - name: first
    image: berth.local/busybox:v1
    command: [sh, -c, "test $CARDS"]
    resources:
      requests: {example.com/card: 1}
      limits: {example.com/card: 1}
containers:
  - name: main
    image: berth.local/busybox:v1
    command: [sh, -c, "trap 'exit 0' TERM; while true; do sleep 0.1; done"]
    resources:
      requests: {example.com/card: %[1]d}
      limits: {example.com/card: %[1]d}
`

// TestDevices checks that a pod gets the devices of a device plugin, keeps them over a crash of the
// agent and a restart of the plugin, shows their health, and that a pod without room is refused.
func TestDevices(t *testing.T) {
	t.Parallel()
	e := env.Containerd(t, env.Options{})
	a := e.StartAgent(t, env.AgentOptions{})
	a.WaitUp(t)
	lib := t.TempDir()
	if err := os.WriteFile(filepath.Join(lib, "driver"), []byte("driver 1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	cfg := deviceplugin.Config{
		Dir: filepath.Join(a.RootDir, "device-plugins"), Socket: "card.sock", Resource: "example.com/card",
		Devices: deviceplugin.Devices("a", "b"), Options: &pluginapi.DevicePluginOptions{PreStartRequired: true},
		Allocate: func(_ context.Context, ids []string) (*pluginapi.AllocateResponse, error) {
			return &pluginapi.AllocateResponse{ContainerResponses: []*pluginapi.ContainerAllocateResponse{{
				Envs:    map[string]string{"CARDS": strings.Join(ids, "+")},
				Devices: []*pluginapi.DeviceSpec{{HostPath: "/dev/full", ContainerPath: "/dev/card", Permissions: "rw"}},
				Mounts:  []*pluginapi.Mount{{HostPath: lib, ContainerPath: "/lib/card", ReadOnly: true}},
			}}}, nil
		},
	}
	p := plugIn(t, a, cfg)
	put(t, a, "cards", fmt.Sprintf(cardPod, 2))
	a.WaitReady(t, "cards")
	holds := func() {
		t.Helper()
		seen(t, a, "cards", "main", "echo $CARDS", "a+b", "cat /lib/card/driver", "driver 1", "stat -c %t,%T /dev/card",
			"1,7", "(echo x >/dev/card) 2>/dev/null || echo full", "full")
	}
	holds()
	toldOf(t, a)
	put(t, a, "late", fmt.Sprintf(cardPod, 1))
	waitPod(t, a, "late", "refused", func(p *corev1.Pod) error {
		const message = "Pod was rejected: Allocate failed due to requested number of devices unavailable for " +
			"example.com/card. Requested: 1, Available: 0, which is unexpected"
		if s := p.Status; s.Phase != corev1.PodFailed || s.Reason != "UnexpectedAdmissionError" || s.Message != message {
			return fmt.Errorf("%s %s %q", s.Phase, s.Reason, s.Message)
		}
		return nil
	})
	const metric = `kubelet_device_plugin_registration_total{resource_name="example.com/card"} `
	if metrics := page(t, a, "/metrics"); !strings.Contains(metrics, metric) {
		t.Errorf("the metrics lack %s", metric)
	}

	started := containerID(t, a, "cards")
	a.Kill9()
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
	p.Stop() // the agent has removed its socket, so it has to serve anew
	p = plugIn(t, a, cfg)
	p.Set(deviceplugin.Devices("b")...)
	waitHealth(t, a, corev1.ResourceHealthStatusUnhealthy, corev1.ResourceHealthStatusHealthy)
	p.Stop()
	waitHealth(t, a, corev1.ResourceHealthStatusUnknown, corev1.ResourceHealthStatusUnknown)
	plugIn(t, a, cfg)
	waitHealth(t, a, corev1.ResourceHealthStatusHealthy, corev1.ResourceHealthStatusHealthy)
	holds()
	if now := containerID(t, a, "cards"); now != started {
		t.Errorf("container %s runs, and not %s", now, started)
	}
	a.RemoveManifest(t, "cards.yaml")
	put(t, a, "next", fmt.Sprintf(cardPod, 2)) // it waits for the devices of the pod that ends
	a.WaitReady(t, "next")
}

// plugIn starts and registers a plugin, and waits until the node has its devices.
func plugIn(t *testing.T, a *env.Agent, cfg deviceplugin.Config) *deviceplugin.Plugin {
	t.Helper()
	waitRegistrar(t, cfg.Dir)
	p, err := deviceplugin.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	env.Eventually(t, "the plugin's registration", func() error {
		if err := p.Register(t.Context()); err != nil {
			return err
		}
		if !p.Watched() {
			return errors.New("its devices are not watched")
		}
		return nil
	})
	env.Eventually(t, "the node's devices", func() error {
		var node api.NodeStatus
		if err := json.Unmarshal([]byte(page(t, a, api.PathStatus)), &node); err != nil {
			return err
		}
		have := node.Resources.Allocatable[corev1.ResourceName(cfg.Resource)]
		if have.Value() != int64(len(cfg.Devices)) {
			return fmt.Errorf("it has %+v", node.Resources)
		}
		return nil
	})
	return p
}

// waitRegistrar waits until the agent has removed the sockets of an earlier run, and takes
// registrations: somebody answers at the socket.
func waitRegistrar(t *testing.T, dir string) {
	t.Helper()
	env.Eventually(t, "the agent to take registrations", func() error {
		conn, err := net.Dial("unix", filepath.Join(dir, "kubelet.sock"))
		if err != nil {
			return err
		}
		return conn.Close()
	})
}

// toldOf checks that the pod resources API tells of the pod's devices.
func toldOf(t *testing.T, a *env.Agent) {
	t.Helper()
	conn, err := grpc.NewClient("unix://"+filepath.Join(a.RootDir, "pod-resources/kubelet.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	got, err := resourcesapi.NewPodResourcesListerClient(conn).Get(t.Context(),
		&resourcesapi.GetPodResourcesRequest{PodNamespace: "default", PodName: "cards-" + env.NodeName})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, c := range got.GetPodResources().GetContainers() {
		for _, d := range c.GetDevices() {
			ids = append(ids, c.GetName()+" "+strings.Join(d.GetDeviceIds(), ","))
		}
	}
	if want := []string{"main a", "main b"}; !slices.Equal(ids, want) {
		t.Errorf("it tells of %q, want %q", ids, want)
	}
}

// containerID returns the id of the container of a pod.
func containerID(t *testing.T, a *env.Agent, pod string) string {
	t.Helper()
	p := waitPod(t, a, pod, "to run", func(p *corev1.Pod) error {
		if len(p.Status.ContainerStatuses) != 1 || p.Status.ContainerStatuses[0].State.Running == nil {
			return errors.New("it does not run")
		}
		return nil
	})
	return p.Status.ContainerStatuses[0].ContainerID
}

// waitHealth waits until the status of the pod with devices has this health of them.
func waitHealth(t *testing.T, a *env.Agent, want ...corev1.ResourceHealthStatus) {
	t.Helper()
	waitPod(t, a, "cards", fmt.Sprint("devices ", want), func(p *corev1.Pod) error {
		var got []corev1.ResourceHealthStatus
		for _, c := range p.Status.ContainerStatuses {
			for _, s := range c.AllocatedResourcesStatus {
				for _, r := range s.Resources {
					got = append(got, r.Health)
				}
			}
		}
		if !slices.Equal(got, want) {
			return fmt.Errorf("the health is %v", got)
		}
		return nil
	})
}
