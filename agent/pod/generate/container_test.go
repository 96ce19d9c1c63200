package generate

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/testing/protocmp"
	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri"
)

// containerInput is the input of testPod's container, whose image runs as user 7.
func containerInput(pod *v1.Pod) ContainerInput {
	return ContainerInput{
		Pod: pod, Container: &pod.Spec.Containers[0], Node: testNode(), RestartCount: 2,
		Image:     cri.Image{Ref: "sha256:abc", UID: ptr(int64(7))},
		Resources: &runtimeapi.LinuxContainerResources{CpuShares: 2},
		Env: []*runtimeapi.KeyValue{
			{Key: "A", Value: []byte("one")},
			{Key: "EMPTY"},
			{Key: "SECRET", Value: []byte("/" + hidden)},
			{Key: "UP", Value: []byte("../" + hidden)},
		},
		Mounts: MountInput{
			Volumes: map[string]Volume{
				"data": {HostPath: "/pods/data", Relabel: true}, "conf": {HostPath: "/pods/conf", ReadOnly: true},
				"image": {Image: &runtimeapi.ImageSpec{Image: "sha256:vol"}, ReadOnly: true}, "unready": {},
			},
			SubPath: func(index int, volume, subPath string) (string, error) {
				if strings.HasPrefix(subPath, "bad") {
					return "", errors.New("open /host/secret/path: permission denied")
				}
				return "/fd/" + volume + "/" + subPath, nil
			},
		},
	}
}

func baseContainer(
	pod *v1.Pod, in ContainerInput, edits ...func(*runtimeapi.ContainerConfig),
) *runtimeapi.ContainerConfig {
	config := &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "main", Attempt: 2},
		Image:    &runtimeapi.ImageSpec{Image: "sha256:abc", UserSpecifiedImage: "example.com/web:1"},
		Envs:     in.Env,
		Labels: map[string]string{
			"io.kubernetes.pod.name": "web", "io.kubernetes.pod.namespace": "shop", "io.kubernetes.pod.uid": "u-1",
			"io.kubernetes.container.name": "main",
		},
		Annotations: cri.ContainerAnnotations(pod, &pod.Spec.Containers[0], 2),
		LogPath:     "main/2.log",
		Linux: &runtimeapi.LinuxContainerConfig{
			Resources: &runtimeapi.LinuxContainerResources{CpuShares: 2},
			SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
				RunAsUser: &runtimeapi.Int64Value{Value: 7},
				Seccomp:   &runtimeapi.SecurityProfile{ProfileType: runtimeapi.SecurityProfile_Unconfined},
				NamespaceOptions: &runtimeapi.NamespaceOption{
					Pid:           runtimeapi.NamespaceMode_CONTAINER,
					UsernsOptions: &runtimeapi.UserNamespace{Mode: runtimeapi.NamespaceMode_NODE},
				},
				MaskedPaths: []string{
					"/proc/acpi", "/proc/asound", "/proc/interrupts", "/proc/kcore", "/proc/keys",
					"/proc/latency_stats", "/proc/sched_debug",
					"/proc/scsi", "/proc/timer_list", "/proc/timer_stats", "/sys/devices/virtual/powercap",
					"/sys/firmware",
				},
				ReadonlyPaths: []string{"/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"},
			},
		},
	}
	for _, edit := range edits {
		edit(config)
	}
	return config
}

// containerTest is one pod, its changed input, and the changed config or the error.
type containerTest struct {
	pod  func(*v1.Pod)
	in   func(*ContainerInput)
	want func(*runtimeapi.ContainerConfig)
	err  string
}

func runContainerTests(t *testing.T, tests map[string]containerTest) {
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if tc.pod == nil {
				tc.pod = func(*v1.Pod) {}
			}
			if tc.want == nil {
				tc.want = func(*runtimeapi.ContainerConfig) {}
			}
			pod := testPod(tc.pod)
			in := containerInput(pod)
			if tc.in != nil {
				tc.in(&in)
			}
			before := pod.DeepCopy()
			got, err := Container(in)
			wantError(t, err, ReasonContainer, tc.err)
			switch {
			case err != nil:
				if strings.Contains(err.Error(), hidden) || strings.Contains(err.Error(), "/host/secret/path") {
					t.Errorf("the error holds a secret: %v", err)
				}
			default:
				if diff := cmp.Diff(baseContainer(pod, in, tc.want), got, protocmp.Transform()); diff != "" {
					t.Error(diff)
				}
			}
			if diff := cmp.Diff(before, pod); diff != "" {
				t.Errorf("the pod was changed: %s", diff)
			}
		})
	}
}

