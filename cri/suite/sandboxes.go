package suite

import (
	"net/netip"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func statusCase(b *bench) {
	version, err := b.Runtime.Version(b.ctx)
	b.ok(err, "version")
	if version.GetRuntimeName() == "" || version.GetRuntimeVersion() == "" {
		b.Errorf("version is %v, want a name and a version", version)
	}
	status, err := b.Runtime.Status(b.ctx, false)
	b.ok(err, "status")
	found := map[string]bool{}
	for _, c := range status.GetStatus().GetConditions() {
		found[c.GetType()] = c.GetStatus()
	}
	if !found[runtimeapi.RuntimeReady] || !found[runtimeapi.NetworkReady] {
		b.Errorf("conditions are %v, want %s and %s true", found, runtimeapi.RuntimeReady, runtimeapi.NetworkReady)
	}
	if _, err := b.Runtime.RuntimeConfig(b.ctx); err != nil {
		b.is(errdefs.IsNotImplemented, err, "runtime config")
	}
	for range 2 { // the suite's runtimes have their networks' configuration without it
		b.ok(b.Runtime.UpdateRuntimeConfig(b.ctx, &runtimeapi.RuntimeConfig{
			NetworkConfig: &runtimeapi.NetworkConfig{PodCidr: "10.255.0.0/24"},
		}), "update runtime config")
	}
}

// sandboxState returns the sandbox's state.
func (b *bench) sandboxState(id string) runtimeapi.PodSandboxState {
	b.Helper()
	status, err := b.Runtime.PodSandboxStatus(b.ctx, id)
	b.ok(err, "status of sandbox")
	return status.GetState()
}

func sandboxLife(b *bench) {
	sandbox := b.sandbox()
	status, err := b.Runtime.PodSandboxStatus(b.ctx, sandbox.id)
	b.ok(err, "status of sandbox")
	if status.GetId() != sandbox.id || status.GetState() != runtimeapi.PodSandboxState_SANDBOX_READY ||
		status.GetCreatedAt() <= 0 {
		b.Errorf("status is %v, want ready, its id and its creation time", status)
	}
	if got, want := status.GetMetadata(), sandbox.config.GetMetadata(); got.GetName() != want.GetName() ||
		got.GetUid() != want.GetUid() ||
		got.GetNamespace() != want.GetNamespace() || got.GetAttempt() != want.GetAttempt() {
		b.Errorf("metadata is %v, want %v", got, want)
	}
	wantMap(b, "labels", status.GetLabels(), sandbox.config.GetLabels())
	wantMap(b, "annotations", status.GetAnnotations(), sandbox.config.GetAnnotations())

	for range 2 {
		b.ok(b.Runtime.StopPodSandbox(b.ctx, sandbox.id), "stop sandbox")
		if got := b.sandboxState(sandbox.id); got != runtimeapi.PodSandboxState_SANDBOX_NOTREADY {
			b.Errorf("state after stop is %v, want not ready", got)
		}
	}
	for range 2 {
		b.ok(b.Runtime.RemovePodSandbox(b.ctx, sandbox.id), "remove sandbox")
		_, err = b.Runtime.PodSandboxStatus(b.ctx, sandbox.id)
		b.is(errdefs.IsNotFound, err, "status of a removed sandbox")
	}
	b.ok(b.Runtime.StopPodSandbox(b.ctx, sandbox.id), "stop a removed sandbox")
}

// wantMap reports entries of want that got lacks; a runtime may add its own.
func wantMap(b *bench, what string, got, want map[string]string) {
	b.Helper()
	for k, v := range want {
		if got[k] != v {
			b.Errorf("%s are %v, want %s=%s in it", what, got, k, v)
		}
	}
}

func sandboxNetwork(b *bench) {
	addrs := map[netip.Addr]bool{}
	for range 2 {
		status, err := b.Runtime.PodSandboxStatus(b.ctx, b.sandbox().id)
		b.ok(err, "status of sandbox")
		addr, err := netip.ParseAddr(status.GetNetwork().GetIp())
		b.ok(err, "address of sandbox")
		addrs[addr] = true
	}
	if len(addrs) != 2 {
		b.Errorf("two sandboxes have the addresses %v, want two", addrs)
	}
	config := b.newSandboxConfig()
	config.Hostname = "" // runtimes refuse to name the node
	config.Linux.SecurityContext.NamespaceOptions.Network = runtimeapi.NamespaceMode_NODE
	id, err := b.Runtime.RunPodSandbox(b.ctx, config, b.Handler)
	b.ok(err, "run a sandbox on the node's network")
	b.removeAtEnd(id)
	status, err := b.Runtime.PodSandboxStatus(b.ctx, id)
	b.ok(err, "status of sandbox")
	if ip := status.GetNetwork().GetIp(); ip != "" {
		b.Errorf("a sandbox on the node's network has the address %q, want none", ip)
	}
}

func sandboxFilters(b *bench) {
	one, two := b.sandbox(), b.sandbox()
	b.ok(b.Runtime.StopPodSandbox(b.ctx, two.id), "stop sandbox")
	ready := &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_READY}
	notReady := &runtimeapi.PodSandboxStateValue{State: runtimeapi.PodSandboxState_SANDBOX_NOTREADY}
	for name, c := range map[string]struct {
		filter   *runtimeapi.PodSandboxFilter
		one, two bool
	}{
		"nil":             {nil, true, true},
		"empty":           {&runtimeapi.PodSandboxFilter{}, true, true},
		"id":              {&runtimeapi.PodSandboxFilter{Id: one.id}, true, false},
		"label":           {&runtimeapi.PodSandboxFilter{LabelSelector: two.config.Labels}, false, true},
		"ready":           {&runtimeapi.PodSandboxFilter{State: ready}, true, false},
		"not ready":       {&runtimeapi.PodSandboxFilter{State: notReady}, false, true},
		"label and state": {&runtimeapi.PodSandboxFilter{LabelSelector: two.config.Labels, State: ready}, false, false},
		"other label": {
			&runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{label: "none"}}, false, false,
		},
		"other id": {&runtimeapi.PodSandboxFilter{Id: "0123456789abcdef"}, false, false},
	} {
		list, err := b.Runtime.ListPodSandbox(b.ctx, c.filter)
		b.ok(err, "list sandboxes by %s", name)
		found := map[string]*runtimeapi.PodSandbox{}
		for _, s := range list {
			found[s.GetId()] = s
		}
		if (found[one.id] != nil) != c.one || (found[two.id] != nil) != c.two {
			b.Errorf("list by %s: found the first %v and the second %v, want %v and %v", name, found[one.id] != nil,
				found[two.id] != nil, c.one, c.two)
		}
		if s := found[one.id]; s != nil {
			wantMap(b, "labels", s.GetLabels(), one.config.GetLabels())
			wantMap(b, "annotations", s.GetAnnotations(), one.config.GetAnnotations())
			if s.GetMetadata().GetUid() != one.config.Metadata.Uid || s.GetCreatedAt() <= 0 {
				b.Errorf("list by %s shows %v, want its uid and creation time", name, s)
			}
		}
	}
}

