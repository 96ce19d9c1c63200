package fake_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/containerd/errdefs"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/cri/fake"
	"github.com/berthd/berth/test/leaks"
)

func TestMain(m *testing.M) {
	os.Exit(leaks.Run(m))
}

// pod is a pod on a fake node.
type pod struct {
	*testing.T
	rt      *fake.Runtime
	sandbox string
	config  *runtimeapi.PodSandboxConfig
}

func sandboxConfig(name, uid string, attempt uint32) *runtimeapi.PodSandboxConfig {
	return &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: name, Namespace: "default", Uid: uid, Attempt: attempt},
	}
}

func newPod(t *testing.T, rt *fake.Runtime, name, uid string, attempt uint32) *pod {
	t.Helper()
	config := sandboxConfig(name, uid, attempt)
	id, err := rt.RunPodSandbox(t.Context(), config, "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := rt.PullImage(t.Context(), &runtimeapi.ImageSpec{Image: "busybox"}, nil, config); err != nil {
		t.Fatal(err)
	}
	return &pod{T: t, rt: rt, sandbox: id, config: config}
}

func containerConfig(name string, attempt uint32, command ...string) *runtimeapi.ContainerConfig {
	return &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: name, Attempt: attempt},
		Image:    &runtimeapi.ImageSpec{Image: "busybox"},
		Command:  command,
		Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
		}},
	}
}

func (p *pod) create(name string, attempt uint32, command ...string) string {
	p.Helper()
	id, err := p.rt.CreateContainer(p.Context(), p.sandbox, containerConfig(name, attempt, command...), p.config)
	if err != nil {
		p.Fatal(err)
	}
	return id
}

func (p *pod) start(name string, attempt uint32, command ...string) string {
	p.Helper()
	id := p.create(name, attempt, command...)
	if err := p.rt.StartContainer(p.Context(), id); err != nil {
		p.Fatal(err)
	}
	return id
}

func (p *pod) wantDump(want string) {
	p.Helper()
	if got := p.rt.Dump(); got != want {
		p.Errorf("the node is\n%swant\n%s", got, want)
	}
}

func TestContainersDoWhatTheirScriptsSay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Config{})
		p := newPod(t, rt, "web", "u1", 0)
		rt.Script("app", fake.Behavior{Exit: &fake.Exit{After: 3 * time.Second, Code: 2}},
			fake.Behavior{Exit: &fake.Exit{OOM: true}},
			fake.Behavior{StartErr: errors.New("no such device")}, fake.Behavior{})
		p.start("app", 0)
		p.start("shell", 0, "sh", "-c", "sleep 10; exit 4")
		time.Sleep(3*time.Second - 1)
		synctest.Wait()
		p.wantDump("default/web#0 ready\n\tapp#0 running\n\tshell#0 running\n")
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		p.wantDump("default/web#0 ready\n\tapp#0 exited 2 Error\n\tshell#0 running\n")
		status := rt.Container("default/web/app")
		if status.FinishedAt-status.StartedAt != int64(3*time.Second) {
			t.Errorf("status is %v, want it to have run for 3 s", status)
		}
		p.start("app", 1)
		id := p.create("app", 2)
		if err := rt.StartContainer(t.Context(), id); err == nil || !strings.Contains(err.Error(), "no such device") {
			t.Errorf("the third start: %v", err)
		}
		p.start("app", 3)
		p.start("app", 4)
		time.Sleep(time.Hour)
		synctest.Wait()
		p.wantDump("default/web#0 ready\n\tapp#0 exited 2 Error\n\tshell#0 exited 4 Error\n" +
			"\tapp#1 exited 137 OOMKilled\n" +
			"\tapp#2 exited 128 StartError\n\tapp#3 running\n\tapp#4 running\n")
	})
}