// mainContainer changes the pod's only container.
func mainContainer(edit func(*v1.Container)) func(*v1.Pod) {
	return func(p *v1.Pod) { edit(&p.Spec.Containers[0]) }
}

func TestContainer(t *testing.T) {
	runContainerTests(t, map[string]containerTest{
		"plain": {},
		"command and terminal": {
			pod: mainContainer(func(c *v1.Container) {
				c.Command, c.Args = []string{"run", "$(A)"}, []string{"$(A)-$(NONE)", "$$(A)", "$(EMPTY)"}
				c.WorkingDir, c.Stdin, c.StdinOnce, c.TTY = "/work", true, true, true
			}),
			want: func(c *runtimeapi.ContainerConfig) {
				c.Command, c.Args = []string{"run", "one"}, []string{"one-$(NONE)", "$(A)", ""}
				c.WorkingDir, c.Stdin, c.StdinOnce, c.Tty = "/work", true, true, true
			},
		},
		"stop signal": {
			pod:  mainContainer(func(c *v1.Container) { c.Lifecycle = &v1.Lifecycle{StopSignal: ptr(v1.SIGUSR1)} }),
			want: func(c *runtimeapi.ContainerConfig) { c.StopSignal = runtimeapi.Signal_SIGUSR1 },
		},
		"real-time stop signal": {
			pod: mainContainer(func(c *v1.Container) {
				c.Lifecycle = &v1.Lifecycle{StopSignal: ptr(v1.Signal("SIGRTMAX-3"))}
			}),
			want: func(c *runtimeapi.ContainerConfig) { c.StopSignal = runtimeapi.Signal_SIGRTMAXMINUS3 },
		},
		"unknown stop signal": {
			pod: mainContainer(func(c *v1.Container) {
				c.Lifecycle = &v1.Lifecycle{StopSignal: ptr(v1.Signal("RUNTIME_DEFAULT"))}
			}),
			err: `stopSignal "RUNTIME_DEFAULT" of container "main" is not a signal`,
		},
		"block devices": {
			pod: mainContainer(func(c *v1.Container) {
				c.VolumeDevices = []v1.VolumeDevice{
					{Name: "d", DevicePath: "/dev/d"}, {Name: "r", DevicePath: "/dev/r"},
				}
			}),
			in: func(in *ContainerInput) {
				in.Mounts.Volumes = map[string]Volume{
					"d": {HostPath: "/at/d", Device: true}, "r": {HostPath: "/at/r", Device: true, ReadOnly: true},
				}
			},
			want: func(c *runtimeapi.ContainerConfig) {
				c.Devices = []*runtimeapi.Device{
					{
						HostPath: "/at/d", ContainerPath: "/dev/d", Permissions: "mrw",
					}, {
						HostPath:      "/at/r",
						ContainerPath: "/dev/r", Permissions: "mr",
					},
				}
			},
		},
		"a directory as a block device": {
			pod: mainContainer(func(c *v1.Container) {
				c.VolumeDevices = []v1.VolumeDevice{{Name: "d", DevicePath: "/dev/d"}}
			}),
			in:  func(in *ContainerInput) { in.Mounts.Volumes = map[string]Volume{"d": {HostPath: "/at/d"}} },
			err: `cannot find volume "d" to pass into container "main"`,
		},
		"target of an ephemeral container": {
			in: func(in *ContainerInput) { in.TargetID = "c0ffee" },
			want: func(c *runtimeapi.ContainerConfig) {
				o := c.Linux.SecurityContext.NamespaceOptions
				o.Pid, o.TargetId = runtimeapi.NamespaceMode_TARGET, "c0ffee"
			},
		},
		"target where processes are shared anyway": {
			pod: func(p *v1.Pod) { p.Spec.ShareProcessNamespace = ptr(true) },
			in:  func(in *ContainerInput) { in.TargetID = "c0ffee" },
			want: func(c *runtimeapi.ContainerConfig) {
				c.Linux.SecurityContext.NamespaceOptions.Pid = runtimeapi.NamespaceMode_POD
			},
		},
	})
}

func TestStopSignals(t *testing.T) {
	known := 0
	for name := range runtimeapi.Signal_value {
		if !strings.HasPrefix(name, "SIG") {
			continue
		}
		known++
		text := strings.NewReplacer("PLUS", "+", "MINUS", "-").Replace(name)
		got, err := stopSignal(&v1.Container{Lifecycle: &v1.Lifecycle{StopSignal: ptr(v1.Signal(text))}})
		if err != nil || got.String() != name {
			t.Errorf("%s: %v, %v", text, got, err)
		}
	}
	if known < 64 {
		t.Errorf("only %d signals", known)
	}
}

