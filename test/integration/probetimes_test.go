//go:build integration

package integration

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/test/env"
)

// noted is an exec probe. Its command first records the current second, in a file that stays when
// the container ends, and then runs more.
func noted(file, more, settings string) string {
	return "{exec: {command: [sh, -c, 'date +%s >>/noted/" + file + "; " + more + "']}, " + settings + "}"
}

// probesKeepTime checks that a probe waits for its initial delay, keeps its period, ends after its
// timeout, and counts successes and failures up to its thresholds. A busy machine makes probes
// late, never early. Where the number of probes matters, the timeout gives a busy machine enough
// time to record them.
func probesKeepTime(t *testing.T, e *env.Env, a *env.Agent) {
	timesKept(t, e, a, "timed", "containers:\n", "")
}

// sidecarsKeepTime is probesKeepTime with sidecars.
func sidecarsKeepTime(t *testing.T, e *env.Env, a *env.Agent) {
	timesKept(t, e, a, "aside-timed", "initContainers:\n", strings.Replace(aside, "main", "other", 1))
}

// notedVolume is the volume in which probes record when they run, and notedMount its mount.
const (
	notedVolume = "volumes: [{name: noted, emptyDir: {}}]\n"
	notedMount  = "volumeMounts: [{name: noted, mountPath: /noted}]"
)

// timesKept runs a pod whose probes record when they run. With more in the pod's spec the
// containers with probes are sidecars.
func timesKept(t *testing.T, e *env.Env, a *env.Agent, pod, kind, more string) {
	const mount = notedMount
	put(t, a, pod, "terminationGracePeriodSeconds: 1\n"+kind+ofKind(more,
		shell("main", mount,
			"readinessProbe: "+
				noted("ready", "true",
					"initialDelaySeconds: 3, periodSeconds: 2, successThreshold: 3, timeoutSeconds: 30"),
			"livenessProbe: "+
				noted("alive", "test ! -e /dead || { date +%s >>/noted/failed; false; }",
					"periodSeconds: 1, failureThreshold: 4, timeoutSeconds: 30"))+
			shell("hangs", mount, "readinessProbe: "+noted("hangs", "sleep 30", "timeoutSeconds: 1, periodSeconds: 2")))+
		more+notedVolume)
	p := waitPod(t, a, pod, "ready in one container", func(p *corev1.Pod) error {
		if !statusOf(p, "main").Ready {
			return errors.New("not ready yet")
		}
		return nil
	})
	times := secondsIn(t, a, pod, "ready")
	if len(times) < 3 {
		t.Errorf("it is ready after %d successes, want 3", len(times))
	}
	started := statusOf(p, "main").State.Running.StartedAt.Unix()
	for i, at := range times {
		soonest := started + 3 + 2*int64(i)
		if i > 0 {
			// the second probe comes after one second, because the container is not ready yet
			soonest--
		}
		if at < soonest {
			t.Errorf("it started at %d and was probed at %v: probe %d before %d", started, times, i+1, soonest)
		}
	}
	waitEvent(t, a, "Unhealthy", "timed out after 1s")
	inside(t, a, pod, "main", "touch", "/dead") // the file disappears with the container
	restarted := waitPod(t, a, pod, "restarted by its probe", func(p *corev1.Pod) error {
		if n := statusOf(p, "main").RestartCount; n != 1 {
			return fmt.Errorf("%d restarts", n)
		}
		return nil
	})
	ended := statusOf(restarted, "main").LastTerminationState.Terminated.FinishedAt.Unix()
	failed := slices.DeleteFunc(secondsIn(t, a, pod, "failed"), func(at int64) bool { return at > ended })
	if len(failed) < 4 {
		t.Errorf("it was ended at %d after failures at %v, want 4", ended, failed)
	}
	removed(t, e, a, pod)
}

// ofKind returns containers as they are, or as sidecars if there is more in the pod's spec.
func ofKind(more, containers string) string {
	if more == "" {
		return containers
	}
	return strings.ReplaceAll(containers, "    image:", "    restartPolicy: Always\n    image:")
}

