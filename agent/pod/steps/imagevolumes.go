package steps

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/agent/images"
	"github.com/berthd/berth/agent/volumes"
)

// ImageVolumes has the images of image volumes, which the runtime mounts into the containers that
// are to start.
type ImageVolumes struct {
	Images interface {
		// Ensure says whether an image is there, and starts its pull if it is not.
		Ensure(ctx context.Context, req images.Request) images.Result
	}
	// Supported says why the runtime cannot mount images. It is empty if the runtime can.
	Supported func() string
}

// Name is "image volumes".
func (ImageVolumes) Name() string { return "image volumes" }

// Ensure asks for the image of each volume that a container to be started now mounts. Without the
// image the container waits with the image's reason. The other containers go on.
func (i ImageVolumes) Ensure(ctx context.Context, p *Sync) (Outcome, error) {
	var out Outcome
	for n := range p.Pod.Spec.Volumes {
		volume := &p.Pod.Spec.Volumes[n]
		if volume.Image == nil {
			continue
		}
		users := startingWith(p, volume.Name)
		if len(users) == 0 {
			continue
		}
		res := i.ensure(ctx, p, volume)
		if res.Ready {
			p.mountImage(volume, res)
			continue
		}
		for _, name := range users {
			p.wait(name, res.Reason, res.Message)
			delete(p.Images, name) // it does not start in this sync
		}
		out.Waiting = fmt.Sprintf("volume %s: %s: %s", volume.Name, res.Reason, res.Message)
		out.RetryAt = Earlier(out.RetryAt, res.RetryAt)
	}
	return out, nil
}

// ensure asks for a volume's image. The image is pulled once for each sandbox, however often the
// containers restart.
func (i ImageVolumes) ensure(ctx context.Context, p *Sync, volume *v1.Volume) images.Result {
	if why := i.Supported(); why != "" {
		return images.Result{
			Reason: "CreateContainerConfigError", Message: fmt.Sprintf("volume %q: %s", volume.Name, why),
		}
	}
	return i.Images.Ensure(ctx, images.Request{
		Pod: p.Pod, Volume: volume.Name, Image: volume.Image.Reference, Policy: volume.Image.PullPolicy,
		Attempt: p.Sandbox.GetMetadata().GetAttempt(), Sandbox: p.SandboxConfig,
	})
}

// startingWith returns the containers to be started now that mount the volume.
func startingWith(p *Sync, volume string) []string {
	var names []string
	for _, start := range p.Actions.Start {
		for _, mount := range start.Container.VolumeMounts {
			if mount.Name == volume {
				names = append(names, start.Container.Name)
				break
			}
		}
	}
	return names
}

// mountImage keeps that a volume's image can be mounted.
func (p *Sync) mountImage(volume *v1.Volume, res images.Result) {
	if p.Volumes == nil {
		p.Volumes = volumes.Mounts{}
	}
	p.Volumes[volume.Name] = volumes.Mount{ReadOnly: true, Image: &runtimeapi.ImageSpec{
		Image: res.Image.Ref, UserSpecifiedImage: volume.Image.Reference, Annotations: p.SandboxConfig.GetAnnotations(),
	}}
}

// Remove has nothing to give back: the images step withdraws the pod from all pulls.
func (ImageVolumes) Remove(context.Context, *Sync) (Outcome, error) { return Outcome{}, nil }
