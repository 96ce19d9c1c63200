//go:build integration

package env

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/test/images"
)

// startPod runs a sandbox with one busybox container that sleeps, and returns the sandbox's id.
func startPod(t *testing.T, e *Env, name string) string {
	t.Helper()
	ctx := t.Context()
	config := &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "default", Uid: "uid-" + name},
		LogDirectory: filepath.Join(e.Dir, "raw-logs", name),
		Linux:        &runtimeapi.LinuxPodSandboxConfig{CgroupParent: e.CgroupRoot + "/raw-" + name},
	}
	sandbox, err := e.Runtime().RunPodSandbox(ctx, &runtimeapi.RunPodSandboxRequest{Config: config})
	if err != nil {
		t.Fatalf("run a sandbox: %v", err)
	}
	container, err := e.Runtime().CreateContainer(ctx, &runtimeapi.CreateContainerRequest{
		PodSandboxId: sandbox.PodSandboxId, SandboxConfig: config,
		Config: &runtimeapi.ContainerConfig{
			Metadata: &runtimeapi.ContainerMetadata{Name: "main"},
			Image:    &runtimeapi.ImageSpec{Image: images.Busybox},
			Command:  []string{"sleep", "3600"},
			LogPath:  "main/0.log",
		},
	})
	if err != nil {
		t.Fatalf("create a container: %v", err)
	}
	if _, err := e.Runtime().StartContainer(ctx, &runtimeapi.StartContainerRequest{
		ContainerId: container.ContainerId,
	}); err != nil {
		t.Fatalf("start a container: %v", err)
	}
	return sandbox.PodSandboxId
}

func removePod(t *testing.T, e *Env, id string) {
	t.Helper()
	if _, err := e.Runtime().StopPodSandbox(t.Context(), &runtimeapi.StopPodSandboxRequest{
		PodSandboxId: id,
	}); err != nil {
		t.Fatalf("stop the sandbox: %v", err)
	}
	if _, err := e.Runtime().RemovePodSandbox(t.Context(), &runtimeapi.RemovePodSandboxRequest{
		PodSandboxId: id,
	}); err != nil {
		t.Fatalf("remove the sandbox: %v", err)
	}
}

func TestPodComesAndGoesWithoutLeaks(t *testing.T) {
	for _, version := range []string{Containerd24, ContainerdDebian} {
		t.Run(version, func(t *testing.T) {
			e := Containerd(t, Options{Version: version})
			if leaks := e.Leaks(); len(leaks) > 0 {
				t.Fatalf("leaks before the first pod:\n%s", strings.Join(leaks, "\n"))
			}
			id := startPod(t, e, "one")

			status, err := e.Runtime().PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{
				PodSandboxId: id,
			})
			if err != nil {
				t.Fatal(err)
			}
			ip, err := netip.ParseAddr(status.GetStatus().GetNetwork().GetIp())
			if err != nil || !e.PodCIDR.Contains(ip) {
				t.Errorf("the pod's address %v is not in %s (%v)", ip, e.PodCIDR, err)
			}
			for _, kind := range []string{
				"sandbox", "container", "cgroup", "mount", "network namespace", "address lease", "interface",
				"CNI result", "shim ",
			} {
				if !strings.Contains(strings.Join(e.Leaks(), "\n"), kind) {
					t.Errorf("a running pod shows no %s in\n%s", kind, strings.Join(e.Leaks(), "\n"))
				}
			}

			removePod(t, e, id)
			Eventually(t, "the pod's remains to be gone", func() error {
				// The caller has to remove the cgroup parent.
				for _, root := range e.cgroupRoots() {
					_ = os.Remove(filepath.Join(root, "raw-one"))
				}
				if leaks := e.Leaks(); len(leaks) > 0 {
					return errors.New(strings.Join(leaks, "\n"))
				}
				return nil
			})
		})
	}
}

