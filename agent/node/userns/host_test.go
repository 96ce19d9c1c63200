package userns

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestHostRange(t *testing.T) {
	failed := errors.New("no directory service")
	for name, c := range map[string]struct {
		user           bool
		userErr        error
		missing        bool
		uids, gids     string
		uidErr, gidErr error
		want           Range
		err            string
	}{
		"no such user":    {want: Range{Unit, math.MaxUint32 - Unit + 1}},
		"users not known": {userErr: failed, err: "no directory service"},
		"no getsubids":    {user: true, missing: true, want: Range{Unit, math.MaxUint32 - Unit + 1}},
		"subordinate ids": {
			user: true,
			uids: "0: kubelet 65536 2147483648\n",
			gids: "0: kubelet 65536 2147483648\n",
			want: Range{65536, 2147483648},
		},
		"up to the last id": {
			user: true,
			uids: "0: kubelet 65536 4294901760",
			gids: "0: kubelet 65536 4294901760",
			want: Range{65536, 4294901760},
		},
		"no answer": {
			user:   true,
			uidErr: failed,
			err:    `error retrieving additional uids for user "kubelet": no directory service`,
		},
		"no groups": {
			user:   true,
			uids:   "0: kubelet 1 1",
			gidErr: failed,
			err:    `error retrieving additional gids for user "kubelet"`,
		},
		"they differ": {
			user: true,
			uids: "0: kubelet 65536 65536",
			gids: "0: kubelet 131072 65536",
			err:  "mismatched subuids and subgids",
		},
		"two ranges": {
			user: true,
			uids: "0: kubelet 1 1\n1: kubelet 3 1\n",
			gids: "0: kubelet 1 1\n1: kubelet 3 1\n",
			err:  "it must contain only one line",
		},
		"nothing": {user: true, err: "invalid line"},
		"words": {
			user: true,
			uids: "0: kubelet many ids",
			gids: "0: kubelet many ids",
			err:  "error parsing line",
		},
		"beyond 32 bits": {
			user: true,
			uids: "0: kubelet 65536 4294967295",
			gids: "0: kubelet 65536 4294967295",
			err:  "no such run of ids",
		},
		"a negative length": {
			user: true,
			uids: "0: kubelet 65536 -1",
			gids: "0: kubelet 65536 -1",
			err:  "no such run of ids",
		},
		"more than 64 bits?": {
			user: true,
			uids: "0: kubelet 99999999999999999999 1",
			gids: "0: kubelet 99999999999999999999 1",
			err:  "error parsing line",
		},
	} {
		got, err := HostRange(t.Context(), Unit, Lookups{
			User: func(name string) (bool, error) { return c.user && name == "kubelet", c.userErr },
			Program: func(_ context.Context, name string, args ...string) (string, bool, error) {
				switch {
				case c.missing:
					return "", false, nil
				case name == "getsubids" && slices.Equal(args, []string{"kubelet"}):
					return c.uids, true, c.uidErr
				case name == "getsubids" && slices.Equal(args, []string{"-g", "kubelet"}):
					return c.gids, true, c.gidErr
				}
				t.Errorf("%s: %s %v was run", name, name, args)
				return "", false, nil
			},
		})
		if got != c.want && c.err == "" || (err != nil) != (c.err != "") ||
			err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

func TestHostLookups(t *testing.T) {
	host := HostLookups()
	if yes, err := host.User("root"); !yes || err != nil {
		t.Errorf("root: %v, %v", yes, err)
	}
	if yes, err := host.User("nobody-has-this-name"); yes || err != nil {
		t.Errorf("nobody: %v, %v", yes, err)
	}
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	if _, found, err := host.Program(t.Context(), "getsubids", "x"); found || err != nil {
		t.Errorf("no program: %v, %v", found, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "getsubids"), []byte("#!/bin/sh\necho 0: $1 65536 65536\n"),
		0o755); err != nil {
		t.Fatal(err)
	}
	if out, found, err := host.Program(t.Context(), "getsubids", "kubelet"); out != "0: kubelet 65536 65536\n" ||
		!found || err != nil {
		t.Errorf("%q, %v, %v", out, found, err)
	}
	if err := os.WriteFile(filepath.Join(dir, "getsubids"), []byte("#!/bin/sh\nexit 1\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, _, err := host.Program(t.Context(), "getsubids", "kubelet"); err == nil {
		t.Error("a program that fails succeeds")
	}
}
