package suite

import (
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func containerLife(b *bench) {
	sandbox := b.sandbox()
	id := b.create(sandbox, "main", b.Commands.Wait)
	status := b.status(id)
	if status.GetState() != runtimeapi.ContainerState_CONTAINER_CREATED || status.GetCreatedAt() <= 0 ||
		status.GetStartedAt() != 0 || status.GetFinishedAt() != 0 {
		b.Errorf("status after create is %v, want created, with only its creation time", status)
	}
	if status.GetId() != id || status.GetMetadata().GetName() != "main" || status.GetImageRef() == "" ||
		status.GetImage().GetImage() == "" {
		b.Errorf("status is %v, want its id, name and image", status)
	}
	if got, want := status.GetLogPath(), filepath.Join(sandbox.config.LogDirectory, "main.log"); got != want {
		b.Errorf("log path is %q, want %q", got, want)
	}
	wantMap(b, "labels", status.GetLabels(), map[string]string{"berth.dev/name": "main"})
	wantMap(b, "annotations", status.GetAnnotations(), map[string]string{"berth.dev/note": "kept as it is"})

	b.ok(b.Runtime.StartContainer(b.ctx, id), "start container")
	status = b.status(id)
	if status.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING ||
		status.GetStartedAt() < status.GetCreatedAt() || status.GetFinishedAt() != 0 {
		b.Errorf("status after start is %v, want running, with its start", status)
	}
	if err := b.Runtime.StartContainer(b.ctx, id); err == nil {
		b.Error("starting a running container succeeded")
	}
	b.heeds(id)
	for range 2 {
		b.ok(b.Runtime.StopContainer(b.ctx, id, 30*time.Second), "stop container")
		status = b.status(id)
		if status.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED || status.GetExitCode() != 0 ||
			status.GetFinishedAt() < status.GetStartedAt() {
			b.Errorf("status after stop is %v, want exited with 0, and its end", status)
		}
	}
	if err := b.Runtime.StartContainer(b.ctx, id); err == nil {
		b.Error("starting an ended container succeeded")
	}
	for range 2 {
		b.ok(b.Runtime.RemoveContainer(b.ctx, id), "remove container")
		_, err := b.Runtime.ContainerStatus(b.ctx, id)
		b.is(errdefs.IsNotFound, err, "status of a removed container")
	}
	b.ok(b.Runtime.StopContainer(b.ctx, id, 0), "stop a removed container")
}

func containerFilters(b *bench) {
	sandbox, other := b.sandbox(), b.sandbox()
	running := b.start(sandbox, "running", b.Commands.Wait)
	ended := b.start(sandbox, "ended", b.Commands.Exit(0))
	created := b.create(other, "created", b.Commands.Wait)
	b.ended(ended)
	state := func(s runtimeapi.ContainerState) *runtimeapi.ContainerFilter {
		return &runtimeapi.ContainerFilter{State: &runtimeapi.ContainerStateValue{State: s}}
	}
	for name, c := range map[string]struct {
		filter                  *runtimeapi.ContainerFilter
		running, ended, created bool
	}{
		"nil":           {nil, true, true, true},
		"empty":         {&runtimeapi.ContainerFilter{}, true, true, true},
		"id":            {&runtimeapi.ContainerFilter{Id: ended}, false, true, false},
		"sandbox":       {&runtimeapi.ContainerFilter{PodSandboxId: sandbox.id}, true, true, false},
		"label":         {&runtimeapi.ContainerFilter{LabelSelector: other.config.Labels}, false, false, true},
		"running":       {state(runtimeapi.ContainerState_CONTAINER_RUNNING), true, false, false},
		"exited":        {state(runtimeapi.ContainerState_CONTAINER_EXITED), false, true, false},
		"created":       {state(runtimeapi.ContainerState_CONTAINER_CREATED), false, false, true},
		"other sandbox": {&runtimeapi.ContainerFilter{PodSandboxId: "0123456789abcdef"}, false, false, false},
		"label and other": {
			&runtimeapi.ContainerFilter{PodSandboxId: sandbox.id, LabelSelector: other.config.Labels}, false, false,
			false,
		},
	} {
		list, err := b.Runtime.ListContainers(b.ctx, c.filter)
		b.ok(err, "list containers by %s", name)
		found := map[string]*runtimeapi.Container{}
		for _, item := range list {
			found[item.GetId()] = item
		}
		for id, want := range map[string]bool{running: c.running, ended: c.ended, created: c.created} {
			if (found[id] != nil) != want {
				b.Errorf("list by %s: found %s %v, want %v", name, b.status(id).GetMetadata().GetName(),
					found[id] != nil, want)
			}
		}
		if item := found[running]; item != nil &&
			(item.GetPodSandboxId() != sandbox.id || item.GetMetadata().GetName() != "running" ||
				item.GetState() != runtimeapi.ContainerState_CONTAINER_RUNNING ||
				item.GetLabels()["berth.dev/name"] != "running" ||
				item.GetAnnotations()["berth.dev/note"] == "" || item.GetImageRef() == "") {
			b.Errorf("list by %s shows %v, want its sandbox, name, state, labels, annotations and image", name, item)
		}
	}
}

func containerNameIsReserved(b *bench) {
	sandbox := b.sandbox()
	config := b.newContainerConfig(sandbox, "main", b.Commands.Wait)
	id, err := b.Runtime.CreateContainer(b.ctx, sandbox.id, config, sandbox.config)
	b.ok(err, "create container")
	_, err = b.Runtime.CreateContainer(b.ctx, sandbox.id, config, sandbox.config)
	b.is(errdefs.IsAlreadyExists, err, "create the same container again")
	b.ok(b.Runtime.RemoveContainer(b.ctx, id), "remove container")
	_, err = b.Runtime.CreateContainer(b.ctx, sandbox.id, config, sandbox.config)
	b.ok(err, "create a container of a name that was freed")
	config.Metadata.Attempt = 1
	_, err = b.Runtime.CreateContainer(b.ctx, sandbox.id, config, sandbox.config)
	b.ok(err, "create the next attempt")
}

// exitCodes does not compare the times, because a short process may end before the runtime records
// its start.
func exitCodes(b *bench) {
	sandbox := b.sandbox()
	for _, code := range []int{0, 1, 3, 127, 255} {
		id := b.start(sandbox, fmt.Sprintf("exit-%d", code), b.Commands.Exit(code))
		status := b.ended(id)
		if int(status.GetExitCode()) != code || status.GetFinishedAt() == 0 || status.GetStartedAt() == 0 {
			b.Errorf("status is %v, want exit code %d and both times", status, code)
		}
		reason := "Error"
		if code == 0 {
			reason = "Completed"
		}
		if status.GetReason() != reason {
			b.Errorf("reason of exit code %d is %q, want %q", code, status.GetReason(), reason)
		}
	}
	if got := b.sandboxState(sandbox.id); got != runtimeapi.PodSandboxState_SANDBOX_READY {
		b.Errorf("the sandbox is %v after its containers ended, want ready", got)
	}
}

func stopKillsAfterGrace(b *bench) {
	sandbox := b.sandbox()
	for _, grace := range []time.Duration{0, time.Second} {
		id := b.stubborn(sandbox, fmt.Sprintf("stubborn-%s", grace))
		b.ok(b.Runtime.StopContainer(b.ctx, id, grace), "stop container")
		if status := b.status(id); status.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED ||
			status.GetExitCode() != 137 {
			b.Errorf("status is %v, want exited with 137", status)
		}
	}
}

func removeRunningContainer(b *bench) {
	sandbox := b.sandbox()
	id := b.stubborn(sandbox, "main")
	b.ok(b.Runtime.RemoveContainer(b.ctx, id), "remove a running container")
	_, err := b.Runtime.ContainerStatus(b.ctx, id)
	b.is(errdefs.IsNotFound, err, "status of a removed container")
}

func startFails(b *bench) {
	sandbox := b.sandbox()
	id := b.create(sandbox, "main", []string{"/no/such/program"})
	err := b.Runtime.StartContainer(b.ctx, id)
	if err == nil || errdefs.IsNotFound(err) || errdefs.IsUnavailable(err) {
		b.Errorf("starting a missing program: got error %v, want one that does not say that the container is missing",
			err)
	}
	if status := b.status(id); status.GetState() != runtimeapi.ContainerState_CONTAINER_EXITED ||
		status.GetExitCode() == 0 {
		b.Errorf("status is %v, want exited with another code than 0", status)
	}
}

func oomKilled(b *bench) {
	sandbox := b.sandbox()
	config := b.newContainerConfig(sandbox, "main", b.Commands.Eat)
	config.Linux.Resources.MemoryLimitInBytes = 64 << 20
	id, err := b.Runtime.CreateContainer(b.ctx, sandbox.id, config, sandbox.config)
	b.ok(err, "create container")
	b.ok(b.Runtime.StartContainer(b.ctx, id), "start container")
	b.ended(id)
	b.eventually("the status says OOMKilled", func() bool { return b.status(id).GetReason() == "OOMKilled" })
	if status := b.status(id); status.GetExitCode() != 137 {
		b.Errorf("status is %v, want exit code 137", status)
	}
}

func unknownIDs(b *bench) {
	const id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	b.ok(b.Runtime.StopPodSandbox(b.ctx, id), "stop an unknown sandbox")
	b.ok(b.Runtime.RemovePodSandbox(b.ctx, id), "remove an unknown sandbox")
	b.ok(b.Runtime.StopContainer(b.ctx, id, time.Second), "stop an unknown container")
	b.ok(b.Runtime.RemoveContainer(b.ctx, id), "remove an unknown container")
	_, err := b.Runtime.PodSandboxStatus(b.ctx, id)
	b.is(errdefs.IsNotFound, err, "status of an unknown sandbox")
	_, err = b.Runtime.ContainerStatus(b.ctx, id)
	b.is(errdefs.IsNotFound, err, "status of an unknown container")
	b.is(errdefs.IsNotFound, b.Runtime.StartContainer(b.ctx, id), "start an unknown container")
	_, err = b.Runtime.ExecSync(b.ctx, id, b.Commands.Exit(0), time.Second)
	b.is(errdefs.IsNotFound, err, "run a command in an unknown container")
	sandbox := box{id: id, config: b.newSandboxConfig()}
	_, err = b.Runtime.CreateContainer(b.ctx, id, b.newContainerConfig(sandbox, "main", b.Commands.Wait),
		sandbox.config)
	b.is(errdefs.IsNotFound, err, "create a container in an unknown sandbox")
}

func concurrent(b *bench) {
	sandbox := b.sandbox()
	var wg sync.WaitGroup
	codes := make([]error, 4)
	for i := range codes {
		wg.Go(func() {
			config := b.newContainerConfig(sandbox, fmt.Sprintf("c%d", i), b.Commands.Wait)
			id, err := b.Runtime.CreateContainer(b.ctx, sandbox.id, config, sandbox.config)
			if err == nil {
				err = b.Runtime.StartContainer(b.ctx, id)
			}
			if err == nil {
				err = b.Runtime.StopContainer(b.ctx, id, 30*time.Second)
			}
			if err == nil {
				err = b.Runtime.RemoveContainer(b.ctx, id)
			}
			codes[i] = err
		})
	}
	wg.Wait()
	for i, err := range codes {
		b.ok(err, "life of container %d", i)
	}
	list, err := b.Runtime.ListContainers(b.ctx, &runtimeapi.ContainerFilter{PodSandboxId: sandbox.id})
	b.ok(err, "list containers")
	if len(list) != 0 {
		b.Errorf("%d containers are left, want none", len(list))
	}
}