func TestStopHonoursGrace(t *testing.T) {
	for name, c := range map[string]struct {
		behavior fake.Behavior
		grace    time.Duration
		takes    time.Duration
		code     int32
	}{
		"ends at once": {fake.Behavior{}, 30 * time.Second, 0, 0},
		"takes its time": {
			fake.Behavior{Term: fake.Term{After: 5 * time.Second, Code: 143}}, 30 * time.Second, 5 * time.Second, 143,
		},
		"takes too long": {
			fake.Behavior{Term: fake.Term{After: time.Minute}}, 30 * time.Second, 30 * time.Second, 137,
		},
		"ignores the signal": {fake.Behavior{Term: fake.Term{Ignore: true}}, 30 * time.Second, 30 * time.Second, 137},
		"no grace":           {fake.Behavior{}, 0, 0, 137},
		"part of a second": {
			fake.Behavior{Term: fake.Term{Ignore: true}}, 1500 * time.Millisecond, 2 * time.Second, 137,
		},
		"ended by itself then": {
			fake.Behavior{Exit: &fake.Exit{After: time.Second, Code: 9}, Term: fake.Term{Ignore: true}},
			time.Minute,
			time.Second, 9,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rt := fake.New(fake.Config{
					Script: func(*runtimeapi.PodSandboxConfig, *runtimeapi.ContainerConfig) (fake.Behavior, bool) {
						return c.behavior, true
					},
				})
				id := newPod(t, rt, "web", "u1", 0).start("app", 0)
				begin := time.Now()
				if err := rt.StopContainer(t.Context(), id, c.grace); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(begin); took != c.takes {
					t.Errorf("the stop took %s, want %s", took, c.takes)
				}
				if code := rt.Container("app").ExitCode; code != c.code {
					t.Errorf("exit code is %d, want %d", code, c.code)
				}
			})
		})
	}
}

func TestUnkillableContainerHoldsUpItsRemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Config{})
		rt.Script("app", fake.Behavior{Unkillable: true, Term: fake.Term{Ignore: true}})
		p := newPod(t, rt, "web", "u1", 0)
		id := p.start("app", 0)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		for name, err := range map[string]error{
			"stop": rt.StopContainer(ctx, id, 0), "remove": rt.RemoveContainer(ctx, id),
			"stop sandbox": rt.StopPodSandbox(ctx, p.sandbox),
		} {
			if !errdefs.IsDeadlineExceeded(err) {
				t.Errorf("%s: %v, want a deadline exceeded", name, err)
			}
		}
		p.wantDump("default/web#0 ready\n\tapp#0 running\n")
		if err := rt.Exit("app", 1); err != nil {
			t.Error(err)
		}
	})
}

func TestFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Config{})
		rt.Inject(fake.Fault{Method: "RunPodSandbox", Nth: 2, Err: fake.ErrLostAnswer})
		rt.Inject(fake.Fault{Method: "RunPodSandbox", Nth: 3, After: true, Err: fake.ErrLostAnswer})
		slow := rt.Inject(fake.Fault{
			Match: func(c fake.Call) bool { return c.Method == "Version" }, Delay: 5 * time.Second,
		})
		for i, want := range []int{1, 1, 2, 3} {
			_, err := rt.RunPodSandbox(t.Context(), sandboxConfig(string(rune('a'+i)), "u", 0), "")
			if hit := i == 1 || i == 2; errdefs.IsUnavailable(err) != hit {
				t.Errorf("call %d: %v", i+1, err)
			}
			list, err := rt.ListPodSandbox(t.Context(), nil)
			if err != nil || len(list) != want {
				t.Errorf("after call %d there are %d sandboxes (%v), want %d", i+1, len(list), err, want)
			}
		}
		begin := time.Now()
		for range 2 {
			if _, err := rt.Version(t.Context()); err != nil {
				t.Error(err)
			}
		}
		slow()
		if _, err := rt.Version(t.Context()); err != nil || time.Since(begin) != 10*time.Second {
			t.Errorf("three calls, two of them slow, took %s (%v)", time.Since(begin), err)
		}
		calls := rt.Calls("RunPodSandbox")
		if len(calls) != 4 || calls[1].Err == nil || calls[2].ID == "" || calls[3].Pod.Name != "d" ||
			calls[3].Seq <= calls[2].Seq {
			t.Errorf("journal is %v", calls)
		}
	})
}

