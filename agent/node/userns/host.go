package userns

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"time"
)

const (
	// owner is the user whose subordinate ids pods get. The name is the kubelet's.
	owner = "kubelet"
	// program prints the subordinate ids. It may ask a directory service.
	program = "getsubids"
	// programTimeout bounds the call, because a directory service may not answer.
	programTimeout = 10 * time.Second
)

// Lookups are the questions of [HostRange] to the host. Tests replace them.
type Lookups struct {
	// User reports whether a user of that name exists.
	User func(name string) (bool, error)
	// Program runs a program and returns its output. found reports whether the host has the
	// program.
	Program func(ctx context.Context, name string, args ...string) (out string, found bool, err error)
}

// HostLookups returns the lookups on this host.
func HostLookups() Lookups {
	return Lookups{User: userExists, Program: runProgram}
}

// HostRange returns the ids that pods may have. They are the subordinate ids of the user "kubelet"
// if that user exists and the host has getsubids. Otherwise they are all ids except the first
// idsPerPod. If the user exists but its ids cannot be read, HostRange fails: all ids could include
// the ids of others.
func HostRange(ctx context.Context, idsPerPod uint32, host Lookups) (Range, error) {
	all := Range{First: idsPerPod, Length: uint32(uint64(math.MaxUint32) + 1 - uint64(idsPerPod))}
	exists, err := host.User(owner)
	if err != nil || !exists {
		return all, err
	}
	ctx, cancel := context.WithTimeout(ctx, programTimeout)
	defer cancel()
	users, found, err := host.Program(ctx, program, owner)
	switch {
	case !found && err == nil:
		return all, nil
	case err != nil:
		return Range{}, fmt.Errorf("error retrieving additional uids for user %q: %w", owner, err)
	}
	groups, _, err := host.Program(ctx, program, "-g", owner)
	switch {
	case err != nil:
		return Range{}, fmt.Errorf("error retrieving additional gids for user %q: %w", owner, err)
	case users != groups:
		return Range{}, fmt.Errorf("mismatched subuids and subgids for user %q", owner)
	}
	return parseSubIDs(users)
}

// parseSubIDs parses the output of getsubids: one line "0: kubelet 65536 2147483648" for each
// range. There must be exactly one range.
func parseSubIDs(text string) (Range, error) {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	if len(lines) != 1 {
		return Range{}, fmt.Errorf("error parsing line %q: it must contain only one line", text)
	}
	words := strings.Fields(lines[0])
	if len(words) != 4 {
		return Range{}, fmt.Errorf("invalid line %q", text)
	}
	first, err := strconv.ParseUint(words[2], 10, 32)
	if err != nil {
		return Range{}, fmt.Errorf("error parsing line %q: %w", text, err)
	}
	length, err := strconv.ParseUint(words[3], 10, 32)
	if err != nil || first+length > math.MaxUint32+1 {
		return Range{}, fmt.Errorf("error parsing line %q: no such run of ids", text)
	}
	return Range{First: uint32(first), Length: uint32(length)}, nil
}

func userExists(name string) (bool, error) {
	_, err := user.Lookup(name)
	if _, unknown := errors.AsType[user.UnknownUserError](err); unknown {
		return false, nil
	}
	return err == nil, err
}

func runProgram(ctx context.Context, name string, args ...string) (string, bool, error) {
	path, err := exec.LookPath(name)
	if errors.Is(err, exec.ErrNotFound) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	return string(out), true, err
}
