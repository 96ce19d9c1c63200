package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/server"
	"github.com/berthd/berth/agent/source"
	"github.com/berthd/berth/client"
	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/client/show"
)

func newDiff() *cobra.Command {
	var conn connection
	cmd := &cobra.Command{
		Use:   "diff FILE...",
		Short: "Show what a changed manifest would restart",
		Long: `Show what the agent would do if these files were in its manifest directory: which pods it would start, replace or leave alone, and
because of which fields. Nothing is changed.`,
		Example: `  berth diff new/web.yaml`,
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			c := conn.client()
			defer c.Close()
			return diff(cmd.Context(), c, args, cmd.OutOrStdout())
		},
	}
	conn.flag(cmd)
	return cmd
}

// diff compares the pods of files with those that the agent has.
func diff(ctx context.Context, c *client.Client, files []string, w io.Writer) error {
	version, err := c.Version(ctx)
	if err != nil {
		return err
	}
	pods, err := c.Pods(ctx)
	if err != nil {
		return err
	}
	decoder := source.Decoder{NodeName: version.Node}
	refused := 0
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("reading a manifest: %w", err)
		}
		for _, item := range decoder.Decode(file, data) {
			switch v := item.Verdict; {
			case !v.Accepted:
				refused++
				show.Verdicts(w, []api.Manifest{server.ManifestOf(v)})
			case item.Pod != nil:
				diffPod(w, item.Pod, pods)
			default:
				diffObject(w, v, pods)
			}
		}
	}
	if refused > 0 {
		return &exitError{code: 1}
	}
	return nil
}

// diffPod says what becomes of one pod.
func diffPod(w io.Writer, wanted *v1.Pod, pods []v1.Pod) {
	name := wanted.Namespace + "/" + wanted.Name
	i := slices.IndexFunc(pods, func(p v1.Pod) bool { return p.Namespace == wanted.Namespace && p.Name == wanted.Name })
	if i < 0 {
		fmt.Fprintf(w, "pod %s: is new and would be started\n", name)
		return
	}
	changes := differences(comparable(&pods[i]), comparable(wanted))
	if len(changes) == 0 {
		fmt.Fprintf(w, "pod %s: does not change\n", name)
		return
	}
	grace := int64(v1.DefaultTerminationGracePeriodSeconds)
	if s := pods[i].Spec.TerminationGracePeriodSeconds; s != nil {
		grace = *s
	}
	fmt.Fprintf(w, "pod %s: would be stopped (within %ds) and started anew:\n", name, grace)
	for _, change := range changes {
		fmt.Fprintf(w, "  %s\n", show.Clean(change))
	}
}

// diffObject says which pods read a ConfigMap or Secret.
func diffObject(w io.Writer, v source.Verdict, pods []v1.Pod) {
	var readers []string
	for i := range pods {
		p := &pods[i]
		if p.Namespace != v.Namespace {
			continue
		}
		for ref := range source.References(&p.Spec) {
			if ref.Kind == v.Kind && ref.Name == v.Name {
				readers = append(readers, p.Namespace+"/"+p.Name)
				break
			}
		}
	}
	if len(readers) == 0 {
		fmt.Fprintf(w, "%s %s/%s: no pod reads it\n", v.Kind, v.Namespace, v.Name)
		return
	}
	fmt.Fprintf(w, "%s %s/%s: restarts nothing; is read by %s (mounted files change by themselves, environments at the next restart)\n",
		v.Kind, v.Namespace, v.Name, strings.Join(readers, ", "))
}

// comparable is what of a pod its manifest decides: spec, labels and annotations, without what the agent adds.
func comparable(pod *v1.Pod) map[string]any {
	annotations := maps.Clone(pod.Annotations)
	for _, added := range []string{source.AnnotationHash, source.AnnotationSeen, source.AnnotationSource} {
		delete(annotations, added)
	}
	out := map[string]any{}
	for key, value := range map[string]any{"spec": pod.Spec, "labels": pod.Labels, "annotations": annotations} {
		var plain any
		if data, err := json.Marshal(value); err == nil && json.Unmarshal(data, &plain) == nil {
			out[key] = plain
		}
	}
	return map[string]any{"spec": out["spec"], "metadata": map[string]any{"labels": out["labels"], "annotations": out["annotations"]}}
}

// differences lists the fields in which two JSON values differ, as PATH: OLD -> NEW.
func differences(x, y any) []string {
	var out []string
	compare("", x, y, &out)
	return out
}

func compare(path string, x, y any, out *[]string) {
	xm, xIsMap := x.(map[string]any)
	ym, yIsMap := y.(map[string]any)
	if xIsMap && yIsMap || xIsMap && y == nil || x == nil && yIsMap {
		keys := maps.Clone(xm)
		if keys == nil {
			keys = map[string]any{}
		}
		maps.Copy(keys, ym)
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			compare(strings.TrimPrefix(path+"."+key, "."), xm[key], ym[key], out)
		}
		return
	}
	xl, xIsList := x.([]any)
	yl, yIsList := y.([]any)
	if xIsList && yIsList {
		for i := range max(len(xl), len(yl)) {
			var a, b any
			if i < len(xl) {
				a = xl[i]
			}
			if i < len(yl) {
				b = yl[i]
			}
			if a == nil || b == nil {
				*out = append(*out, fmt.Sprintf("%s[%d]: %s -> %s", path, i, text(a), text(b)))
				continue
			}
			compare(fmt.Sprintf("%s[%d]", path, i), a, b, out)
		}
		return
	}
	if a, b := text(x), text(y); a != b {
		*out = append(*out, fmt.Sprintf("%s: %s -> %s", path, a, b))
	}
}

// maxValue bounds how much of a value is shown, in bytes.
const maxValue = 120

func text(value any) string {
	if value == nil {
		return "(none)"
	}
	data, err := json.Marshal(value)
	if err != nil {
		return "?"
	}
	if len(data) > maxValue {
		return strings.ToValidUTF8(string(data[:maxValue]), "") + "…"
	}
	return string(data)
}
