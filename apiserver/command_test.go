package apiserver

import (
	"errors"
	"strings"
	"testing"
)

// TestHelp checks that each command's help has its own flags: the server's are some hundred.
func TestHelp(t *testing.T) {
	for _, c := range []struct {
		args        []string
		has, hasNot []string
	}{
		{nil, []string{"--workloads", "--etcd-servers", "Commands:", "\n  snapshot "}, nil},
		{[]string{"snapshot", "save"}, []string{"snapshot save FILE", "--data-dir"}, []string{"--workloads"}},
		{[]string{"token", "create"}, []string{"--ttl"}, []string{"--workloads", "--etcd-servers"}},
	} {
		cmd := NewCommand("v1")
		var out strings.Builder
		cmd.SetOut(&out)
		cmd.SetArgs(append(c.args, "--help"))
		if err := cmd.Execute(); err != nil {
			t.Fatalf("the help of %q: %v", c.args, err)
		}
		for _, text := range c.has {
			if !strings.Contains(out.String(), text) {
				t.Errorf("the help of %q has no %q", c.args, text)
			}
		}
		for _, text := range c.hasNot {
			if strings.Contains(out.String(), text) {
				t.Errorf("the help of %q has %q, which is another command's", c.args, text)
			}
		}
	}
}

// TestCommandLinesThatAreWrong checks that a command line without sense is an error of usage.
func TestCommandLinesThatAreWrong(t *testing.T) {
	for _, args := range [][]string{
		{"snapshot"},
		{"token"},
		{"snapshot", "save"},
		{"snapshot", "nothing"},
		{"nothing"},
		{"--nothing"},
		{"token", "create", "--nothing"},
		{"token", "create", "--server", "foo"},
		{"token", "create", "--server", "http://192.0.2.1:6443"},
		{"token", "create", "--server", "https://"},
		{"token", "create", "--server", "https://:6443"},
	} {
		cmd := NewCommand("v1")
		var out strings.Builder
		cmd.SetOut(&out)
		cmd.SetArgs(args)
		if err := cmd.Execute(); err == nil || !errors.As(err, new(UsageError)) {
			t.Errorf("%q: %v", args, err)
		}
	}
}
