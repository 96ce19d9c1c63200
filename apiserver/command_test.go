package apiserver

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berthd/berth/apiserver/pki"
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

// TestCommandLinesThatAreWrong checks that a command line without sense is an error of usage that says
// what helps.
func TestCommandLinesThatAreWrong(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"snapshot"}, "no whole command"},
		{[]string{"token"}, "no whole command"},
		{[]string{"snapshot", "save"}, `berth-apiserver snapshot save FILE (see "berth-apiserver snapshot save --help")`},
		{[]string{"snapshot", "save", ""}, "snapshot save FILE"},
		{[]string{"snapshot", "restore", "a", "b"}, "snapshot restore FILE"},
		{[]string{"snapshot", "nothing"}, `see "berth-apiserver snapshot --help"`},
		{[]string{"nothing"}, `see "berth-apiserver --help"`},
		{[]string{"--nothing"}, `unknown flag: --nothing (see "berth-apiserver --help")`},
		{[]string{"token", "create", "--nothing"}, `see "berth-apiserver token create --help"`},
		{[]string{"token", "create", "--server", "foo"}, "--server"},
		{[]string{"token", "create", "--server", "http://192.0.2.1:6443"}, "--server"},
		{[]string{"token", "create", "--server", "https://"}, "--server"},
		{[]string{"token", "create", "--server", "https://:6443"}, "--server"},
	} {
		cmd := NewCommand("v1")
		var out strings.Builder
		cmd.SetOut(&out)
		cmd.SetArgs(c.args)
		err := cmd.Execute()
		if err == nil || !errors.As(err, new(UsageError)) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %s", c.args, err, c.want)
		}
	}
}

// TestCommandsWithoutAServer runs the commands that are clients while no server runs, and as a user
// who may not read the data directory.
func TestCommandsWithoutAServer(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := "https://" + l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "data")
	keys := pki.Config{DataDir: dir, Hosts: []string{"localhost"}, Server: server, NodeName: "one"}
	if _, err := pki.Ensure(keys, time.Now()); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"services"}, {"token", "create", "--server", "https://192.0.2.1:6443"}} {
		run := func() string {
			cmd := NewCommand("v1")
			cmd.SetOut(io.Discard)
			cmd.SetArgs(append(args, "--data-dir", dir))
			return fmt.Sprint(cmd.ExecuteContext(t.Context()))
		}
		want := "no server answers at " + server + " (start berth-apiserver first"
		if said := run(); !strings.Contains(said, want) {
			t.Errorf("%q without a server: %s", args, said)
		}
		if os.Geteuid() != 0 {
			continue // only root may act as another user
		}
		runtime.LockOSThread()
		if err := unix.Setfsuid(65534); err != nil {
			t.Fatal(err)
		}
		said := run()
		_ = unix.Setfsuid(0)
		runtime.UnlockOSThread()
		if !strings.Contains(said, "run this command as root") {
			t.Errorf("%q as another user: %s", args, said)
		}
	}
}