func TestPodIsFenced(t *testing.T) {
	e := Containerd(t, Options{})
	id := startPod(t, e, "fenced")
	containers, err := e.Runtime().ListContainers(t.Context(), &runtimeapi.ListContainersRequest{
		Filter: &runtimeapi.ContainerFilter{PodSandboxId: id},
	})
	if err != nil || len(containers.Containers) != 1 {
		t.Fatalf("list the pod's containers: %v, %v", containers, err)
	}
	out, err := e.Runtime().ExecSync(t.Context(), &runtimeapi.ExecSyncRequest{
		ContainerId: containers.Containers[0].Id, Cmd: []string{"ip", "route"}, Timeout: 10,
	})
	if err != nil || out.ExitCode != 0 {
		t.Fatalf("list the pod's routes: %v, %v", out, err)
	}
	if routes := string(out.Stdout); strings.Contains(routes, "default") || strings.Contains(routes, "via") {
		t.Errorf("the pod has a route out:\n%s", routes)
	}
}

func TestContainerdDiesAndPodsLive(t *testing.T) {
	e := Containerd(t, Options{})
	id := startPod(t, e, "alive")
	before := e.ContainerdPID()
	if err := e.Kill9(); err != nil {
		t.Fatal(err)
	}
	if len(e.ShimPIDs()) != 1 {
		t.Errorf("shims after the kill: %v", e.ShimPIDs())
	}
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := e.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if e.ContainerdPID() == before {
		t.Error("containerd did not change")
	}
	status, err := e.Runtime().PodSandboxStatus(t.Context(), &runtimeapi.PodSandboxStatusRequest{PodSandboxId: id})
	if err != nil || status.GetStatus().GetState() != runtimeapi.PodSandboxState_SANDBOX_READY {
		t.Errorf("the sandbox after two restarts: %v, %v", status, err)
	}
}

// TestCloseRemovesWhatAKilledContainerdLeft closes an environment whose containerd is dead while
// pods run.
func TestCloseRemovesWhatAKilledContainerdLeft(t *testing.T) {
	e := Containerd(t, Options{})
	for i := range 3 {
		startPod(t, e, fmt.Sprint("left-", i))
	}
	if err := e.Kill9(); err != nil {
		t.Fatal(err)
	}
	var outside []string
	bundles, _ := filepath.Glob(e.shimBundles())
	for _, b := range bundles {
		outside = append(outside, shimSockets(b)...)
		results, _ := filepath.Glob(filepath.Join(cniResults, "*-"+filepath.Base(b)+"-*"))
		outside = append(outside, results...)
	}
	// Each of the three pods has a container, which shares the sandbox's shim, and has results of
	// two networks.
	if len(outside) < 9 {
		t.Errorf("files outside the folder before the close: %v", outside)
	}
	if err := e.Close(); err != nil {
		t.Fatalf("close: %v", err)
	}
	if _, err := os.Stat(e.Dir); !os.IsNotExist(err) {
		t.Errorf("the folder is still there: %v", err)
	}
	if roots := e.cgroupRoots(); len(roots) > 0 {
		t.Errorf("cgroups left: %v", roots)
	}
	if _, bridge, err := e.links(); err != nil || bridge != nil {
		t.Errorf("bridge left: %v, %v", bridge, err)
	}
	if left := append(e.shims(), e.containerds()...); len(left) > 0 {
		t.Errorf("processes left: %v", left)
	}
	for _, f := range outside {
		if _, err := os.Stat(f); err == nil {
			t.Errorf("left: %s", f)
		}
	}
}

func TestEnvironmentsDoNotCollide(t *testing.T) {
	a, b := Containerd(t, Options{}), Containerd(t, Options{})
	if a.Slot == b.Slot || a.PodCIDR.Overlaps(b.PodCIDR) || a.Endpoint == b.Endpoint {
		t.Fatalf("two environments share something: %+v, %+v", a.Layout, b.Layout)
	}
	startPod(t, a, "same")
	startPod(t, b, "same")
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	list, err := b.Runtime().ListPodSandbox(context.Background(), &runtimeapi.ListPodSandboxRequest{})
	if err != nil || len(list.Items) != 1 {
		t.Errorf("the other environment's sandboxes: %v, %v", list, err)
	}
}
