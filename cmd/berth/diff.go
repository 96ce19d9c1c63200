package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/server"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/client"
	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/client/show"
	"github.com/berthd/berth/internal/pods"
)

func newDiff() *cobra.Command {
	var conn connection
	cmd := &cobra.Command{
		Use:   "diff [FILE|DIR...]",
		Short: "Show what changed manifests would restart",
		Long: `Show what the agent would do if these files were in its manifest directory. The result names the pods that
the agent would start, replace, resize or leave alone, with the fields that are the reason, and the changes of
ConfigMaps and Secrets. It also names the pods that the agent would refuse when they start: too few resources, host
ports that are taken, Pod Security. Nothing changes on the node. Of a DIR, only the files count that an agent would
read; "-" is standard input.

Without an argument, the files are those in the manifest directory of the agent. The result then shows what the
agent has not done yet, for example because the node is drained, and the pods that are in no file any more.

A pod of a renamed file is started anew, also if nothing else has changed: the path of the file is part of the UID of
a static pod, as in a kubelet. metadata.uid in the manifest prevents this.

The exit code is 1 if the agent would refuse something.`,
		Example: `  berth diff web.yaml
  berth diff staged/                     # files for the manifest directory
  berth diff                             # compare the manifest directory with what runs`,
		RunE: func(cmd *cobra.Command, args []string) error {
			c := conn.client()
			defer c.Close()
			return diff(cmd.Context(), c, args, cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	conn.flag(cmd)
	return cmd
}

// differ compares manifests with what an agent has.
type differ struct {
	w, errOut io.Writer
	decoder   source.Decoder
	settings  client.Settings
	pods      []v1.Pod
	results   []api.Manifest
	// items are the objects of the manifests, and changes what happens to their pods, by name.
	items   []source.Item
	changes map[string]*podChange
	owners  *source.Claims
	// refused counts what the agent would refuse.
	refused int
	// admission has the pods that would start, and the names of those that would leave.
	admission api.AdmissionRequest
}

// diff compares manifests with the objects of the agent. The manifests are those of files and
// directories, or those of the agent's manifest directory.
func diff(ctx context.Context, c *client.Client, paths []string, stdin io.Reader, w, errOut io.Writer) error {
	d, err := newDiffer(ctx, c)
	if err != nil {
		return err
	}
	d.w, d.errOut = w, errOut
	own := len(paths) == 0
	if own && d.settings.ManifestPath == "" {
		return errors.New("the agent has no manifest directory (staticPodPath) to compare: give a FILE or a DIR")
	} else if own {
		paths = []string{d.settings.ManifestPath}
	}
	for _, path := range paths {
		if err := d.path(path, stdin); err != nil {
			return err
		}
	}
	gone := []string(nil)
	if own {
		gone = d.gone()
	}
	if err := d.admit(ctx, c); err != nil {
		return err
	}
	d.print()
	for _, line := range gone {
		fmt.Fprintln(d.w, line)
	}
	if d.refused > 0 {
		return &exitError{code: failed}
	}
	return nil
}

// newDiffer requests the objects of the agent.
func newDiffer(ctx context.Context, c *client.Client) (*differ, error) {
	d := &differ{changes: map[string]*podChange{}, owners: source.NewClaims()}
	version, err := c.Version(ctx)
	if err != nil {
		return nil, err
	}
	d.decoder = source.Decoder{NodeName: version.Node}
	if d.pods, err = c.Pods(ctx); err != nil {
		return nil, err
	}
	list, err := c.Manifests(ctx)
	if err != nil {
		return nil, err
	}
	d.results = list.Items
	d.settings, err = c.Settings(ctx)
	return d, err
}

// path reads the manifests of a file or a directory.
func (d *differ) path(path string, stdin io.Reader) error {
	files, err := source.List(path)
	if err != nil {
		return err
	}
	if len(files) == 0 {
		fmt.Fprintf(d.errOut, "No manifests in %s.\n", path)
	}
	for _, file := range files {
		if file.Err != nil {
			d.items = append(d.items, source.Item{Result: source.Result{File: file.Path, Message: file.Err.Error()}})
			continue
		}
		data, err := source.ReadManifest(file.Path, stdin)
		if err != nil {
			return err
		}
		if hint := source.NameHint(file.Path); hint != "" && file.Path != d.settings.ManifestPath {
			fmt.Fprintf(d.errOut, "%s: %s\n", file.Path, hint)
		}
		for _, item := range d.decoder.Decode(d.installed(file.Path), data) {
			item.Result.File = file.Path
			d.add(item)
		}
	}
	return nil
}

// add adds an object to the set, and compares it if it is a pod.
func (d *differ) add(item source.Item) {
	v := &item.Result
	if v.Accepted {
		if conflict := d.owners.Claim(item, v.File); conflict != "" {
			v.Accepted, v.Message, item.Pod, item.Object = false, conflict, nil, nil
		}
	}
	d.items = append(d.items, item)
	if item.Pod == nil {
		return
	}
	change := d.compare(item.Pod, v.File)
	d.changes[pods.FullName(item.Pod)] = change
	switch {
	case item.Refused != nil:
		m := server.ManifestOf(*item.Refused)
		m.Warnings = nil
		change.refusal = v.File + ": " + show.Problem(m)
	case change.starts:
		d.admission.Pods = append(d.admission.Pods, *item.Pod)
	}
}

// print prints what happens to each object.
func (d *differ) print() {
	for _, item := range d.items {
		switch {
		case !item.Result.Accepted:
			d.refused++
			show.Validated(d.w, []api.Manifest{server.ManifestOf(item.Result)})
		case item.Pod != nil:
			change := d.changes[pods.FullName(item.Pod)]
			if change.refusal != "" {
				d.refused++
			}
			change.write(d.w, pods.FullName(item.Pod))
		default:
			d.object(item)
		}
	}
}

// installed returns the path that a file would have in the agent's manifest directory. The path is
// part of the UID of a pod.
func (d *differ) installed(path string) string {
	if info, err := os.Stat(d.settings.ManifestPath); err != nil || !info.IsDir() || path == source.Stdin {
		return path
	}
	return filepath.Join(d.settings.ManifestPath, filepath.Base(path))
}

// admit asks which pods the agent would refuse when they start: those for which the node has no
// room, or which its rules forbid.
func (d *differ) admit(ctx context.Context, c *client.Client) error {
	if len(d.admission.Pods) == 0 {
		return nil
	}
	refused, err := c.Admission(ctx, d.admission)
	for _, r := range refused {
		if change := d.changes[r.Namespace+"/"+r.Name]; change != nil {
			change.refusal = r.Reason + ": " + show.Clean(r.Message)
		}
	}
	return err
}
