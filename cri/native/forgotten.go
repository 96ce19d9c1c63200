package native

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
)

// idPattern matches what newID returns.
var idPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

// removeForgotten removes what sandboxes and containers without a record have: in containerd, in
// networks and in the directories of the runtime.
func (r *Runtime) removeForgotten(ctx context.Context) error {
	ids, err := r.forgotten(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for id := range ids {
		errs = append(errs, r.deleteContainer(ctx, id))
	}
	if err := r.cfg.Network.GC(ctx, r.store.ids); err != nil {
		return errors.Join(append(errs, err)...) // the plugins still need the network namespaces
	}
	for id := range ids {
		errs = append(errs, unmountAndRemove(r.netns(id)), r.removeNamespaces(ctx, &sandbox{id: id}),
			r.removeSandboxFiles(ctx, &sandbox{id: id}),
			r.removeVolumes(ctx, id, nil), r.removeDeclared(ctx, id), removePipes(r.containerDir(id)))
	}
	return errors.Join(errs...)
}

// forgotten returns the IDs that have no record.
func (r *Runtime) forgotten(ctx context.Context) (map[string]bool, error) {
	made, err := r.client.ContainerService().List(ctx)
	if err != nil {
		return nil, fmt.Errorf("look for containers without a record: %w", err)
	}
	found := map[string]bool{}
	for _, c := range made {
		found[c.ID] = true
	}
	for _, path := range []string{
		r.sandboxDir("x"), r.containerDir("x"), r.netns("x"), r.volumeDir("x"), r.declaredDir("x"),
	} {
		entries, err := os.ReadDir(filepath.Dir(path))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("look for files without a record: %w", err)
		}
		for _, e := range entries {
			if idPattern.MatchString(e.Name()) {
				found[e.Name()] = true
			}
		}
	}
	for _, id := range r.store.ids() {
		delete(found, id)
	}
	return found, nil
}