func TestMounts(t *testing.T) {
	mount := func(m v1.VolumeMount) func(*v1.Pod) {
		return mainContainer(func(c *v1.Container) { c.VolumeMounts = []v1.VolumeMount{m} })
	}
	want := func(mounts ...*runtimeapi.Mount) func(*runtimeapi.ContainerConfig) {
		return func(c *runtimeapi.ContainerConfig) { c.Mounts = mounts }
	}
	runContainerTests(t, map[string]containerTest{
		"in order": {
			pod: mainContainer(func(c *v1.Container) {
				c.VolumeMounts = []v1.VolumeMount{
					{Name: "conf", MountPath: "/c"},
					{Name: "data", MountPath: "d"},
					{Name: "data", MountPath: "/e", ReadOnly: true},
				}
			}),
			want: want(
				&runtimeapi.Mount{HostPath: "/pods/conf", ContainerPath: "/c", Readonly: true},
				&runtimeapi.Mount{HostPath: "/pods/data", ContainerPath: "/d", SelinuxRelabel: true},
				&runtimeapi.Mount{HostPath: "/pods/data", ContainerPath: "/e", SelinuxRelabel: true, Readonly: true},
			),
		},
		"no relabelling without SELinux": {
			pod: mount(v1.VolumeMount{Name: "data", MountPath: "/d"}),
			in:  func(in *ContainerInput) { in.Node.Features.SELinux = false; in.Mounts.HostsFile = "/pods/hosts" },
			want: want(&runtimeapi.Mount{HostPath: "/pods/data", ContainerPath: "/d"},
				&runtimeapi.Mount{HostPath: "/pods/hosts", ContainerPath: "/etc/hosts"}),
		},
		"hosts file and termination log": {
			pod: mainContainer(func(c *v1.Container) { c.TerminationMessagePath = "dev/termination-log" }),
			in: func(in *ContainerInput) {
				in.Mounts.HostsFile, in.Mounts.TerminationLog = "/pods/hosts", "/pods/term"
			},
			want: want(
				&runtimeapi.Mount{HostPath: "/pods/hosts", ContainerPath: "/etc/hosts", SelinuxRelabel: true},
				&runtimeapi.Mount{HostPath: "/pods/term", ContainerPath: "/dev/termination-log", SelinuxRelabel: true},
			),
		},
		"own hosts file": {
			pod:  mount(v1.VolumeMount{Name: "conf", MountPath: "/etc/hosts"}),
			in:   func(in *ContainerInput) { in.Mounts.HostsFile = "/pods/hosts" },
			want: want(&runtimeapi.Mount{HostPath: "/pods/conf", ContainerPath: "/etc/hosts", Readonly: true}),
		},
		"no path for the termination log": {in: func(in *ContainerInput) { in.Mounts.TerminationLog = "/pods/term" }},
		"propagation": {
			pod: mainContainer(func(c *v1.Container) {
				c.VolumeMounts = []v1.VolumeMount{
					{Name: "conf", MountPath: "/a", MountPropagation: ptr(v1.MountPropagationNone)},
					{Name: "conf", MountPath: "/b", MountPropagation: ptr(v1.MountPropagationHostToContainer)},
					{Name: "conf", MountPath: "/c", MountPropagation: ptr(v1.MountPropagationBidirectional)},
				}
			}),
			want: want(
				&runtimeapi.Mount{HostPath: "/pods/conf", ContainerPath: "/a", Readonly: true},
				&runtimeapi.Mount{
					HostPath:      "/pods/conf",
					ContainerPath: "/b",
					Readonly:      true,
					Propagation:   runtimeapi.MountPropagation_PROPAGATION_HOST_TO_CONTAINER,
				},
				&runtimeapi.Mount{
					HostPath:      "/pods/conf",
					ContainerPath: "/c",
					Readonly:      true,
					Propagation:   runtimeapi.MountPropagation_PROPAGATION_BIDIRECTIONAL,
				},
			),
		},
		"recursive read-only": {
			pod: mount(v1.VolumeMount{
				Name:              "conf",
				MountPath:         "/c",
				ReadOnly:          true,
				RecursiveReadOnly: ptr(v1.RecursiveReadOnlyEnabled),
			}),
			want: want(&runtimeapi.Mount{
				HostPath:          "/pods/conf",
				ContainerPath:     "/c",
				Readonly:          true,
				RecursiveReadOnly: true,
			}),
		},
		"recursive read-only if possible": {
			pod: mount(v1.VolumeMount{
				Name:              "conf",
				MountPath:         "/c",
				ReadOnly:          true,
				RecursiveReadOnly: ptr(v1.RecursiveReadOnlyIfPossible),
			}),
			in:   func(in *ContainerInput) { in.Node.Features.RecursiveReadOnly = false },
			want: want(&runtimeapi.Mount{HostPath: "/pods/conf", ContainerPath: "/c", Readonly: true}),
		},
		"not recursive": {
			pod: mount(v1.VolumeMount{
				Name:              "conf",
				MountPath:         "/c",
				RecursiveReadOnly: ptr(v1.RecursiveReadOnlyDisabled),
			}),
			want: want(&runtimeapi.Mount{HostPath: "/pods/conf", ContainerPath: "/c", Readonly: true}),
		},
		"subPath": {
			pod:  mount(v1.VolumeMount{Name: "conf", MountPath: "/c", SubPath: "a/b"}),
			want: want(&runtimeapi.Mount{HostPath: "/fd/conf/a/b", ContainerPath: "/c", Readonly: true}),
		},
		"subPath that only looks like going up": {
			pod:  mount(v1.VolumeMount{Name: "conf", MountPath: "/c", SubPath: "..a/b.."}),
			want: want(&runtimeapi.Mount{HostPath: "/fd/conf/..a/b..", ContainerPath: "/c", Readonly: true}),
		},
		"subPathExpr": {
			pod:  mount(v1.VolumeMount{Name: "conf", MountPath: "/c", SubPathExpr: "x-$(A)"}),
			want: want(&runtimeapi.Mount{HostPath: "/fd/conf/x-one", ContainerPath: "/c", Readonly: true}),
		},
		"image volume": {
			pod: mount(v1.VolumeMount{Name: "image", MountPath: "/i", SubPath: "usr"}),
			want: want(&runtimeapi.Mount{
				Image:         &runtimeapi.ImageSpec{Image: "sha256:vol"},
				ImageSubPath:  "usr",
				ContainerPath: "/i",
				Readonly:      true,
			}),
		},
		"own users": {
			pod: func(p *v1.Pod) {
				p.Spec.HostUsers = ptr(false)
				p.Spec.Containers[0].VolumeMounts = []v1.VolumeMount{{Name: "conf", MountPath: "/c"}}
			},
			in: func(in *ContainerInput) { in.UserNamespace = userNamespace() },
			want: func(c *runtimeapi.ContainerConfig) {
				users := userNamespace()
				c.Linux.SecurityContext.NamespaceOptions.UsernsOptions = users
				c.Mounts = []*runtimeapi.Mount{{
					HostPath:      "/pods/conf",
					ContainerPath: "/c",
					Readonly:      true,
					UidMappings:   users.Uids,
					GidMappings:   users.Gids,
				}}
			},
		},

		"no such volume": {
			pod: mount(v1.VolumeMount{Name: "gone", MountPath: "/g"}),
			err: `cannot find volume "gone" to mount into container "main"`,
		},
		"volume not ready": {
			pod: mount(v1.VolumeMount{Name: "unready", MountPath: "/g"}), err: `cannot find volume "unready"`,
		},
		"absolute subPath": {
			pod: mount(v1.VolumeMount{Name: "conf", SubPath: "/etc"}),
			err: "error SubPath `/etc` must not be an absolute path",
		},
		"subPath going up": {
			pod: mount(v1.VolumeMount{Name: "conf", SubPath: "a/../.."}),
			err: "unable to provision SubPath `a/../..`: must not contain '..'",
		},
		"image subPath up": {pod: mount(v1.VolumeMount{Name: "image", SubPath: ".."}), err: "must not contain '..'"},
		"expanded absolute": {
			pod: mount(v1.VolumeMount{Name: "conf", SubPathExpr: "$(SECRET)"}),
			err: "error SubPath `$(SECRET)` must not be",
		},
		"expanded up": {
			pod: mount(v1.VolumeMount{Name: "conf", SubPathExpr: "$(UP)"}),
			err: "SubPath `$(UP)`: must not contain '..'",
		},
		"missing variables": {
			pod: mount(v1.VolumeMount{Name: "conf", SubPathExpr: "$(Z)$(A)$(EMPTY)$(Z)"}),
			err: "missing value for EMPTY, Z",
		},
		"subPath fails": {
			pod: mount(v1.VolumeMount{Name: "conf", SubPath: "bad"}),
			err: `failed to prepare subPath for volumeMount "conf" of container "main"`,
		},
		"no subPaths here": {
			pod: mount(v1.VolumeMount{Name: "conf", SubPath: "a"}),
			in:  func(in *ContainerInput) { in.Mounts.SubPath = nil },
			err: "failed to prepare subPath",
		},
		"unknown propagation": {
			pod: mount(v1.VolumeMount{Name: "conf", MountPropagation: ptr(v1.MountPropagationMode("x"))}),
			err: `invalid MountPropagation mode: "x"`,
		},
		"recursive, writable": {
			pod: mount(v1.VolumeMount{Name: "data", RecursiveReadOnly: ptr(v1.RecursiveReadOnlyEnabled)}),
			err: "it is not read-only",
		},
		"recursive, propagated": {
			pod: mount(v1.VolumeMount{
				Name:              "data",
				ReadOnly:          true,
				MountPropagation:  ptr(v1.MountPropagationHostToContainer),
				RecursiveReadOnly: ptr(v1.RecursiveReadOnlyIfPossible),
			}),
			err: "not compatible with propagation",
		},
		"recursive, not supported": {
			pod: mount(v1.VolumeMount{
				Name:              "data",
				ReadOnly:          true,
				RecursiveReadOnly: ptr(v1.RecursiveReadOnlyEnabled),
			}),
			in:  func(in *ContainerInput) { in.Node.Features.RecursiveReadOnly = false },
			err: "it is not supported by the runtime",
		},
		"recursive, unknown": {
			pod: mount(v1.VolumeMount{
				Name:              "data",
				ReadOnly:          true,
				RecursiveReadOnly: ptr(v1.RecursiveReadOnlyMode("x")),
			}),
			err: `unknown recursive read-only mode "x"`,
		},
	})
}

