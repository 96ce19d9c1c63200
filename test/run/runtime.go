package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/test/env"
	"github.com/berthd/berth/test/images"
)

// hostRuntime is the containerd on which the pods run.
type hostRuntime struct {
	env          *env.Env
	cgroupDriver string
	// private reports that the containerd is a private one, with everything on it.
	private bool
	// added are the images that were added to the runtime.
	added []string
}

// openRuntime uses the host's containerd if it can run pods, else it starts one. For the API server
// it always starts one, in a network of its own. It imports the sample images.
func openRuntime(ctx context.Context, opts options) (*hostRuntime, error) {
	if opts.endpoint != "" && opts.api == "" {
		why := usable(ctx, opts.endpoint)
		if why == nil {
			fmt.Println("using the containerd at", opts.endpoint)
			return openHost(ctx, opts)
		}
		fmt.Printf("starting a private containerd: that of the host cannot be used: %v\n", why)
	}
	e, err := env.New(ctx, env.Options{Version: opts.version, OwnNetwork: opts.api != ""})
	if err != nil {
		return nil, fmt.Errorf("start a private containerd: %w", err)
	}
	return &hostRuntime{env: e, cgroupDriver: "cgroupfs", private: true}, nil
}

// usable returns why no pods can run on the containerd at an endpoint, nil if they can.
func usable(ctx context.Context, endpoint string) error {
	if _, err := os.Stat(strings.TrimPrefix(endpoint, "unix://")); err != nil {
		return fmt.Errorf("find its socket: %w", err)
	}
	conn, err := grpc.NewClient(endpoint, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("connect to %s: %w", endpoint, err)
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	status, err := runtimeapi.NewRuntimeServiceClient(conn).Status(ctx, &runtimeapi.StatusRequest{})
	if err != nil {
		return fmt.Errorf("ask for its status: %w", err)
	}
	for _, c := range status.GetStatus().GetConditions() {
		if !c.Status && (c.Type == runtimeapi.RuntimeReady || c.Type == runtimeapi.NetworkReady) {
			return fmt.Errorf("%s: %s", c.Type, c.Message)
		}
	}
	return nil
}

func openHost(ctx context.Context, opts options) (*hostRuntime, error) {
	e, err := env.New(ctx, env.Options{Endpoint: opts.endpoint})
	if err != nil {
		return nil, fmt.Errorf("use the host's containerd: %w", err)
	}
	rt := &hostRuntime{env: e, cgroupDriver: "cgroupfs"}
	config, err := e.Runtime().RuntimeConfig(ctx, &runtimeapi.RuntimeConfigRequest{})
	if err == nil && config.GetLinux().GetCgroupDriver() == runtimeapi.CgroupDriver_SYSTEMD {
		rt.cgroupDriver = "systemd"
	}
	if err := rt.addImages(ctx); err != nil {
		return nil, errors.Join(err, rt.close())
	}
	return rt, nil
}

// addImages imports the sample images that are missing. If containerd's own image for sandboxes is
// missing, too, our pause image replaces it, so that no registry is needed.
func (rt *hostRuntime) addImages(ctx context.Context) error {
	archives, err := images.Build(ctx, rt.env.Checkout)
	if err != nil {
		return err
	}
	for _, a := range archives {
		if rt.has(ctx, a.Name) {
			continue
		}
		if err := rt.env.Import(ctx, a); err != nil {
			return err
		}
		rt.added = append(rt.added, a.Name)
	}
	sandbox := sandboxImage(ctx)
	if sandbox == "" || rt.has(ctx, sandbox) {
		return nil
	}
	if err := rt.env.Tag(ctx, images.Pause, sandbox); err != nil {
		return err
	}
	rt.added = append(rt.added, sandbox)
	return nil
}

func (rt *hostRuntime) has(ctx context.Context, image string) bool {
	resp, err := rt.env.Images().ImageStatus(ctx, &runtimeapi.ImageStatusRequest{
		Image: &runtimeapi.ImageSpec{Image: image},
	})
	return err == nil && resp.Image != nil
}

// sandboxImage returns the image from which the host's containerd makes sandboxes, from its config.
// It is "" if the image cannot be found out.
func sandboxImage(ctx context.Context) string {
	dump, err := exec.CommandContext(ctx, "containerd", "config", "dump").Output()
	if err != nil {
		return ""
	}
	// containerd 1 has sandbox_image, containerd 2 pinned_images.sandbox.
	m := regexp.MustCompile(`(?m)^\s*(?:sandbox_image|sandbox) = ['"]([^'"]+)['"]`).FindSubmatch(dump)
	if m == nil {
		return ""
	}
	return string(m[1])
}

// close removes what was added, and closes the environment.
func (rt *hostRuntime) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var errs []error
	for _, image := range rt.added {
		errs = append(errs, rt.env.Untag(ctx, image))
	}
	return errors.Join(append(errs, rt.env.Close())...)
}
