package env

import (
	"context"
	"path/filepath"
	"slices"
)

// Import loads an OCI archive to where the CRI and native agents have their images.
func (e *Env) Import(ctx context.Context, archive string) error {
	e.mu.Lock()
	e.archives = append(e.archives, archive)
	e.mu.Unlock()
	return e.ctr(ctx, "import", archive)
}

// Tag gives an image another name.
func (e *Env) Tag(ctx context.Context, image, name string) error {
	return e.ctr(ctx, "tag", image, name)
}

// Untag removes a name of an image. Removing the last name of an image removes the image.
func (e *Env) Untag(ctx context.Context, name string) error {
	return e.ctr(ctx, "rm", name)
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
