package apiserver

import (
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/grpclog"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/rest"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/term"
	utilversion "k8s.io/component-base/version"
	"k8s.io/component-base/version/verflag"

	"github.com/berthd/berth/apiserver/store"
)

// By how much the heap may grow, in percent, before garbage is collected: atStart until the server
// has settled, since most of what a start allocates is not needed later, and atWork after that. A
// request costs a third less at atWork, and the heap of a server with 100 pods grows by 11 MB.
// $GOGC has priority.
const atStart, atWork = 15, 50

// NewCommand returns the command berth-apiserver of that version. It ends with a [UsageError] if its
// arguments are wrong.
func NewCommand(version string) *cobra.Command {
	o := NewOptions()
	cmd := &cobra.Command{
		Use:   "berth-apiserver",
		Short: "A Kubernetes API server for machines without a cluster, in one process",
		Long: `berth-apiserver is a Kubernetes API server, its store (etcd), the scheduler and the controllers in one process.

The first start makes the keys and two kubeconfigs in the data directory: admin.kubeconfig for kubectl, and
node.kubeconfig for the agent on this machine. Beside its own flags it takes those of kube-apiserver.`,
		Example: `  berth-apiserver --workloads
  kubectl --kubeconfig /var/lib/berth-apiserver/admin.kubeconfig get nodes`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			verflag.PrintAndExitIfRequested() // the flag --version, which upstream's packages add
			registry := o.Server.GenericServerRunOptions.ComponentGlobalsRegistry
			if err := registry.Set(); err != nil {
				return fmt.Errorf("set the feature gates: %w", err)
			}
			if err := logsapi.ValidateAndApply(o.Server.Logs, utilfeature.DefaultFeatureGate); err != nil {
				return fmt.Errorf("set up the log: %w", err)
			}
			rest.SetDefaultWarningHandler(rest.NoWarnings{}) // the server's own requests
			if os.Getenv("GOGC") == "" {
				debug.SetGCPercent(atStart)
			}
			return Run(cmd.Context(), o)
		},
	}
	sets := o.Flags()
	for _, set := range sets.FlagSets {
		cmd.Flags().AddFlagSet(set)
	}
	width, _, err := term.TerminalSize(cmd.OutOrStdout())
	if err != nil {
		width = 0 // not a terminal: no limit
	}
	cmd.AddCommand(newSnapshotCommand(), newDefragmentCommand(), newTokenCommand(), newServicesCommand(), &cobra.Command{
		Use: "version", Short: "Print the version of this program and of Kubernetes", Args: cobra.NoArgs,
		Run: func(cmd *cobra.Command, _ []string) {
			fmt.Fprintf(cmd.OutOrStdout(), "berth-apiserver %s, Kubernetes %s\n", version, utilversion.Get().GitVersion)
		},
	})
	setHelp(cmd, sets, width)
	checkUsage(cmd)
	return cmd
}

// setHelp has the help of the server list its commands and its flags by sets, as that of
// kube-apiserver does. The help of each command below it has the command's own flags.
func setHelp(server *cobra.Command, sets cliflag.NamedFlagSets, width int) {
	server.Long += "\n\nCommands:\n"
	for _, c := range server.Commands() {
		server.Long += fmt.Sprintf("\n  %-12s %s", c.Name(), c.Short)
	}
	usage, help := server.UsageFunc(), server.HelpFunc()
	cliflag.SetUsageAndHelpFunc(server, sets, width)
	serverUsage, serverHelp := server.UsageFunc(), server.HelpFunc()
	server.SetUsageFunc(func(c *cobra.Command) error {
		if c == server {
			return serverUsage(c)
		}
		return usage(c)
	})
	server.SetHelpFunc(func(c *cobra.Command, args []string) {
		if c == server {
			serverHelp(c, args)
			return
		}
		help(c, args)
	})
}

// withoutGRPCLog keeps what gRPC says of the connections of a command from its output: gRPC warns of
// one that the client itself closes. It comes before the first connection.
func withoutGRPCLog(*cobra.Command, []string) {
	grpclog.SetLoggerV2(grpclog.NewLoggerV2(io.Discard, io.Discard, io.Discard))
}

// newDefragmentCommand returns "berth-apiserver defragment".
func newDefragmentCommand() *cobra.Command {
	dir := DefaultDataDir
	cmd := &cobra.Command{
		Use: "defragment", Short: "Make the file of a running server's content smaller", Args: cobra.NoArgs,
		Long: `Give the disk back what the file of a running server's content has free inside. Requests wait meanwhile, and
the disk must have room for a second file. A start does the same if that frees 64 MB or more. A server that refuses
writes because its content is too large takes them again when the file is small enough.`,
		PreRun: withoutGRPCLog,
		RunE: func(cmd *cobra.Command, _ []string) error {
			before, after, err := store.Defragment(cmd.Context(), dir)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "the content took %.1f MB and takes %.1f MB\n", float64(before)/1e6,
				float64(after)/1e6)
			return nil
		},
	}
	cmd.Flags().StringVar(&dir, "data-dir", dir, "The data directory of the server.")
	return cmd
}

// newSnapshotCommand returns "berth-apiserver snapshot".
func newSnapshotCommand() *cobra.Command {
	dir := DefaultDataDir
	cmd := &cobra.Command{Use: "snapshot", Short: "Save and restore the content of the API", Args: cobra.NoArgs}
	cmd.PersistentFlags().StringVar(&dir, "data-dir", dir, "The data directory of the server.")
	cmd.AddCommand(&cobra.Command{
		Use: "save FILE", Short: "Save a snapshot of a running server's content", Args: oneFile,
		PreRun: withoutGRPCLog,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := store.Save(cmd.Context(), dir, args[0]); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "saved %s\nThe keys are not in it: keep a copy of %s/pki, too.\n", args[0], dir)
			return nil
		},
	}, &cobra.Command{
		Use: "restore FILE", Short: "Replace a stopped server's content by a snapshot", Args: oneFile,
		RunE: func(cmd *cobra.Command, args []string) error {
			unlock, err := store.Lock(dir)
			if err != nil {
				return err
			}
			defer unlock()
			kept, err := store.Restore(dir, args[0], time.Now())
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "restored %s\n", args[0])
			if kept != "" {
				fmt.Fprintf(cmd.OutOrStdout(), "the content before is in %s\n", kept)
			}
			return nil
		},
	})
	return cmd
}