// TestSubPathCause checks that the log has the reason why a subPath failed, and that the pod's
// message has not.
func TestSubPathCause(t *testing.T) {
	pod := testPod(mainContainer(func(c *v1.Container) {
		c.VolumeMounts = []v1.VolumeMount{{Name: "conf", SubPath: "bad"}}
	}))
	_, err := Container(containerInput(pod))
	cause := errors.Unwrap(err)
	if cause == nil || !strings.Contains(cause.Error(), "permission denied") {
		t.Errorf("cause = %v", cause)
	}
}

// whyError is the error of a subPath, with its reason.
type whyError string

func (e whyError) Error() string { return "hidden" }
func (e whyError) Why() string   { return string(e) }

func TestSubPathSaysWhy(t *testing.T) {
	mounts := []v1.VolumeMount{{Name: "other"}, {Name: "v", SubPath: "l"}}
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Name: "a"}, {Name: "main", VolumeMounts: mounts}}}}
	in := ContainerInput{Pod: pod, Container: &pod.Spec.Containers[1]}
	in.Mounts.SubPath = func(int, string, string) (string, error) { return "", whyError("it leads out") }
	const message = `failed to prepare subPath for volumeMount "v" of container "main"`
	_, err := openSubPath(in, 1, "l")
	err = withReason(ReasonContainer, err)
	if want := message + ": it leads out (spec.containers[1].volumeMounts[1].subPath)"; err.Error() != want {
		t.Errorf("got %q, want %q", err, want)
	}
	if config, ok := errors.AsType[*ConfigError](err); !ok || config.Message != message ||
		config.Reason != ReasonContainer {
		t.Errorf("got %+v", err)
	}
}

// Neither a command nor a subPath expands without end.
func TestExpansionIsBounded(t *testing.T) {
	many := strings.Repeat("$(BIG)", 5000)
	for want, edit := range map[string]func(*v1.Container){
		"the container's command is larger than the 6 MiB that a process can have": func(c *v1.Container) {
			c.Command, c.Args = []string{"$(BIG)"}, []string{many}
		},
		`unable to provision the SubPath of volume mount "data": longer than a path can be`: func(c *v1.Container) {
			c.VolumeMounts = []v1.VolumeMount{{Name: "data", MountPath: "/m", SubPathExpr: many}}
		},
	} {
		in := containerInput(testPod(mainContainer(edit)))
		in.Env = append(in.Env, &runtimeapi.KeyValue{Key: "BIG", Value: bytes.Repeat([]byte("x"), 1<<20)})
		if config, err := Container(in); err == nil || err.Error() != want || config != nil {
			t.Errorf("the error is %v, want %q", err, want)
		}
	}
}
