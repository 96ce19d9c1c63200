package configs

import (
	"testing"
	"time"
)

// delays reports whether a config has these crash back-off delays, and limits pods to them.
func delays(c *Config, initial, longest, reset time.Duration) bool {
	b := c.Berth.CrashLoopBackOff
	return b.InitialDelay.Duration == initial && b.MaxDelay.Duration == longest && b.ResetAfter.Duration == reset &&
		b.CleanExits == CleanExitsBackOff &&
		b.PodMinDelay == b.InitialDelay && b.PodMaxDelay == b.MaxDelay
}

// TestCrashLoopBackOffDefaults checks the defaults of the delays.
func TestCrashLoopBackOffDefaults(t *testing.T) {
	for name, test := range map[string]struct {
		node
		initial, longest, reset time.Duration
	}{
		"the kubelet's longest": {
			node{file: header + "crashLoopBackOff: {maxContainerRestartPeriod: 100s}\n"},
			10 * time.Second,
			100 * time.Second, 200 * time.Second,
		},
		"below the first": {
			node{file: header + "crashLoopBackOff: {maxContainerRestartPeriod: 2s}\n"},
			2 * time.Second,
			2 * time.Second, 4 * time.Second,
		},
		"berth's own": {
			node{file: berthHeader + "crashLoopBackOff: {initialDelay: 3s, maxDelay: 20m}\n"},
			3 * time.Second,
			20 * time.Minute, 40 * time.Minute,
		},
		"the gate": {
			node{args: []string{"--feature-gates=ReduceDefaultCrashLoopBackOffDecay=true"}},
			time.Second, time.Minute,
			2 * time.Minute,
		},
		"the gate and a longest": {
			node{file: header +
				"crashLoopBackOff: {maxContainerRestartPeriod: 200s}\nfeatureGates: " +
				"{ReduceDefaultCrashLoopBackOffDecay: true}\n"},
			time.Second, 200 * time.Second, 400 * time.Second,
		},
	} {
		c, _, err := test.load(t)
		if err != "" {
			t.Fatalf("%s: %s", name, err)
		}
		if !delays(c, test.initial, test.longest, test.reset) {
			t.Errorf("%s: %+v", name, c.Berth.CrashLoopBackOff)
		}
	}
}
