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
	const volume = "volumes: [{name: noted, emptyDir: {}}]\n"
	const mount = "volumeMounts: [{name: noted, mountPath: /noted}]"
	put(t, a, "timed", "terminationGracePeriodSeconds: 1\ncontainers:\n"+
		shell("main", mount,
			"readinessProbe: "+
				noted("ready", "true",
					"initialDelaySeconds: 3, periodSeconds: 2, successThreshold: 3, timeoutSeconds: 30"),
			"livenessProbe: "+
				noted("alive", "test ! -e /dead || { date +%s >>/noted/failed; false; }",
					"periodSeconds: 1, failureThreshold: 4, timeoutSeconds: 30"))+
		shell("hangs", mount, "readinessProbe: "+noted("hangs", "sleep 30", "timeoutSeconds: 1, periodSeconds: 2"))+
		volume)
	p := waitPod(t, a, "timed", "ready in one container", func(p *corev1.Pod) error {
		if !statusOf(p, "main").Ready {
			return errors.New("not ready yet")
		}
		return nil
	})
	times := secondsIn(t, a, "timed", "ready")
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
	inside(t, a, "timed", "main", "touch", "/dead") // the file disappears with the container
	restarted := waitPod(t, a, "timed", "restarted by its probe", func(p *corev1.Pod) error {
		if n := statusOf(p, "main").RestartCount; n != 1 {
			return fmt.Errorf("%d restarts", n)
		}
		return nil
	})
	ended := statusOf(restarted, "main").LastTerminationState.Terminated.FinishedAt.Unix()
	failed := slices.DeleteFunc(secondsIn(t, a, "timed", "failed"), func(at int64) bool { return at > ended })
	if len(failed) < 4 {
		t.Errorf("it was ended at %d after failures at %v, want 4", ended, failed)
	}
	removed(t, e, a, "timed")
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
