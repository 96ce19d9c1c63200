package suite

import (
	"context"
	"crypto/rand"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// label is on everything that the suite makes. Its value is the sandbox's uid.
const label = "berth.dev/suite"

// bench is one case's workplace.
type bench struct {
	*testing.T
	Target
	ctx context.Context // lives longer than the case's cleanups
}

// ok ends the case if err is not nil.
func (b *bench) ok(err error, doing string, args ...any) {
	b.Helper()
	if err != nil {
		b.Fatalf(doing+": %v", append(args, err)...)
	}
}

// is reports an error that does not have the class.
func (b *bench) is(class func(error) bool, err error, what string) {
	b.Helper()
	if !class(err) {
		b.Errorf("%s: got error %v (%T), want another class", what, err, err)
	}
}

// eventually polls until done returns true.
func (b *bench) eventually(what string, done func() bool) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !done() {
		select {
		case <-ctx.Done():
			b.Fatalf("%s: not within %s", what, patience)
		case <-tick.C:
		}
	}
}

// box is a sandbox with its config.
type box struct {
	id     string
	config *runtimeapi.PodSandboxConfig
}

// newSandboxConfig returns the config of a pod of its own.
func (b *bench) newSandboxConfig() *runtimeapi.PodSandboxConfig {
	uid := strings.ToLower(rand.Text()[:12])
	return &runtimeapi.PodSandboxConfig{
		Metadata:     &runtimeapi.PodSandboxMetadata{Name: "suite-" + uid, Uid: uid, Namespace: "suite"},
		Hostname:     "suite",
		LogDirectory: b.TempDir(),
		Labels:       map[string]string{label: uid},
		Annotations:  map[string]string{"berth.dev/note": "kept as it is"},
		Linux: &runtimeapi.LinuxPodSandboxConfig{
			CgroupParent: b.CgroupParent,
			SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
			},
		},
	}
}

// sandbox runs a sandbox that is removed at the end of the case.
func (b *bench) sandbox() box {
	b.Helper()
	config := b.newSandboxConfig()
	id, err := b.Runtime.RunPodSandbox(b.ctx, config, b.Handler)
	b.ok(err, "run sandbox")
	b.removeAtEnd(id)
	return box{id: id, config: config}
}

// removeAtEnd removes a sandbox at the end of the case.
func (b *bench) removeAtEnd(id string) {
	b.Cleanup(func() {
		if err := b.Runtime.StopPodSandbox(b.ctx, id); err != nil {
			b.Errorf("clean up: stop sandbox: %v", err)
		}
		if err := b.Runtime.RemovePodSandbox(b.ctx, id); err != nil {
			b.Errorf("clean up: remove sandbox: %v", err)
		}
	})
}

// newContainerConfig returns the config of a container of the sandbox.
func (b *bench) newContainerConfig(sandbox box, name string, command []string) *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{
		Metadata:    &runtimeapi.ContainerMetadata{Name: name},
		Image:       &runtimeapi.ImageSpec{Image: b.Image},
		Command:     command,
		Labels:      map[string]string{label: sandbox.config.Metadata.Uid, "berth.dev/name": name},
		Annotations: map[string]string{"berth.dev/note": "kept as it is"},
		LogPath:     name + ".log",
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources: &runtimeapi.LinuxContainerResources{CpuShares: 102},
			SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
				NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
			},
		},
	}
}

// create creates a container in the sandbox.
func (b *bench) create(sandbox box, name string, command []string) string {
	b.Helper()
	id, err := b.Runtime.CreateContainer(b.ctx, sandbox.id, b.newContainerConfig(sandbox, name, command),
		sandbox.config)
	b.ok(err, "create container %s", name)
	return id
}

// start creates and starts a container in the sandbox.
func (b *bench) start(sandbox box, name string, command []string) string {
	b.Helper()
	id := b.create(sandbox, name, command)
	b.ok(b.Runtime.StartContainer(b.ctx, id), "start container %s", name)
	return id
}

// heeds waits until a container that waits would end on its stop signal.
func (b *bench) heeds(id string) {
	b.Helper()
	b.succeeds(id, "heed signals", b.Commands.Heeds)
}

// stubborn starts a container that ignores its stop signal.
func (b *bench) stubborn(sandbox box, name string) (id string) {
	b.Helper()
	id = b.start(sandbox, name, b.Commands.Stubborn)
	b.succeeds(id, "ignore signals", b.Commands.Ignores)
	return id
}

// succeeds waits until a command in a container ends with exit code 0, if there is such a command.
func (b *bench) succeeds(id, what string, command []string) {
	b.Helper()
	if len(command) == 0 {
		return
	}
	b.eventually("the container's first process to "+what, func() bool {
		resp, err := b.Runtime.ExecSync(b.ctx, id, command, patience)
		b.ok(err, "look at the container's first process")
		return resp.GetExitCode() == 0
	})
}

// status returns a container's status.
func (b *bench) status(id string) *runtimeapi.ContainerStatus {
	b.Helper()
	status, err := b.Runtime.ContainerStatus(b.ctx, id)
	b.ok(err, "status of container")
	return status
}

// ended waits until the container has ended, and returns its status.
func (b *bench) ended(id string) *runtimeapi.ContainerStatus {
	b.Helper()
	var status *runtimeapi.ContainerStatus
	b.eventually("container ends", func() bool {
		status = b.status(id)
		return status.GetState() == runtimeapi.ContainerState_CONTAINER_EXITED
	})
	return status
}