func TestHangEndsWithContextOrRemoval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Config{})
		remove := rt.Inject(fake.Fault{Method: "StopPodSandbox", Hang: true})
		p := newPod(t, rt, "web", "u1", 0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := rt.StopPodSandbox(ctx, p.sandbox); !errdefs.IsDeadlineExceeded(err) {
			t.Errorf("got %v", err)
		}
		time.AfterFunc(time.Hour, remove)
		begin := time.Now()
		if err := rt.StopPodSandbox(t.Context(), p.sandbox); err != nil || time.Since(begin) != time.Hour {
			t.Errorf("got %v after %s", err, time.Since(begin))
		}
	})
}

func TestCrashLosesTheAnswerAndKeepsTheEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Config{})
		p := newPod(t, rt, "web", "u1", 0)
		events, err := rt.Events(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		rt.Inject(fake.Fault{Method: "CreateContainer", After: true, Crash: rt.Sever})
		if _, err := rt.CreateContainer(t.Context(), p.sandbox, containerConfig("app", 0),
			p.config); !errdefs.IsUnavailable(err) {
			t.Errorf("the call of the dead agent: %v", err)
		}
		if err := rt.RemovePodSandbox(context.Background(), p.sandbox); !errdefs.IsUnavailable(err) {
			t.Errorf("a later call of the dead agent: %v", err)
		}
		for range events { // the created container's, then the end
		}
		again := rt.Connect()
		list, err := again.ListContainers(t.Context(), nil)
		if err != nil || len(list) != 1 {
			t.Errorf("the next agent sees %v, %v", list, err)
		}
	})
}

func TestRestartOfTheRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Config{})
		p := newPod(t, rt, "web", "u1", 0)
		id := p.start("app", 0, "sh", "-c", "sleep 5; exit 1")
		stubborn := p.start("stubborn", 0, "sleep", "infinity")
		events, err := rt.Events(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		stopped := make(chan error)
		go func() { stopped <- rt.StopContainer(t.Context(), stubborn, time.Hour) }()
		synctest.Wait()
		rt.Restart(10 * time.Second)
		if err := <-stopped; !errdefs.IsUnavailable(err) {
			t.Errorf("the call under way: %v", err)
		}
		if event, open := <-events; open {
			t.Errorf("got %v, want the stream to end", event)
		}
		if _, err := rt.ContainerStatus(t.Context(), id); !errdefs.IsUnavailable(err) {
			t.Errorf("a call while the runtime is down: %v", err)
		}
		time.Sleep(11 * time.Second)
		status, err := rt.ContainerStatus(t.Context(), id)
		if err != nil || status.ExitCode != 1 {
			t.Errorf("after the restart: %v, %v", status, err)
		}
		p.wantDump("default/web#0 ready\n\tapp#0 exited 1 Error\n\tstubborn#0 running\n")
	})
}

func TestLostForgottenAndRebootedSandboxes(t *testing.T) {
	rt := fake.New(fake.Config{})
	p := newPod(t, rt, "web", "u1", 0)
	p.start("app", 0)
	if err := errors.Join(rt.LoseSandbox("web")); err != nil {
		t.Fatal(err)
	}
	p.wantDump("default/web#0 notready\n\tapp#0 running\n")
	if ip := rt.Sandbox("web").GetNetwork().GetIp(); ip == "" {
		t.Error("a lost sandbox gave its address back before it was stopped")
	}
	if err := rt.ForgetSandbox("default/web"); err != nil {
		t.Fatal(err)
	}
	if left := rt.Leftovers(); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
	p = newPod(t, rt, "db", "u2", 0)
	p.start("app", 0)
	rt.Reboot()
	p.wantDump("default/db#0 notready\n\tapp#0 exited 255 Unknown\n")
	if rt.Sandbox("none") != nil || rt.Container("none") != nil || rt.Exit("app", 0) == nil ||
		rt.LoseSandbox("none") == nil {
		t.Error("found what is not there")
	}
}

