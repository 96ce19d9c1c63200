package env

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// WaitUp waits until the agent's API answers.
func (a *Agent) WaitUp(t testing.TB) {
	t.Helper()
	a.WaitPods(t, "the agent's API to answer", func([]corev1.Pod) bool { return true })
}

// WaitReady waits until the pods with these names are ready, or have succeeded if they are meant to
// end. A name is the name in the manifest.
func (a *Agent) WaitReady(t testing.TB, names ...string) {
	t.Helper()
	a.WaitPods(t, fmt.Sprintf("pods %v to be ready", names), func(pods []corev1.Pod) bool {
		return !slices.ContainsFunc(names, func(name string) bool {
			p := Find(pods, name)
			return p == nil || !Ready(p)
		})
	})
}

// WaitGone waits until the agent has no pods with these names.
func (a *Agent) WaitGone(t testing.TB, names ...string) {
	t.Helper()
	a.WaitPods(t, fmt.Sprintf("pods %v to be gone", names), func(pods []corev1.Pod) bool {
		return !slices.ContainsFunc(names, func(name string) bool { return Find(pods, name) != nil })
	})
}

// WaitPods waits until the condition holds for the agent's pods. It fails the test and shows the
// pods after some minutes, or if the agent has ended by itself.
func (a *Agent) WaitPods(t testing.TB, what string, holds func(pods []corev1.Pod) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), podTimeout)
	defer cancel()
	for pace := NewPace(); ; {
		pods, err := a.Pods(ctx)
		if err == nil && holds(pods) {
			return
		}
		if !a.Running() {
			t.Fatalf("wait for %s: the agent has ended\n%s", what, a.LogTail())
		}
		select {
		case <-ctx.Done():
			t.Fatalf("wait for %s: %v, last answer %v\n%s", what, ctx.Err(), err, Describe(pods))
		case <-time.After(pace.Pause()):
		}
	}
}

// Eventually waits until the check returns nil. After some minutes it fails the test with the
// check's last error.
func Eventually(t testing.TB, what string, check func() error) {
	t.Helper()
	deadline := time.Now().Add(podTimeout)
	for pace := NewPace(); ; {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("wait for %s: %v", what, err)
		}
		time.Sleep(pace.Pause())
	}
}

// Find returns the pod with that name in the API or in its manifest, nil if there is none.
func Find(pods []corev1.Pod, name string) *corev1.Pod {
	for i := range pods {
		if pods[i].Name == name || pods[i].Name == name+"-"+NodeName {
			return &pods[i]
		}
	}
	return nil
}

// Ready reports whether a pod is ready or has succeeded.
func Ready(p *corev1.Pod) bool {
	if p.Status.Phase == corev1.PodSucceeded {
		return true
	}
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// Describe returns a line for each pod, and an indented line for each container that is not as it
// should be.
func Describe(pods []corev1.Pod) string {
	var b strings.Builder
	for i := range pods {
		p := &pods[i]
		fmt.Fprintf(&b, "%s/%s %s %s %s %s\n", p.Namespace, p.Name, p.UID, p.Status.Phase, p.Status.Reason,
			p.Status.Message)
		for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			if why := Why(c); why != "" {
				fmt.Fprintf(&b, "  %s: %s (restarts %d)\n", c.Name, why, c.RestartCount)
			}
		}
	}
	return b.String()
}

// Why returns what keeps a container from being ready. It is empty for a container that is ready or
// has ended well.
func Why(c corev1.ContainerStatus) string {
	switch s := c.State; {
	case s.Waiting != nil:
		return strings.TrimSpace(s.Waiting.Reason + " " + s.Waiting.Message)
	case s.Terminated != nil && s.Terminated.ExitCode != 0:
		return strings.TrimSpace(fmt.Sprintf("%s with code %d %s", s.Terminated.Reason, s.Terminated.ExitCode,
			s.Terminated.Message))
	case s.Running != nil && !c.Ready:
		return "running, not ready"
	}
	return ""
}
