package configs

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CrashLoopBackOffConfiguration says how long a container that ends again and again waits before it
// restarts. The first restart is at once. The second waits for InitialDelay, and each later one
// twice as long as the one before, up to MaxDelay.
type CrashLoopBackOffConfiguration struct {
	// InitialDelay is the first delay. Default 10s, or MaxDelay if that is less.
	InitialDelay metav1.Duration `json:"initialDelay,omitempty"`
	// MaxDelay is the longest delay. Default is crashLoopBackOff.maxContainerRestartPeriod of the
	// KubeletConfiguration: 5m.
	MaxDelay metav1.Duration `json:"maxDelay,omitempty"`
	// ResetAfter is how long a container has to run after a restart until its back-off is reset.
	// Default twice MaxDelay.
	ResetAfter metav1.Duration `json:"resetAfter,omitempty"`
	// CleanExits says how an end with exit code 0 counts. Default BackOff.
	CleanExits CleanExits `json:"cleanExits,omitempty"`
	// PodMinDelay and PodMaxDelay limit the delays that a pod may ask for by the annotations
	// berth.dev/crash-loop-initial-delay and berth.dev/crash-loop-max-delay. Defaults are
	// InitialDelay and MaxDelay.
	PodMinDelay metav1.Duration `json:"podMinDelay,omitempty"`
	PodMaxDelay metav1.Duration `json:"podMaxDelay,omitempty"`
}

// CleanExits says how the end of a container with exit code 0 counts.
type CleanExits string

// The values of CleanExits.
const (
	// CleanExitsBackOff counts it as a crash, as the kubelet does.
	CleanExitsBackOff CleanExits = "BackOff"
	// CleanExitsFree adds no delay, except that a container starts at most once a second.
	CleanExitsFree CleanExits = "Free"
)

// The defaults of kubelet 1.36, and its defaults with the feature gate
// ReduceDefaultCrashLoopBackOffDecay (KEP-4603).
const (
	initialCrashDelay        = 10 * time.Second
	reducedInitialCrashDelay = time.Second
	reducedMaxCrashDelay     = time.Minute
)

// leastCrashDelay keeps a container that always crashes from using up the node. It is the kubelet's
// lower limit of maxContainerRestartPeriod.
const leastCrashDelay = time.Second

// setDefaults sets the fields that the user left out.
func (b *CrashLoopBackOffConfiguration) setDefaults(c *Config) {
	initial, longest := initialCrashDelay, c.Kubelet.CrashLoopBackOff.MaxContainerRestartPeriod.Duration
	if c.GateEnabled("ReduceDefaultCrashLoopBackOffDecay") {
		initial = reducedInitialCrashDelay
		if !c.IsSet("crashLoopBackOff.maxContainerRestartPeriod") {
			longest = reducedMaxCrashDelay
		}
	}
	orValue(&b.MaxDelay.Duration, longest)
	orValue(&b.InitialDelay.Duration, min(initial, b.MaxDelay.Duration))
	orValue(&b.ResetAfter.Duration, 2*b.MaxDelay.Duration)
	orValue(&b.CleanExits, CleanExitsBackOff)
	orValue(&b.PodMinDelay, b.InitialDelay)
	orValue(&b.PodMaxDelay, b.MaxDelay)
}

// crashLoopBackOff checks values with their defaults.
func (c checker) crashLoopBackOff(b CrashLoopBackOffConfiguration) {
	const path = "crashLoopBackOff."
	for field, d := range map[string]metav1.Duration{
		"initialDelay": b.InitialDelay,
		"maxDelay":     b.MaxDelay,
		"resetAfter":   b.ResetAfter,
		"podMinDelay":  b.PodMinDelay,
		"podMaxDelay":  b.PodMaxDelay,
	} {
		c.that(d.Duration >= leastCrashDelay, path+field, "%v must be %v or more", d.Duration, leastCrashDelay)
	}
	c.that(b.InitialDelay.Duration <= b.MaxDelay.Duration, path+"initialDelay",
		"%v must not be more than maxDelay, which is %v",
		b.InitialDelay.Duration, b.MaxDelay.Duration)
	c.that(b.PodMinDelay.Duration <= b.PodMaxDelay.Duration, path+"podMinDelay",
		"%v must not be more than podMaxDelay, which is %v",
		b.PodMinDelay.Duration, b.PodMaxDelay.Duration)
	oneOf(c, path+"cleanExits", b.CleanExits, CleanExitsBackOff, CleanExitsFree)
}
