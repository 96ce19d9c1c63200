package agent

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

// probed gives the pod a readiness probe that runs now and then.
func probed(p *v1.Pod) {
	p.Spec.Containers[0].ReadinessProbe = &v1.Probe{
		ProbeHandler:     v1.ProbeHandler{Exec: &v1.ExecAction{Command: []string{"true"}}},
		PeriodSeconds:    60,
		TimeoutSeconds:   1,
		SuccessThreshold: 1,
		FailureThreshold: 1,
	}
}

const probedStatic = manifest(
	`{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: main, image: app,
  readinessProbe: {exec: {command: ["true"]}, periodSeconds: 60}}]}}`)

// records is the folder of an agent's checkpoints.
func (j *joined) records() string { return filepath.Join(j.dir, "root", "berth", "pods") }

// writtenOf returns the statuses of a pod that were sent to the API server since the last call.
func (j *joined) writtenOf(name string) []string {
	var out []string
	for _, r := range j.api.Requests() {
		if r.Method == "PATCH" && strings.Contains(r.Path, "/pods/"+name+"/status") {
			out = append(out, r.Body)
		}
	}
	return out
}

// Pods that ran under another agent, which has left no record, go on as the API server knows them:
// ready, and since the same time.
func TestTakeoverWritesNoStatus(t *testing.T) {
	join(t, probedStatic, func(t *testing.T, j *joined) {
		j.bind("a", probed)
		time.Sleep(2 * time.Minute)
		before := map[string]*v1.Pod{"ns/a": j.api.Pod("ns", "a"), "default/web-node": j.api.Pod("default", "web-node")}
		for name, p := range before {
			if s := readiness(p); s != v1.ConditionTrue {
				t.Fatalf("%s: Ready is %q", name, s)
			}
		}
		j.end()
		if err := os.RemoveAll(j.records()); err != nil {
			t.Fatal(err)
		}
		j.api.Requests()
		j.start()
		time.Sleep(3 * time.Minute)
		for name, p := range before {
			if written := j.writtenOf(p.Name); len(written) > 0 {
				t.Errorf("the API server was sent statuses of %s: %s", name, written)
			}
		}
		if n := j.calls("StartContainer"); n != 2 {
			t.Errorf("%d containers were started, want 2", n)
		}
	})
}

// A static pod that was taken over is kept running without the API server, too.
func TestTakeoverWithoutTheAPIServer(t *testing.T) {
	join(t, probedStatic, func(t *testing.T, j *joined) {
		time.Sleep(2 * time.Minute)
		j.end()
		j.api.Stop()
		if err := os.RemoveAll(j.records()); err != nil {
			t.Fatal(err)
		}
		j.start()
		time.Sleep(2 * time.Minute)
		if err := j.rt.Exit("main", 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		j.wantRuns("taken over", "web-node Running")
		if n := j.calls("StartContainer"); n != 2 {
			t.Errorf("%d containers were started, want 2", n)
		}
	})
}

// A record from before another agent ran does not overwrite what the other agent reported.
func TestOldRecordsAreNotWritten(t *testing.T) {
	join(t, probedStatic, func(t *testing.T, j *joined) {
		j.bind("a")
		time.Sleep(2 * time.Minute)
		old := t.TempDir()
		if err := os.CopyFS(old, os.DirFS(j.records())); err != nil {
			t.Fatal(err)
		}
		for _, c := range []string{"app", "main"} {
			if err := j.rt.Exit(c, 1); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Minute)
		}
		j.end()
		if err := os.RemoveAll(j.records()); err != nil {
			t.Fatal(err)
		}
		if err := os.CopyFS(j.records(), os.DirFS(old)); err != nil {
			t.Fatal(err)
		}
		j.api.Requests()
		j.start()
		time.Sleep(3 * time.Minute)
		for _, name := range []string{"a", "web-node"} {
			if written := j.writtenOf(name); len(written) > 0 {
				t.Errorf("the API server was sent statuses of %s: %s", name, written)
			}
		}
	})
}

func readiness(p *v1.Pod) v1.ConditionStatus {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodReady {
			return c.Status
		}
	}
	return ""
}
