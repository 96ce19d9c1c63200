package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/berthd/berth/agent/node/doctor"
	"github.com/berthd/berth/agent/node/lock"
	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/configs"
)

// findRuns returns the runs of this machine, alive or dead, from the entries of dir: root
// directories, and links to those elsewhere.
func findRuns(dir string) ([]doctor.Foreground, error) {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("looking for runs: %w", err)
	}
	var out []doctor.Foreground
	for _, e := range entries {
		root, err := filepath.EvalSymlinks(filepath.Join(dir, e.Name()))
		if err != nil {
			continue // a link to a directory that is gone
		}
		if _, err := os.Stat(homeAt(root).config()); err != nil {
			continue // nothing has been made for a pod
		}
		by, held, err := lock.OfRoot(root)
		if err != nil {
			return nil, fmt.Errorf("looking whether the run in %s lives: %w", root, err)
		}
		out = append(out, doctor.Foreground{RootDir: root, Lives: held, PID: by.PID})
	}
	return out, nil
}

// cleanRuns removes what killed runs have left: their pods, and then their directories. only is the
// root directory of the one run that is meant; empty means all.
func cleanRuns(ctx context.Context, only string, out, errOut io.Writer) error {
	runs, err := findRuns(runRoot)
	if err != nil {
		return err
	}
	var errs []error
	cleaned := 0
	for _, r := range runs {
		switch {
		case only != "" && !sameDir(only, r.RootDir):
			continue
		case r.Lives && only != "":
			return fmt.Errorf("the run in %s goes on (process %d): end that process first", r.RootDir, r.PID)
		case r.Lives:
			continue
		}
		cleaned++
		if err := cleanRun(ctx, r.RootDir, errOut); err != nil {
			errs = append(errs, fmt.Errorf("cleaning up after the run in %s: %w", r.RootDir, err))
			continue
		}
		fmt.Fprintf(out, "Removed what was left of the run in %s.\n", r.RootDir)
	}
	if cleaned == 0 {
		fmt.Fprintln(out, "No killed run has left anything.")
	}
	return errors.Join(errs...)
}

// cleanRun stops the pod of a dead run with the config of that run, and removes the directories.
func cleanRun(ctx context.Context, root string, errOut io.Writer) error {
	h := homeAt(root)
	cfg, _, err := configs.Load(configs.Options{File: h.config()})
	if err != nil {
		return err
	}
	cfg.RootDir = root
	if err := h.empty(); err != nil {
		return err
	}
	if err := emptyNode(ctx, cfg, api.DrainRequest{}, runLog(errOut)); err != nil {
		return err
	}
	return h.remove(context.WithoutCancel(ctx))
}
