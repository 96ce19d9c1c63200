package apiserver

import (
	"fmt"

	"github.com/spf13/cobra"
)

// UsageError says what is wrong with a command line. Nothing was done.
type UsageError struct{ error }

// Unwrap returns the error itself.
func (e UsageError) Unwrap() error { return e.error }

// usageErrorf returns a [UsageError].
func usageErrorf(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// withHint returns an error as a [UsageError] that says where help is.
func withHint(cmd *cobra.Command, err error) error {
	return usageErrorf("%w (see \"%s --help\")", err, cmd.CommandPath())
}

// oneFile checks that the only argument of a command is a FILE.
func oneFile(cmd *cobra.Command, args []string) error {
	if len(args) != 1 || args[0] == "" {
		return fmt.Errorf("name one file: %s FILE", cmd.CommandPath())
	}
	return nil
}

// checkUsage has a command and those below it end with a [UsageError] if their flags or arguments
// are wrong. A command that only has others below it prints what these are.
func checkUsage(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(withHint)
	check := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return withHint(cmd, err)
		}
		return nil
	}
	if !cmd.Runnable() {
		cmd.RunE = func(cmd *cobra.Command, _ []string) error {
			fmt.Fprintln(cmd.ErrOrStderr(), cmd.UsageString())
			return usageErrorf("%q is no whole command", cmd.CommandPath())
		}
	}
	for _, c := range cmd.Commands() {
		checkUsage(c)
	}
}
