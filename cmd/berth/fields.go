package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/berthd/berth/agent/pod/fields"
	"github.com/berthd/berth/client/show"
)

func newFields() *cobra.Command {
	var out output
	var names []string
	cmd := &cobra.Command{
		Use:   "fields [PATH...]",
		Short: "List each field of a pod: whether it works, where, or why not; no agent is needed",
		Long: `List each field of a pod: whether the field works, where, or why not; this needs no agent.

These are the marks:
  works                a pod that uses the field gets what Kubernetes says
  works where          the field works under a condition, which CONDITION shows
  accepted, no effect  a pod that uses the field runs, and an event names the field
  refused              a pod that uses the field does not run

With a PATH, only that field and the fields below it are listed. You may leave out "spec." and indexes; a name alone
means all fields of that name.

The marks are those of pods from manifests. -o wide, JSON and YAML also show a different mark for pods from the API
server of a cluster.

Without -o, the list leaves out the parts of a field that works or fails as a whole. JSON and YAML also have the
structs and lists around the fields. -o wide, JSON and YAML name the test that proves each mark.`,
		Example: `  berth fields
  berth fields containers.securityContext
  berth fields seccompProfile
  berth fields --mark refused --mark no-effect volumes
  berth fields -o json | jq '.[] | select(.mark == "works where")'`,
		RunE: func(cmd *cobra.Command, args []string) error {
			var marks []fields.Mark
			for _, name := range names {
				mark, err := fields.ParseMark(name)
				if err != nil {
					return wrongly("%w", err)
				}
				marks = append(marks, mark)
			}
			if out == "markdown" {
				return fields.Markdown(cmd.OutOrStdout())
			}
			list := fields.Select(fields.All(), marks, args)
			if len(list) == 0 {
				return fmt.Errorf("no field of a pod is %s: see berth fields",
					strings.Join(slices.Concat(args, names), " or "))
			}
			return writeFields(cmd.OutOrStdout(), out, list)
		},
	}
	out.flag(cmd, "wide", "json", "yaml", "markdown")
	cmd.Flags().StringArrayVar(&names, "mark", nil,
		"only fields with this mark: works, works-where, no-effect or refused; may be repeated")
	_ = cmd.RegisterFlagCompletionFunc("mark",
		cobra.FixedCompletions([]string{"works", "works-where", "no-effect", "refused"},
			cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// writeFields writes fields as JSON, YAML or a table.
func writeFields(w io.Writer, out output, list []fields.Field) error {
	if out.structured() {
		return out.write(w, list)
	}
	t := &show.Table{Headings: []string{"FIELD", "MARK", "CONDITION"}}
	if out == "wide" {
		t.Headings = []string{"FIELD", "MARK", "FROM AN API SERVER", "SCOPE", "TEST", "CONDITION"}
	}
	for i, f := range list {
		switch {
		case f.Derived():
		case out == "" && f.Part() && i > 0: // the field that contains it is in a row above
		case out == "wide":
			t.Add(f.Path, string(f.Mark), f.APIServer.String(), string(f.Scope), f.Test, f.Condition)
		default:
			t.Add(f.Path, string(f.Mark), f.Condition)
		}
	}
	return t.Write(w)
}
