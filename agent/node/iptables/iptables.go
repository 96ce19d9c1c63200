// Package iptables keeps the iptables chains that a kubelet keeps on a node.
//
// Purpose: the rule in KUBE-FIREWALL drops packets from other machines to 127.0.0.0/8, which the
// kernel lets through where route_localnet is set, as kube-proxy and port mappings of CNI plugins
// do (CVE-2020-8558). The chain KUBE-IPTABLES-HINT tells other programs on the node which of the
// two kinds of iptables the host uses (KEP-3178).
//
// Truth owned: none; the kernel has the rules. The chains stay when the agent ends, as a kubelet's.
//
// Concurrency: [Chains.Run] is the only one that changes rules.
package iptables

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"strings"
	"time"

	"github.com/berthd/berth/internal/retry"
)

const (
	// period is the time between two looks, as a kubelet's: a firewall that is loaded again takes
	// the chains away.
	period = time.Minute
	// limit bounds one command.
	limit = 30 * time.Second
)

// step is one part of what the chains need: a command that succeeds if the part is there, and one
// that makes it.
type step struct{ look, add []string }

func chain(table, name string) step {
	return step{look: []string{"-t", table, "-S", name}, add: []string{"-t", table, "-N", name}}
}

// rule is a rule that stands before the others of its chain.
func rule(table, chain string, words ...string) step {
	command := func(verb string) []string { return append([]string{"-t", table, verb, chain}, words...) }
	return step{look: command("-C"), add: command("-I")}
}

// hint are the parts for each family of addresses.
func hint() []step { return []step{chain("mangle", "KUBE-IPTABLES-HINT")} }

// firewall are the parts for IPv4: IPv6 has no addresses that a machine must not route to itself.
// kube-proxy makes the same rule, so the words of the rule must be upstream's.
func firewall() []step {
	return []step{
		chain("filter", "KUBE-FIREWALL"),
		rule("filter", "KUBE-FIREWALL", "-m", "comment", "--comment", "block incoming localnet connections",
			"--dst", "127.0.0.0/8", "!", "--src", "127.0.0.0/8",
			"-m", "conntrack", "!", "--ctstate", "RELATED,ESTABLISHED,DNAT", "-j", "DROP"),
		rule("filter", "OUTPUT", "-j", "KUBE-FIREWALL"),
		rule("filter", "INPUT", "-j", "KUBE-FIREWALL"),
	}
}

// errAbsent is the error of a look that finds nothing: the programs end with 1. Other errors say
// nothing about what is there.
var errAbsent = errors.New("exit status 1")

// Command runs iptables(8) or ip6tables(8) with arguments. Its error is errAbsent if the program
// ends with 1.
type Command func(ctx context.Context, program string, args ...string) error

// Host runs the machine's own programs. The error has what the program printed.
func Host(ctx context.Context, program string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	// -w: other programs may hold the lock of the tables for a moment
	out, err := exec.CommandContext(ctx, program, append([]string{"-w", "5"}, args...)...).CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == 1 {
		err = errAbsent
	}
	if err != nil {
		return fmt.Errorf("%s %s: %w: %s", program, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// Chains keeps the chains. Make it with [New].
type Chains struct {
	command Command
	log     *slog.Logger
	// failed are the programs whose last round failed; each failure is logged once.
	failed map[string]bool
}

// New returns what keeps the chains by means of a command.
func New(command Command, log *slog.Logger) *Chains {
	return &Chains{command: command, log: log, failed: map[string]bool{}}
}

// Run makes the chains and their rules, and looks each minute whether any of them is gone, until
// ctx ends. A host without iptables gets no chains: nothing on it can need them.
func (c *Chains) Run(ctx context.Context) error {
	for {
		c.keep(ctx, "iptables", append(hint(), firewall()...))
		c.keep(ctx, "ip6tables", hint())
		if !retry.Sleep(ctx, period) {
			return nil
		}
	}
}

// keep makes each part that is not there: a firewall that is loaded again, or a flush of one chain,
// may take any of them away.
func (c *Chains) keep(ctx context.Context, program string, steps []step) {
	c.report(ctx, program, c.make(ctx, program, steps))
}

func (c *Chains) make(ctx context.Context, program string, steps []step) error {
	for _, s := range steps {
		err := c.command(ctx, program, s.look...)
		if errors.Is(err, errAbsent) {
			err = c.command(ctx, program, s.add...)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *Chains) report(ctx context.Context, program string, err error) {
	first := !c.failed[program]
	c.failed[program] = err != nil
	switch {
	case err == nil, !first, ctx.Err() != nil:
	case errors.Is(err, exec.ErrNotFound):
		c.log.Info("no chains of the firewall made: the host does not have the program", "program", program)
	default:
		c.log.Warn("chains of the firewall not made; it is tried again each minute. "+
			"Set makeIPTablesUtilChains to false if the node needs none", "program", program, "err", err)
	}
}
