//go:build integration

package integration

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/test/env"
)

// evicted returns a check that a pod was evicted with a message.
func evicted(message string) func(*corev1.Pod) error {
	return func(p *corev1.Pod) error {
		if s := p.Status; s.Phase != corev1.PodFailed || s.Reason != "Evicted" || !strings.HasPrefix(s.Message, message) {
			return fmt.Errorf("%s %s %q", s.Phase, s.Reason, s.Message)
		}
		return nil
	}
}

// annotationsOf returns the annotations of the event about a pod's eviction.
func annotationsOf(t *testing.T, a *env.Agent, pod string) map[string]string {
	t.Helper()
	waitEvent(t, a, "Evicted", pod)
	for _, e := range answers[api.EventList](t, a, "events").Items {
		if e.Reason == "Evicted" && strings.HasPrefix(e.InvolvedObject.Name, pod) {
			return e.Annotations
		}
	}
	return nil
}

// TestLocalStorageLimits checks that a pod that writes more than its limits allow has to leave, and
// that a pod within them stays.
func TestLocalStorageLimits(t *testing.T) {
	t.Parallel()
	e := env.Containerd(t, env.Options{})
	a := e.StartAgent(t, env.AgentOptions{})
	a.WaitUp(t)
	const writes = `
restartPolicy: Never
containers:
  - name: main
    image: berth.local/busybox:v1
    command: [sh, -c, "dd if=/dev/zero of=%s bs=1M count=%d; trap 'exit 0' TERM; sleep 1000000 & wait $!"]
    resources: {limits: {%s}}
    volumeMounts: [{name: data, mountPath: /data}]
  - name: second
    image: berth.local/web:v1
    args: [sleep]
    resources: {limits: {%s}}
volumes:
  - {name: data, emptyDir: {%s}}
`
	const limit, ample = "ephemeral-storage: 2Mi", "ephemeral-storage: 1Gi"
	for name, c := range map[string]struct{ spec, message string }{
		"emptyDir": {
			fmt.Sprintf(writes, "/data/f", 4, "", "", "sizeLimit: 2Mi"),
			`Usage of EmptyDir volume "data" exceeds the limit "2Mi". `,
		},
		"pod": {
			fmt.Sprintf(writes, "/data/f", 6, limit, limit, ""),
			"Pod ephemeral local storage usage exceeds the total limit of containers 4Mi. ",
		},
		"container": {
			fmt.Sprintf(writes, "/f", 4, limit, ample, ""),
			`Container main exceeded its local ephemeral storage limit "2Mi". `,
		},
		"within": {fmt.Sprintf(writes, "/data/f", 1, limit, limit, "sizeLimit: 2Mi"), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pod := "limit-" + strings.ToLower(name)
			put(t, a, pod, c.spec)
			if c.message == "" {
				for _, other := range []string{"limit-emptydir", "limit-pod", "limit-container"} {
					waitPod(t, a, other, "evicted", phase(corev1.PodFailed))
				}
				a.WaitReady(t, pod)
				return
			}
			p := waitPod(t, a, pod, "evicted", evicted(c.message))
			for _, condition := range p.Status.Conditions {
				if condition.Type == corev1.DisruptionTarget {
					t.Errorf("condition %+v of a pod that exceeds its own limit", condition)
				}
			}
			annotationsOf(t, a, pod)
			if w := why(t, a, pod); !strings.HasPrefix(w.Ended, "Evicted: "+c.message) {
				t.Errorf("why: %q", w.Ended)
			}
		})
	}
}

// TestDiskPressure checks what a node without a cluster does whose disk is nearly full: the pod
// that uses most of it leaves, a critical one stays, and a pod comes back when there is room again.
func TestDiskPressure(t *testing.T) {
	t.Parallel()
	e := env.Containerd(t, env.Options{})
	a, err := e.NewAgent(t.Context(), env.AgentOptions{
		Kubelet: "evictionHard: {nodefs.available: 40Mi}\nevictionPressureTransitionPeriod: 20s\n",
	})
	if err != nil {
		t.Fatal(err)
	}
	// The agent's own small disk; the environment unmounts it.
	if err := unix.Mount("berth-test", a.RootDir, "tmpfs", 0, "size=64m"); err != nil {
		t.Fatal(err)
	}
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
	a.WaitUp(t)
	// The first run of a pod fills its volume, and a marker outside of the node's disk says so.
	const spec = `
%s
containers:
  - name: main
    image: berth.local/busybox:v1
    command: [sh, -c, "[ -e /marks/%s ] || dd if=/dev/zero of=/data/f bs=1M count=%d; touch /marks/%s; trap 'exit 0' TERM; sleep 1000000 & wait $!"]
    volumeMounts: [{name: data, mountPath: /data}, {name: marks, mountPath: /marks}]
volumes:
  - {name: data, emptyDir: {}}
  - {name: marks, hostPath: {path: %s}}
`
	marks := t.TempDir()
	put(t, a, "small", fmt.Sprintf(spec, "", "small", 1, "small", marks))
	put(t, a, "needed", fmt.Sprintf(spec, "priorityClassName: system-node-critical", "needed", 8, "needed", marks))
	a.WaitReady(t, "small", "needed")
	put(t, a, "hog", fmt.Sprintf(spec, "", "hog", 32, "hog", marks))

	hog := waitPod(t, a, "hog", "evicted",
		evicted("The node was low on resource: ephemeral-storage. Threshold quantity: 40Mi, available: "))
	found := false
	for _, c := range hog.Status.Conditions {
		found = found || c.Type == corev1.DisruptionTarget && c.Reason == "TerminationByKubelet" &&
			c.Message == hog.Status.Message
	}
	if !found {
		t.Errorf("conditions %+v", hog.Status.Conditions)
	}
	if got := annotationsOf(t, a, "hog"); got["starved_resource"] != "ephemeral-storage" {
		t.Errorf("annotations %v", got)
	}
	waitEvent(t, a, "EvictionThresholdMet", "Attempting to reclaim ephemeral-storage")
	if w := why(t, a, "hog"); !strings.Contains(w.Ended, "The node was low on resource: ephemeral-storage") ||
		!strings.Contains(w.Ended, "it runs again when") {
		t.Errorf("why: %q", w.Ended)
	}
	if got := metric(t, a, `kubelet_evictions{eviction_signal="nodefs.available"}`); got != "1" {
		t.Errorf("%q evictions", got)
	}
	for _, name := range []string{"small", "needed"} {
		if p := podOf(t, a, name); p.Status.Phase != corev1.PodRunning {
			t.Errorf("pod %s is %s: %s", name, p.Status.Phase, p.Status.Message)
		}
	}
	waitPod(t, a, "hog", "back", phase(corev1.PodRunning))
}
