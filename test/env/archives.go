package env

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/test/images"
)

// seenTimeout bounds how long the CRI may take to see a change of the images.
const seenTimeout = time.Minute

// Import loads an OCI archive to where the CRI and native agents have their images. The archive
// contains the image that is its name.
func (e *Env) Import(ctx context.Context, archive images.Archive) error {
	e.mu.Lock()
	e.archives = append(e.archives, archive.Path)
	e.mu.Unlock()
	if err := e.ctr(ctx, "import", archive.Path); err != nil {
		return err
	}
	return e.seen(ctx, archive.Name, true)
}

// Tag gives an image another name.
func (e *Env) Tag(ctx context.Context, image, name string) error {
	if err := e.ctr(ctx, "tag", image, name); err != nil {
		return err
	}
	return e.seen(ctx, name, true)
}

// Untag removes a name of an image. Removing the last name of an image removes the image.
func (e *Env) Untag(ctx context.Context, name string) error {
	if err := e.ctr(ctx, "rm", name); err != nil {
		return err
	}
	return e.seen(ctx, name, false)
}

// seen waits until the CRI has the tag, or has it no more: containerd tells its CRI plugin of
// images by events, which come later than ctr's answer.
func (e *Env) seen(ctx context.Context, tag string, there bool) error {
	if e.Native {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, seenTimeout)
	defer cancel()
	for pace := NewPace(); ; {
		resp, err := e.Images().ImageStatus(ctx, &runtimeapi.ImageStatusRequest{
			Image: &runtimeapi.ImageSpec{Image: tag},
		})
		if err == nil && slices.Contains(resp.GetImage().GetRepoTags(), tag) == there {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until the CRI sees the change of image %s, which it has as %v: %w",
				tag, resp.GetImage(), errors.Join(ctx.Err(), err))
		case <-time.After(pace.Pause()):
		}
	}
}

// importFor loads what was imported before into the namespace of a native agent.
func (e *Env) importFor(ctx context.Context, agent string) error {
	e.mu.Lock()
	archives := slices.Clone(e.archives)
	e.mu.Unlock()
	for _, archive := range archives {
		if err := e.ctrIn(ctx, nativeNamespace(agent), "import", archive); err != nil {
			return err
		}
	}
	return nil
}

// ctr runs an image command of containerd's own client, in the namespace of the CRI's images and in
// those of native agents.
func (e *Env) ctr(ctx context.Context, args ...string) error {
	var namespaces []string
	if !e.Native {
		namespaces = append(namespaces, criNamespace)
	}
	e.mu.Lock()
	for _, a := range e.agents {
		if a.native {
			namespaces = append(namespaces, nativeNamespace(a.name))
		}
	}
	e.mu.Unlock()
	for _, namespace := range namespaces {
		if err := e.ctrIn(ctx, namespace, args...); err != nil {
			return err
		}
	}
	return nil
}

// ctrIn runs an image command of containerd's own client in one namespace. For a containerd that
// the environment does not own, it is the host's client.
func (e *Env) ctrIn(ctx context.Context, namespace string, args ...string) error {
	program := filepath.Join(e.binaries.dir, "ctr")
	return run(ctx, program,
		append([]string{"--address", e.address(), "--namespace", namespace, "images"}, args...)...)
}
