package main

import (
	"fmt"
	"path/filepath"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/test/images"
)

// script is what the container runs: it idles, and ends at once when it is asked to.
const script = "trap 'exit 0' TERM; sleep 1000000 & wait $!"

// manifest is the pod as a manifest.
func manifest(name string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata:
  name: %s
  namespace: default
spec:
  containers:
    - name: main
      image: %s
      imagePullPolicy: IfNotPresent
      command: [sh, -c, %q]
`, name, images.Busybox, script)
}

// sandboxConfig is the pod's sandbox as bare calls ask for it.
func (b *bare) sandboxConfig(name string) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "default", Uid: "uid-" + name},
		Hostname:     name,
		LogDirectory: b.logDir(name),
		Labels:       map[string]string{podLabel: name},
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent: filepath.Join(b.env.CgroupRoot, "kubepods", "besteffort", "pod"+name),
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				NamespaceOptions: namespaces(),
				Seccomp:          &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_RuntimeDefault},
			},
		},
	}
}

// containerConfig is the pod's container as bare calls ask for it.
func containerConfig(name string, attempt uint32) *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "main", Attempt: attempt},
		Image:    &runtimeapi.ImageSpec{Image: images.Busybox},
		Command:  []string{"sh", "-c", script},
		LogPath:  fmt.Sprintf("main/%d.log", attempt),
		Labels:   map[string]string{podLabel: name},
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources:       &runtimeapi.LinuxContainerResources{CpuPeriod: 100_000, CpuShares: 2, OomScoreAdj: 1000},
			SecurityContext: &runtimeapi.LinuxContainerSecurityContext{NamespaceOptions: namespaces()},
		},
	}
}

func namespaces() *runtimeapi.NamespaceOption {
	return &runtimeapi.NamespaceOption{
		Network: runtimeapi.NamespaceMode_POD, Pid: runtimeapi.NamespaceMode_CONTAINER, Ipc: runtimeapi.NamespaceMode_POD,
	}
}

// podLabel is the CRI label that has a pod's name, for all columns.
const podLabel = "io.kubernetes.pod.name"
