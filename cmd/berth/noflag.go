package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// otherFlag is what berth has in place of flags that podman, docker and kubectl have for verbs.
// Verbs and flags are words with blanks between.
type otherFlag struct{ verbs, flags, instead string }

// otherFlags are the flags of others that people try.
func otherFlags() []otherFlag {
	return []otherFlag{
		{"ps", "a all", "nothing is left out: it lists the pods that have ended, too, and -A is the default"},
		{"ps images", "q quiet", "-o name lists only the names"},
		{"images", "a all", "it lists all images"},
		{"ps events top logs", "f filter", "-l LABELS or --for POD chooses pods; see --help"},
		{"ps images status events describe top", "format", "use -o jsonpath=TEMPLATE or -o custom-columns=HEADING:PATH,..."},
		{"exec", "u user", "the command runs as the user of its container; if the image has su, use -- su USER -c 'COMMAND'"},
		{"exec", "w workdir", "use -- sh -c 'cd DIR && COMMAND'"},
		{"exec", "e env", "use -- env NAME=VALUE COMMAND"},
		{"exec", "d detach", "use -- sh -c 'COMMAND &'"},
		{"logs", "t", "use --timestamps"},
		{"logs", "names", "use --prefix"},
		{"logs", "until", "--since, --since-time, --tail and --limit-bytes choose a part"},
		{"run", "d detach", "put the manifest into the agent's manifest directory: the agent keeps its pod running"},
		{"run", "rm", "a run leaves nothing behind"},
		{"run", "name", "it is metadata.name in the manifest"},
		{"run", "p publish", "it is a hostPort in the manifest"},
		{"run", "v volume", "it is volumes and volumeMounts in the manifest (-v of berth is the verbosity of the log)"},
		{"run", "e env env-file", "it is env or envFrom in the manifest"},
		{"run", "i t it interactive tty", "it is stdin and tty in the manifest; then use berth attach -it POD"},
		{"run", "restart", "it is restartPolicy in the manifest"},
		{"run", "network net", "it is hostNetwork in the manifest"},
		{
			"run", "u user w workdir entrypoint image l label m memory cpus pod hostname privileged",
			"the manifest has it; berth fields lists the fields of a pod",
		},
		{"stop", "a all", "berth drain stops all pods, and keeps them stopped"},
		{"start restart", "a all", "use berth start $(berth ps -o name), or restart; after berth drain: berth drain --undo"},
		{"stop restart", "t time timeout", "use --grace-period SECONDS, or --force"},
		{"rmi", "f force", "an image that a container has or a pod needs stays"},
		{"top", "no-stream stream", "it shows the use once; watch berth top shows it again and again"},
	}
}

// noFlag adds to an error about a flag what berth has in place of the flag, if that is known.
func noFlag(cmd *cobra.Command, err error) error {
	if instead := insteadOfFlag(cmd.Name(), err); instead != "" {
		return fmt.Errorf("%w: %s", err, instead)
	}
	return err
}

// insteadOfFlag returns what berth has in place of the flag that an error is about; "" if that is
// not known.
func insteadOfFlag(verb string, err error) string {
	name := ""
	if unknown := (*pflag.NotExistError)(nil); errors.As(err, &unknown) {
		name = unknown.GetSpecifiedName()
	} else if wrong := (*pflag.InvalidValueError)(nil); errors.As(err, &wrong) {
		name = wrong.GetFlag().Name // it may mean something else in other programs
	}
	for _, other := range otherFlags() {
		if slices.Contains(strings.Fields(other.verbs), verb) && slices.Contains(strings.Fields(other.flags), name) {
			return other.instead
		}
	}
	return ""
}