func TestInvariantsAreRemembered(t *testing.T) {
	rt := fake.New(fake.Config{})
	p := newPod(t, rt, "web", "u1", 0)
	first := p.start("app", 1)
	if v := rt.CheckInvariants(); len(v) != 0 {
		t.Fatalf("violations in an ordinary life: %q", v)
	}
	second := p.start("app", 2)
	for _, id := range []string{first, second} {
		if err := rt.RemoveContainer(t.Context(), id); err != nil {
			t.Fatal(err)
		}
	}
	p.create("app", 0)
	annotated := containerConfig("counted", 0)
	for _, count := range []string{"3", "2"} {
		annotated.Annotations = map[string]string{cri.AnnotationRestartCount: count}
		if _, err := rt.CreateContainer(t.Context(), p.sandbox, annotated, p.config); err != nil {
			t.Fatal(err)
		}
		annotated.Metadata.Attempt++
	}
	newPod(t, rt, "web", "u1", 1)
	newPod(t, rt, "web", "u2", 0)
	if err := rt.ForgetSandbox("web"); err != nil { // u2's
		t.Fatal(err)
	}
	want := []string{
		"two instances of container app of pod default/web(u1) run: attempts 1 and 2",
		"attempt of container app of pod default/web(u1) fell from 2 to 0",
		"restart count of container counted of pod default/web(u1) fell from 3 to 2",
		"two sandboxes of pod default/web(u1) are ready",
		"sandbox of pod default/web(u2) started while the one of default/web(u1) is ready",
		"sandbox of pod default/web(u2) started while the one of default/web(u1) is ready",
	}
	got := rt.CheckInvariants()
	for i := range max(len(want), len(got)) {
		if i >= len(want) || i >= len(got) || !strings.HasSuffix(got[i], want[i]) {
			t.Fatalf("violations are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
}

func TestImagesArePulled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := fake.New(fake.Config{
			StrictImages: true,
			Images: []fake.Image{
				{Name: "nginx", PullTime: 20 * time.Second, UID: 101},
				{Name: "broken", PullErr: errdefs.ErrUnavailable},
			},
		})
		spec := &runtimeapi.ImageSpec{Image: "docker.io/library/nginx:latest"}
		short, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		if _, err := rt.PullImage(short, spec, nil, nil); !errdefs.IsDeadlineExceeded(err) {
			t.Errorf("a pull that was given up: %v", err)
		}
		if i, err := rt.ImageStatus(t.Context(), spec); i != nil || err != nil {
			t.Errorf("after a pull that was given up: %v, %v", i, err)
		}
		begin := time.Now()
		id, err := rt.PullImage(t.Context(), spec, nil, nil)
		if err != nil || time.Since(begin) != 20*time.Second {
			t.Errorf("the pull took %s (%v)", time.Since(begin), err)
		}
		if i, err := rt.ImageStatus(t.Context(), &runtimeapi.ImageSpec{Image: id}); err != nil ||
			i.GetUid().GetValue() != 101 {
			t.Errorf("the image is %v, %v", i, err)
		}
		if _, err := rt.PullImage(t.Context(), &runtimeapi.ImageSpec{Image: "broken"}, nil,
			nil); !errdefs.IsUnavailable(err) {
			t.Errorf("a pull that fails: %v", err)
		}
		if _, err := rt.PullImage(t.Context(), &runtimeapi.ImageSpec{Image: "other"}, nil,
			nil); !errdefs.IsNotFound(err) {
			t.Errorf("a pull of an unknown image: %v", err)
		}
	})
}

func TestFailedCreationsDoNotUseUpTheScript(t *testing.T) {
	rt := fake.New(fake.Config{})
	p := newPod(t, rt, "web", "u1", 0)
	rt.Script("app", fake.Behavior{CreateErr: errors.New("no space left")},
		fake.Behavior{Exit: &fake.Exit{After: time.Hour}})
	config := containerConfig("app", 0)
	config.Image.Image = "missing"
	for _, want := range []func(error) bool{
		errdefs.IsNotFound,
		func(err error) bool { return err != nil && strings.Contains(err.Error(), "no space left") },
		func(err error) bool { return err == nil },
		errdefs.IsAlreadyExists,
	} {
		_, err := rt.CreateContainer(t.Context(), p.sandbox, config, p.config)
		if !want(err) {
			t.Errorf("got %v", err)
		}
		config.Image.Image = "busybox"
	}
	p.wantDump("default/web#0 ready\n\tapp#0 created\n")
}
