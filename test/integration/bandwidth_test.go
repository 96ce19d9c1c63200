//go:build integration

package integration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/test/env"
)

// TestBandwidth checks that the annotations about bandwidth reach the CNI plugin bandwidth, which
// shapes the pod's traffic, and that nothing of it stays.
func TestBandwidth(t *testing.T) {
	t.Parallel()
	e := env.Containerd(t, env.Options{})
	confs, err := filepath.Glob(filepath.Join(e.CNIConfDir, "*"))
	if err != nil || len(confs) != 1 {
		t.Fatalf("the network's configs are %v, %v", confs, err)
	}
	text, err := os.ReadFile(confs[0])
	if err != nil {
		t.Fatal(err)
	}
	at := strings.LastIndex(string(text), "}\n  ]")
	if at < 0 {
		t.Fatalf("the network's config has no end of its plugins:\n%s", text)
	}
	shaped := string(text[:at]) + `}, {"type": "bandwidth", "capabilities": {"bandwidth": true}}` + string(text[at+1:])
	if err := os.WriteFile(confs[0], []byte(shaped), 0o600); err != nil {
		t.Fatal(err)
	}
	a := e.StartAgent(t, env.AgentOptions{})
	networkHas(t, e, `"bandwidth"`, true)
	a.WriteManifest(t, "shaped.yaml", strings.Replace(manifest("shaped", sleeper), "metadata:\n",
		"metadata:\n  annotations: {kubernetes.io/ingress-bandwidth: 7M, kubernetes.io/egress-bandwidth: 13M}\n", 1))
	a.WaitReady(t, "shaped")
	for direction, megabits := range map[string]uint64{"ingress": 7, "egress": 13} {
		if n := filters(t, megabits*1_000_000/8); n == 0 {
			t.Errorf("nothing shapes the pod's %s", direction)
		}
	}
	removed(t, e, a, "shaped")
	env.Eventually(t, "no filters", func() error {
		if n := filters(t, 7_000_000/8) + filters(t, 13_000_000/8); n > 0 {
			return fmt.Errorf("%d are left", n)
		}
		return nil
	})
}

// networkHas waits until the runtime, which watches its network config, has read a config with the
// text in it, or without it.
func networkHas(t *testing.T, e *env.Env, text string, want bool) {
	t.Helper()
	env.Eventually(t, fmt.Sprintf("containerd's network config to have %s: %t", text, want), func() error {
		status, err := e.Runtime().Status(t.Context(), &runtimeapi.StatusRequest{Verbose: true})
		if err != nil {
			return err
		}
		// some parts of the config are JSON in a string
		config := strings.ReplaceAll(status.Info["cniconfig"], `\`, "")
		if !strings.Contains(config, `"bridge"`) || strings.Contains(config, text) != want {
			return fmt.Errorf("it is %s", config)
		}
		return nil
	})
}

// filters counts the token buckets with this rate, in bytes a second, on this host's interfaces.
func filters(t *testing.T, rate uint64) int {
	t.Helper()
	n := 0
	for _, link := range whole(t, netlink.LinkList) {
		for _, q := range whole(t, func() ([]netlink.Qdisc, error) { return netlink.QdiscList(link) }) {
			if bucket, ok := q.(*netlink.Tbf); ok && bucket.Rate == rate {
				n++
			}
		}
	}
	return n
}

// whole lists again if the list changed meanwhile. What has been removed has no items.
func whole[T any](t *testing.T, list func() ([]T, error)) (items []T) {
	t.Helper()
	env.Eventually(t, "a list that nobody interrupts", func() (err error) {
		if items, err = list(); errors.Is(err, netlink.ErrDumpInterrupted) {
			return err
		}
		return nil
	})
	return items
}