// startupsKeepTime checks that a startup probe waits for its initial delay, keeps its period, ends
// after its timeout, and gives up at its failure threshold, with a grace period of its own.
func startupsKeepTime(t *testing.T, e *env.Env, a *env.Agent) {
	for pod, spec := range map[string]struct{ kind, more string }{
		"starts": {"containers:\n", ""}, "aside-starts": {"initContainers:\n", aside},
	} {
		put(t, a, pod, "terminationGracePeriodSeconds: 3600\n"+spec.kind+ofKind(spec.more,
			shell("hangs", notedMount)+strings.Replace(
				shell("slow", notedMount,
					"startupProbe: "+noted("start", "test $(wc -l </noted/start) -ge 5",
						"initialDelaySeconds: 2, periodSeconds: 2, failureThreshold: 4, successThreshold: 1, "+
							"timeoutSeconds: 30, terminationGracePeriodSeconds: 1")),
				// the first instance ignores its signal
				`trap "exit 0" TERM;`, `if test -e /noted/once; then trap "exit 0" TERM; else touch /noted/once; `+
					`trap "" TERM; fi;`, 1)+
				shell("stuck", notedMount,
					"startupProbe: "+noted("stuck", "sleep 30", "timeoutSeconds: 1, periodSeconds: 2, failureThreshold: 1000")))+
			spec.more+notedVolume)
	}
	for _, pod := range []string{"starts", "aside-starts"} {
		p := waitPod(t, a, pod, "started the second time", func(p *corev1.Pod) error {
			s := statusOf(p, "slow")
			if s.RestartCount != 1 || s.Started == nil || !*s.Started || s.LastTerminationState.Terminated == nil {
				return fmt.Errorf("it is %+v", s)
			}
			return nil
		})
		first := statusOf(p, "slow").LastTerminationState.Terminated.StartedAt.Unix()
		times := secondsIn(t, a, pod, "start")
		for i := range 4 {
			if len(times) < 5 || times[i] < first+2+2*int64(i) {
				t.Errorf("%s started at %d and was probed at %v: probe %d is too early", pod, first, times, i+1)
				break
			}
		}
		waitEvent(t, a, "Unhealthy", "Startup probe failed: command timed out: ")
		removed(t, e, a, pod)
	}
}

// secondsIn returns the times that probes have recorded in a file.
func secondsIn(t *testing.T, a *env.Agent, pod, file string) []int64 {
	t.Helper()
	var out []int64
	for _, line := range strings.Fields(inside(t, a, pod, "hangs", "cat", "/noted/"+file)) {
		at, err := strconv.ParseInt(line, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, at)
	}
	return out
}

// policiesRestart checks what happens to containers that end, for each restart policy.
func policiesRestart(t *testing.T, e *env.Env, a *env.Agent) {
	for name, c := range map[string]struct {
		policy string
		code   int
		phase  corev1.PodPhase // empty if the container starts again
	}{
		"never-fails": {"Never", 3, corev1.PodFailed}, "never-ends": {"Never", 0, corev1.PodSucceeded},
		"onfailure-ends": {"OnFailure", 0, corev1.PodSucceeded}, "onfailure-fails": {"OnFailure", 3, ""},
		"always-ends": {"Always", 0, ""},
	} {
		put(t, a, name,
			fmt.Sprintf("restartPolicy: %s\ncontainers: [{name: main, image: berth.local/busybox:v1, command: [sh, "+
				"-c, 'exit %d']}]\n", c.policy, c.code))
		waitPod(t, a, name, "where its policy leads", func(p *corev1.Pod) error {
			n := statusOf(p, "main").RestartCount
			if c.phase == "" && n == 0 || c.phase != "" && (p.Status.Phase != c.phase || n != 0) {
				return fmt.Errorf("phase %s after %d restarts", p.Status.Phase, n)
			}
			return nil
		})
		removed(t, e, a, name)
	}
}
