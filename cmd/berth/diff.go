package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/pod/runtimeclass"
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
	// seen has the pods of the manifests, by namespace and name. refused counts the objects that
	// the agent would refuse.
	seen    map[string]bool
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
	if own {
		d.gone()
	}
	if err := d.admit(ctx, c); err != nil {
		return err
	}
	if d.refused > 0 {
		return &exitError{code: failed}
	}
	return nil
}

// newDiffer requests the objects of the agent.
func newDiffer(ctx context.Context, c *client.Client) (*differ, error) {
	d := &differ{seen: map[string]bool{}}
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

// path compares the manifests of a file or a directory.
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
			d.refuse(api.Manifest{File: file.Path, Message: file.Err.Error()})
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
			d.item(item)
		}
	}
	return nil
}

// installed returns the path that a file would have in the agent's manifest directory. The path is
// part of the UID of a pod.
func (d *differ) installed(path string) string {
	if info, err := os.Stat(d.settings.ManifestPath); err != nil || !info.IsDir() || path == source.Stdin {
		return path
	}
	return filepath.Join(d.settings.ManifestPath, filepath.Base(path))
}

// admit prints which pods the agent would refuse when they start: those for which the node has no
// room, or which its rules forbid.
func (d *differ) admit(ctx context.Context, c *client.Client) error {
	if len(d.admission.Pods) == 0 {
		return nil
	}
	refused, err := c.Admission(ctx, d.admission)
	for _, r := range refused {
		d.refused++
		fmt.Fprintf(d.w, "pod %s/%s: would be refused: %s: %s\n", r.Namespace, r.Name, r.Reason, show.Clean(r.Message))
	}
	return err
}

// file returns the file from which the agent has a pod; empty if the agent does not know it.
func (d *differ) file(pod *v1.Pod) string {
	i := slices.IndexFunc(d.results, func(m api.Manifest) bool {
		return m.Accepted && m.Kind == "Pod" && m.Namespace == pod.Namespace && m.Name == pod.Name
	})
	if i < 0 {
		return ""
	}
	return d.results[i].File
}

// item compares one object.
func (d *differ) item(item source.Item) {
	switch v := item.Result; {
	case !v.Accepted:
		d.refuse(server.ManifestOf(v))
	case item.Pod != nil:
		d.seen[pods.FullName(item.Pod)] = true
		if d.pod(item.Pod, item.Result.File) {
			d.admission.Pods = append(d.admission.Pods, *item.Pod)
		}
		if item.Refused != nil {
			d.refuse(server.ManifestOf(*item.Refused))
		}
	default:
		d.object(item)
	}
}

func (d *differ) refuse(m api.Manifest) {
	d.refused++
	show.Validated(d.w, []api.Manifest{m})
}

// gone prints the pods that no manifest of the agent's directory has any more.
func (d *differ) gone() {
	for i := range d.pods {
		p := &d.pods[i]
		name := p.Namespace + "/" + p.Name
		if d.seen[name] || pods.Source(p) != pods.SourceFile || p.DeletionTimestamp != nil {
			continue
		}
		d.seen[name] = true // a pod and its predecessor have the same name
		if slices.ContainsFunc(d.results, func(m api.Manifest) bool {
			return m.Kept && m.Kind == "Pod" && m.Namespace+"/"+m.Name == name
		}) {
			fmt.Fprintf(d.w, "pod %s: stays as it is, since its manifest is refused\n", name)
			continue
		}
		d.admission.Leaving = append(d.admission.Leaving, name)
		fmt.Fprintf(d.w, "pod %s: is in no manifest and would be stopped (within %ds)\n", name, graceOf(p))
	}
}

func graceOf(pod *v1.Pod) int64 {
	if s := pod.Spec.TerminationGracePeriodSeconds; s != nil {
		return *s
	}
	return v1.DefaultTerminationGracePeriodSeconds
}

// pod prints what happens to the pod of a file, and reports whether it would be started.
func (d *differ) pod(wanted *v1.Pod, file string) (starts bool) {
	name := wanted.Namespace + "/" + wanted.Name
	i := slices.IndexFunc(d.pods, func(p v1.Pod) bool { return p.Namespace == wanted.Namespace && p.Name == wanted.Name })
	if i < 0 {
		fmt.Fprintf(d.w, "pod %s: is new and would be started\n", name)
		return true
	}
	has := &d.pods[i]
	// The values from a RuntimeClass are not in the manifest.
	wanted = runtimeclass.Keep(wanted, has)
	changes := pods.Changes(has, wanted)
	switch {
	case len(changes) == 0 && d.sameUID(wanted, has, file):
		fmt.Fprintf(d.w, "pod %s: does not change\n", name)
		return false
	case len(changes) == 0:
		fmt.Fprintf(d.w, "pod %s: would be stopped (within %ds) and started anew: %s\n", name, graceOf(has),
			d.otherUID(has, file))
		return true
	case d.settings.Resizes && has.Status.Phase == v1.PodRunning && source.Resizable(has, wanted) == nil:
		fmt.Fprintf(d.w, "pod %s: would be resized in place:\n", name)
		listChanges(d.w, changes)
		return false
	}
	fmt.Fprintf(d.w, "pod %s: would be stopped (within %ds) and started anew:\n", name, graceOf(has))
	listChanges(d.w, changes)
	return true
}

// sameUID reports whether a pod with the same content keeps its UID. The agent and a kubelet
// compute the UID of a static pod without metadata.uid from the manifest and the path of its file.
// So a renamed file makes another pod. Standard input has no path, and stands for the old file.
func (d *differ) sameUID(wanted, has *v1.Pod, file string) bool {
	hash := has.Annotations[pods.AnnotationHash]
	return hash == "" || file == source.Stdin || hash == wanted.Annotations[pods.AnnotationHash]
}

// otherUID says why a pod with the same content gets another UID.
func (d *differ) otherUID(has *v1.Pod, file string) string {
	if old, now := d.file(has), d.installed(file); old != "" && old != now {
		return fmt.Sprintf("its manifest would be %s and not %s, and the path of the file is part of the UID, as in a "+
			"kubelet (metadata.uid in the manifest sets the UID)", now, old)
	}
	return "its UID changes, which is a hash over the manifest and the path of its file, as in a kubelet"
}

// listChanges writes a line for each change.
func listChanges(w io.Writer, changes []pods.Change) {
	for _, change := range changes {
		fmt.Fprintf(w, "  %s\n", show.Clean(change.String()))
	}
}
