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

// checkUsage has a command and those below it end with a [UsageError] if their flags or arguments
// are wrong. A command that only has others below it prints what these are.
func checkUsage(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return UsageError{err} })
	check := cmd.Args
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return UsageError{err}
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