func sandboxNameIsReserved(b *bench) {
	first := b.sandbox()
	_, err := b.Runtime.RunPodSandbox(b.ctx, first.config, b.Handler)
	b.is(errdefs.IsAlreadyExists, err, "run the same sandbox again")
	next := b.newSandboxConfig()
	next.Metadata.Name, next.Metadata.Uid = first.config.Metadata.Name, first.config.Metadata.Uid
	next.Metadata.Attempt = 1
	id, err := b.Runtime.RunPodSandbox(b.ctx, next, b.Handler)
	b.ok(err, "run the next attempt")
	b.removeAtEnd(id)
	b.ok(b.Runtime.StopPodSandbox(b.ctx, first.id), "stop the first")
	b.ok(b.Runtime.RemovePodSandbox(b.ctx, first.id), "remove the first")
	again, err := b.Runtime.RunPodSandbox(b.ctx, first.config, b.Handler)
	b.ok(err, "run a sandbox of a name that was freed")
	b.removeAtEnd(again)
}

func sandboxTakesContainersWithIt(b *bench) {
	sandbox := b.sandbox()
	id := b.start(sandbox, "main", b.Commands.Wait)
	b.ok(b.Runtime.StopPodSandbox(b.ctx, sandbox.id), "stop sandbox")
	if got := b.status(id).GetState(); got != runtimeapi.ContainerState_CONTAINER_EXITED {
		b.Errorf("the container's state after its sandbox's stop is %v, want exited", got)
	}
	b.ok(b.Runtime.RemovePodSandbox(b.ctx, sandbox.id), "remove sandbox")
	_, err := b.Runtime.ContainerStatus(b.ctx, id)
	b.is(errdefs.IsNotFound, err, "status of a container of a removed sandbox")

	sandbox = b.sandbox()
	id = b.start(sandbox, "main", b.Commands.Wait)
	b.ok(b.Runtime.RemovePodSandbox(b.ctx, sandbox.id), "remove a sandbox that runs")
	_, err = b.Runtime.ContainerStatus(b.ctx, id)
	b.is(errdefs.IsNotFound, err, "status of a container of a removed sandbox")
}
