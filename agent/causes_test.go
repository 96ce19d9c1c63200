package agent

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"

	"github.com/berthd/berth/client"
	"github.com/berthd/berth/client/show"
	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/cri/fake"
	"github.com/berthd/berth/internal/retry"
)

// broken are pods that do not run, each for a reason of its own, with what "berth status" and the
// first line of "berth why" say of it.
var broken = []struct{ name, spec, status, why string }{
	{
		"nopull", `containers: [{name: c, image: "example.com/missing:1"}]`,
		"container c: ", "failed to resolve image: not found",
	},
	{"crash", `containers: [{name: crash, image: app}]`, "container crash: CrashLoopBackOff", "exit code 3"},
	{
		"novolume", "containers: [{name: c, image: app, volumeMounts: [{name: v, mountPath: /v}]}], " +
			"volumes: [{name: v, configMap: {name: settings}}]",
		"step volumes fails: ", `configmap "settings" not found`,
	},
	{"badimage", `containers: [{name: c, image: "NOT A NAME"}]`, "container c: InvalidImageName", "InvalidImageName"},
	{
		"toobig", `containers: [{name: c, image: app, resources: {requests: {cpu: "100000"}}}]`, "Failed: OutOfcpu",
		"OutOfcpu",
	},
	{
		"noenv", `containers: [{name: c, image: app, envFrom: [{secretRef: {name: login}}]}]`,
		"container c: CreateContainerConfigError", `secret "login" not found`,
	},
}

// withBroken returns the manifests of sixty pods, six of which are broken.
func withBroken() manifest {
	var text strings.Builder
	add := func(name, spec string) {
		fmt.Fprintf(&text, "---\napiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec: {%s}\n", name, spec)
	}
	for i := range 60 - len(broken) {
		add(fmt.Sprintf("fine%02d", i), "containers: [{name: c, image: app}]")
	}
	for _, b := range broken {
		add(b.name, b.spec)
	}
	return manifest(text.String())
}

// Of sixty pods, six are broken in different ways. The status of the node names these six with
// their causes and no other pod, and the first line about each says what is wrong.
func TestCausesOfBrokenPods(t *testing.T) {
	home, err := os.MkdirTemp("", "six") //nolint:usetesting // t.TempDir may be too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(home) })
	rt := fake.New(fake.Config{WriteLogs: true})
	rt.SetImage(fake.Image{
		Name: "example.com/missing:1", PullErr: errdefs.ErrNotFound.WithMessage("failed to resolve image: not found"),
	})
	rt.Script("crash", fake.Behavior{Exit: &fake.Exit{Code: 3}})
	a, end := liveWith(t, home, rt, withBroken(), Deps{}, func(cfg *configs.Config) {
		cfg.Berth.Socket, cfg.Berth.SocketGroup = filepath.Join(home, "s"), ""
		cfg.Kubelet.HealthzPort = nil
	})
	defer end()
	s, err := a.NewServer("test", nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	served := make(chan error, 1)
	go func() { served <- s.Run(ctx) }()
	defer func() { <-served }()
	defer cancel()
	c := client.New(filepath.Join(home, "s"))
	defer c.Close()
	eventually(ctx, t, func() error { return sixCauses(ctx, c) })
	for _, b := range broken {
		eventually(ctx, t, func() error { return firstLine(ctx, c, b.name, b.why) })
	}
}

// eventually calls check until it returns nil.
func eventually(ctx context.Context, t *testing.T, check func() error) {
	t.Helper()
	for {
		err := check()
		if err == nil {
			return
		}
		if !retry.Sleep(ctx, 50*time.Millisecond) {
			t.Fatal(err)
		}
	}
}

// sixCauses checks that the status of the node names the broken pods, and no others.
func sixCauses(ctx context.Context, c *client.Client) error {
	st, err := c.Status(ctx)
	if err != nil {
		return err
	}
	text := strings.Join(st.Attention, "\n")
	if len(st.Attention) != len(broken) || st.Pods["Running"] != 60-len(broken) {
		return fmt.Errorf("%v need a person:\n%s", st.Pods, text)
	}
	for _, b := range broken {
		if !strings.Contains(text, fmt.Sprintf("pod default/%s-node: %s", b.name, b.status)) {
			return fmt.Errorf("no %q of %s in:\n%s", b.status, b.name, text)
		}
	}
	return nil
}

// firstLine checks what the first line about a pod says.
func firstLine(ctx context.Context, c *client.Client, name, want string) error {
	why, err := c.Why(ctx, "default", name+"-node")
	if err != nil {
		return err
	}
	var out strings.Builder
	if err := show.Why(&out, why, time.Now()); err != nil {
		return err
	}
	line, _, _ := strings.Cut(out.String(), "\n")
	if !strings.Contains(line, want) {
		return errors.New(name + ": " + line)
	}
	return nil
}
