package iptables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// kernel is a fake of the kernel's tables: what was added, in order.
type kernel struct {
	mu    sync.Mutex
	parts []string
	fails func(command string) error
	calls int
}

func (k *kernel) command(_ context.Context, program string, args ...string) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.calls++
	text := program + " " + strings.Join(args, " ")
	if k.fails != nil {
		if err := k.fails(text); err != nil {
			return err
		}
	}
	verb := args[2]
	part := strings.NewReplacer(" -N ", " ", " -S ", " ", " -I ", " ", " -C ", " ").Replace(text)
	switch verb {
	case "-N":
		if slices.Contains(k.parts, part) {
			return errAbsent
		}
		k.parts = append(k.parts, part)
	case "-I":
		k.parts = append(k.parts, part)
	case "-S", "-C":
		if !slices.Contains(k.parts, part) {
			return errAbsent
		}
	}
	return nil
}

// all are the parts of both families.
const all = `iptables -t mangle KUBE-IPTABLES-HINT
iptables -t filter KUBE-FIREWALL
iptables -t filter KUBE-FIREWALL -m comment --comment block incoming localnet connections --dst 127.0.0.0/8 ` +
	`! --src 127.0.0.0/8 -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP
iptables -t filter OUTPUT -j KUBE-FIREWALL
iptables -t filter INPUT -j KUBE-FIREWALL
ip6tables -t mangle KUBE-IPTABLES-HINT`

// running runs the chains for some time. between runs after the first round and after each minute,
// with the lock.
func running(t *testing.T, k *kernel, log *slog.Logger, minutes int, between func(minute int)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- New(k.command, log).Run(ctx) }()
		synctest.Wait()
		for minute := range minutes {
			k.mu.Lock()
			between(minute)
			k.mu.Unlock()
			time.Sleep(period)
			synctest.Wait()
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("it ends with %v", err)
		}
	})
}

func TestChainsAreMadeOnceAndAgainWhenGone(t *testing.T) {
	k := &kernel{}
	running(t, k, slog.New(slog.DiscardHandler), 3, func(minute int) {
		if got := strings.Join(k.parts, "\n"); got != all {
			t.Errorf("minute %d: the kernel has\n%s", minute, got)
		}
		switch minute {
		case 0:
			k.calls = 0
		case 1:
			if k.calls != 6 { // one for each part
				t.Errorf("an idle minute takes %d commands", k.calls)
			}
			k.parts = nil // the firewall is loaded again
		}
	})
	if got := strings.Join(k.parts, "\n"); got != all {
		t.Errorf("at the end the kernel has\n%s", got)
	}
}

// Each part that is taken away alone is made again: the flush of a chain leaves the jumps to it.
func TestEachPartIsMadeAgain(t *testing.T) {
	for part := range strings.SplitSeq(all, "\n") {
		k := &kernel{}
		running(t, k, slog.New(slog.DiscardHandler), 1, func(int) {
			k.parts = slices.DeleteFunc(k.parts, func(p string) bool { return p == part })
		})
		if !slices.Contains(k.parts, part) {
			t.Errorf("a minute after it was taken away, the kernel does not have %s", part)
		}
	}
}

// Each command fails once: the next minute makes what is missing.
func TestEachFailureIsMadeUpFor(t *testing.T) {
	for n := range 12 {
		calls := 0
		k := &kernel{}
		k.fails = func(string) error {
			if calls++; calls == n+1 {
				return errors.New("the lock is held")
			}
			return nil
		}
		running(t, k, slog.New(slog.DiscardHandler), 2, func(int) {})
		got := slices.Sorted(slices.Values(k.parts))
		if want := slices.Sorted(strings.SplitSeq(all, "\n")); !slices.Equal(got, want) {
			t.Errorf("with failure %d the kernel has\n%s", n, strings.Join(got, "\n"))
		}
	}
}

func TestFailuresAreLoggedOnce(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"no program": {fmt.Errorf("iptables: %w", exec.ErrNotFound), "level=INFO msg=\"no chains"},
		"refused":    {errors.New("permission denied"), "level=WARN msg=\"chains of the firewall not made"},
	} {
		var out bytes.Buffer
		k := &kernel{fails: func(string) error { return c.err }}
		running(t, k, slog.New(slog.NewTextHandler(&out, nil)), 5, func(int) {})
		if n := strings.Count(out.String(), c.want); n != 2 || strings.Count(out.String(), "\n") != 2 {
			t.Errorf("%s: want %s once for each program, have\n%s", name, c.want, out.String())
		}
	}
}

// The machine's own programs, in a network namespace of the test: the rules are there once, after
// two starts, too.
func TestHost(t *testing.T) {
	if unix.Geteuid() != 0 {
		t.Skip("a network namespace takes root")
	}
	if _, err := exec.LookPath("iptables"); err != nil {
		t.Skip("this host has no iptables")
	}
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		var log bytes.Buffer
		c := New(Host, slog.New(slog.NewTextHandler(&log, nil)))
		c.keep(t.Context(), "iptables", append(hint(), firewall()...))
		if log.Len() > 0 {
			t.Errorf("it says %s", log.String())
		}
	}
	rules, err := exec.CommandContext(t.Context(), "iptables", "-S").Output()
	if err != nil {
		t.Fatal(err)
	}
	const want = `-P INPUT ACCEPT
-P FORWARD ACCEPT
-P OUTPUT ACCEPT
-N KUBE-FIREWALL
-A INPUT -j KUBE-FIREWALL
-A OUTPUT -j KUBE-FIREWALL
-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment "block incoming localnet connections" ` +
		`-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP
`
	if string(rules) != want {
		t.Errorf("the host has\n%s", rules)
	}
}
