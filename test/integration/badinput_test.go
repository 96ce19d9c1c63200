//go:build integration

package integration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/test/env"
	"github.com/berthd/berth/test/images"
)

// TestBadInput gives one agent every kind of wrong manifest, and then breaks what is around the
// agent. A steady pod must not be affected.
func TestBadInput(t *testing.T) {
	t.Parallel()
	e := env.Containerd(t, env.Options{})
	a := e.StartAgent(t, env.AgentOptions{})
	put(t, a, "steady", sleeper)
	a.WaitReady(t, "steady")
	before := running(podOf(t, a, "steady"))
	for _, step := range []struct {
		name string
		test func(*testing.T, *env.Env, *env.Agent)
	}{
		{"manifests", badManifests},
		{"last good", lastGoodRuns},
		{"directory", directoryLost},
		{"key", keyMissing},
		{"image", imageMissing},
		{"network", networkBroken},
		{"runtime", runtimeGone},
	} {
		t.Run(step.name, func(t *testing.T) {
			step.test(t, e, a)
			if after := running(podOf(t, a, "steady")); after != before {
				t.Errorf("the steady pod was %s and is %s", before, after)
			}
		})
	}
	removed(t, e, a, "steady")
	nothingLeft(t, e.Leaks)
}

// refused waits until the file has a validation result that the check accepts, and returns it.
func refused(t *testing.T, a *env.Agent, file string, check func(api.Manifest) error) api.Manifest {
	t.Helper()
	var found api.Manifest
	env.Eventually(t, "a result against "+file, func() error {
		list := answers[api.ManifestList](t, a, "manifests").Items
		i := slices.IndexFunc(list, func(m api.Manifest) bool { return m.File == file && !m.Accepted })
		if i < 0 {
			return fmt.Errorf("none among %+v", list)
		}
		found = list[i]
		return check(found)
	})
	return found
}

// says checks that the message of a validation result has the text, and that it has a field and a
// line where these are known.
func says(text, field string, line bool) func(api.Manifest) error {
	return func(m api.Manifest) error {
		if !strings.Contains(strings.ToLower(m.Message), text) || m.Field != field || line && m.Line == 0 {
			return fmt.Errorf("it says %q of field %q at line %d", m.Message, m.Field, m.Line)
		}
		return nil
	}
}

func badManifests(t *testing.T, _ *env.Env, a *env.Agent) {
	outside := filepath.Join(t.TempDir(), "outside.yaml")
	if err := os.WriteFile(outside, []byte(manifest("outside", sleeper)), 0o600); err != nil {
		t.Fatal(err)
	}
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c <= 'k'; c++ {
		bomb += fmt.Sprintf("%c: &%c [%s]\n", c, c,
			strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*%c,", c-1), 9), ","))
	}
	cases := []struct {
		file, text string
		check      func(api.Manifest) error
	}{
		{"malformed.yaml", "apiVersion: v1\nkind: Pod\nmetadata:\n  name: {x\n", says("", "", true)},
		{"kind.yaml", "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: x}\n", says("deployment", "kind", true)},
		{
			"invalid.yaml", manifest("invalid", "containers: [{name: Upper_Case, image: x}]"),
			says("rfc 1123", "spec.containers[0].name", true),
		},
		{
			"image.yaml", manifest("image", "containers: [{name: main}]"),
			says("required value", "spec.containers[0].image", true),
		},
		{
			"zz-duplicate.yaml", manifest("steady", strings.Replace(sleeper, "sleep", "trap", 1)),
			says("steady", "", false),
		},
		{"empty.yaml", "", says("empty", "", false)},
		{"binary.yaml", "\x7fELF\x02\x01\x01\x00\xff\xfe\x00\x00", says("", "", false)},
		{
			"huge.yaml", manifest("huge", sleeper) + strings.Repeat("#"+strings.Repeat("x", 1023)+"\n", 10<<10),
			says("10 mib", "", false),
		},
		{"bomb.yaml", bomb, says("", "", false)},
	}
	for _, c := range cases {
		a.WriteManifest(t, c.file, c.text)
	}
	if err := os.Symlink(outside, filepath.Join(a.Manifests, "out.yaml")); err != nil {
		t.Fatal(err)
	}
	temporary := []string{".temp1.yaml.swp", "temp2.yaml~", "#temp3.yaml#", ".temp4.yaml"}
	for i, file := range temporary {
		a.WriteManifest(t, file, manifest(fmt.Sprintf("temp%d", i+1), sleeper))
	}
	for _, c := range cases {
		t.Run(c.file, func(t *testing.T) {
			m := refused(t, a, filepath.Join(a.Manifests, c.file), c.check)
			waitEvent(t, a, "FailedValidation", c.file)
			if m.Message == "" {
				t.Error("the result has no message")
			}
		})
	}
	refused(t, a, filepath.Join(a.Manifests, "out.yaml"), says("leads out", "", false))
	env.Eventually(t, "the metric to count them", func() error {
		if got, want := metric(t, a, "berth_manifests_rejected"), fmt.Sprint(len(cases)+1); got != want {
			return fmt.Errorf("berth_manifests_rejected is %s, want %s", got, want)
		}
		return nil
	})
	put(t, a, "good", sleeper)
	a.WaitReady(t, "good")
	if timeline := why(t, a, "invalid"); timeline.Manifest == nil ||
		!strings.Contains(timeline.WaitsFor, "invalid.yaml") {
		t.Errorf("why says of a pod that was refused: %+v", timeline)
	}
	pods, err := a.Pods(t.Context())
	if err != nil || len(pods) != 2 {
		t.Errorf("the pods are %v\n%s", err, env.Describe(pods))
	}
	for _, c := range cases {
		a.RemoveManifest(t, c.file)
	}
	for _, file := range append(temporary, "out.yaml", "good.yaml") {
		a.RemoveManifest(t, file)
	}
	a.WaitGone(t, "good")
	env.Eventually(t, "no result against anything", func() error {
		if got := metric(t, a, "berth_manifests_rejected"); got != "0" {
			return fmt.Errorf("%s are refused", got)
		}
		return nil
	})
}

// lastGoodRuns checks that a pod runs on when its manifest becomes bad, also over restarts of the
// agent.
func lastGoodRuns(t *testing.T, e *env.Env, a *env.Agent) {
	put(t, a, "kept", sleeper)
	a.WaitReady(t, "kept")
	before := running(podOf(t, a, "kept"))
	a.WriteManifest(t, "kept.yaml", "apiVersion: v1\nkind: Pod\nmetadata:\n  name: [\n")
	file := filepath.Join(a.Manifests, "kept.yaml")
	refused(t, a, file, says("", "", true))
	for _, again := range []func() error{
		func() error { return nil }, a.Restart, func() error { a.Kill9(); return a.Start() },
	} {
		if err := again(); err != nil {
			t.Fatal(err)
		}
		a.WaitReady(t, "kept", "steady")
		refused(t, a, file, says("", "", true))
		if after := running(podOf(t, a, "kept")); after != before {
			t.Fatalf("the pod of the bad manifest was %s and is %s", before, after)
		}
	}
	put(t, a, "kept", sleeper)
	env.Eventually(t, "the manifest to be accepted", func() error {
		for _, m := range answers[api.ManifestList](t, a, "manifests").Items {
			if !m.Accepted {
				return fmt.Errorf("%s: %s", m.File, m.Message)
			}
		}
		return nil
	})
	if after := running(podOf(t, a, "kept")); after != before {
		t.Errorf("the pod of the mended manifest was %s and is %s", before, after)
	}
	removed(t, e, a, "kept")
}

// directoryLost checks that a missing manifest directory does not count as an empty one, also for
// an agent that starts.
func directoryLost(t *testing.T, e *env.Env, a *env.Agent) {
	before := running(podOf(t, a, "steady"))
	away := a.Manifests + ".away"
	if err := os.Rename(a.Manifests, away); err != nil {
		t.Fatal(err)
	}
	back := func() {
		if err := os.Rename(away, a.Manifests); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Error(err)
		}
	}
	defer back()
	for _, again := range []func() error{func() error { return nil }, func() error { a.Kill9(); return a.Start() }} {
		if err := again(); err != nil {
			t.Fatal(err)
		}
		a.WaitReady(t, "steady")
		refused(t, a, a.Manifests, says("does not exist", "", false))
		if after := running(podOf(t, a, "steady")); after != before {
			t.Errorf("without its directory the pod was %s and is %s", before, after)
		}
	}
	back()
	put(t, a, "returned", sleeper)
	a.WaitReady(t, "returned", "steady")
	removed(t, e, a, "returned")
}

// keyMissing checks that a container whose ConfigMap lacks a key, and a pod whose Secret is
// missing, wait for it and start when it is there.
func keyMissing(t *testing.T, e *env.Env, a *env.Agent) {
	const object = "apiVersion: v1\nkind: %s\nmetadata: {name: late}\nstringData: {}\ndata: %s\n"
	a.WriteManifest(t, "late.yaml",
		strings.Replace(fmt.Sprintf(object, "ConfigMap", "{other: x}"), "stringData: {}\n", "", 1))
	put(t, a, "keyed", sleeper+"    env: [{name: K, valueFrom: {configMapKeyRef: {name: late, key: wanted}}}]\n")
	put(t, a, "mounted",
		sleeper+"    volumeMounts: [{name: s, mountPath: /s}]\nvolumes: [{name: s, secret: {secretName: late}}]\n")
	waitPod(t, a, "keyed", "waiting for the key", waitingFor("CreateContainerConfigError"))
	waitPod(t, a, "mounted", "waiting for the secret", waitingFor("ContainerCreating"))
	waitEvent(t, a, "FailedMount", "mounted")
	for name, want := range map[string][2]string{"keyed": {"containers", "wanted"}, "mounted": {"volumes", "late"}} {
		env.Eventually(t, "why about "+name, func() error {
			s := why(t, a, name)
			if s.Step != want[0] || !strings.Contains(s.WaitsFor, want[1]) || s.NextRetry == nil {
				return fmt.Errorf("step %q waits for %q, next retry %v", s.Step, s.WaitsFor, s.NextRetry)
			}
			return nil
		})
	}
	put(t, a, "beside", sleeper)
	a.WaitReady(t, "beside")
	a.WriteManifest(t, "late.yaml",
		strings.Replace(fmt.Sprintf(object, "ConfigMap", "{wanted: x}"), "stringData: {}\n", "", 1))
	a.WriteManifest(t, "late2.yaml", fmt.Sprintf(object, "Secret", "{}"))
	a.WaitReady(t, "keyed", "mounted")
	for _, name := range []string{"keyed", "mounted", "beside"} {
		removed(t, e, a, name)
	}
	a.RemoveManifest(t, "late.yaml")
	a.RemoveManifest(t, "late2.yaml")
}

// imageMissing checks that a pod waits for an image that cannot be pulled, reports this, and starts
// when the image is there.
func imageMissing(t *testing.T, e *env.Env, a *env.Agent) {
	const absent = "127.0.0.1:1/absent:v1"
	put(t, a, "imageless", strings.Replace(sleeper, images.Web, absent, 1))
	put(t, a, "never", strings.Replace(sleeper, images.Web, absent+"\n    imagePullPolicy: Never", 1))
	waitPod(t, a, "imageless", "backing off", waitingFor("ImagePullBackOff"))
	waitPod(t, a, "never", "waiting", waitingFor("ErrImageNeverPull"))
	waitEvent(t, a, "Failed", "connection refused")
	// between two attempts
	env.Eventually(t, "why and images to tell of the back-off", func() error {
		s := why(t, a, "imageless")
		if s.Step != "images" || s.NextRetry == nil || !strings.Contains(s.WaitsFor, absent) {
			return fmt.Errorf("step %q waits for %q, next retry %v", s.Step, s.WaitsFor, s.NextRetry)
		}
		if pulls := answers[api.Images](t, a, "images").Pulls; len(pulls) == 0 || pulls[0].State != "BackOff" {
			return fmt.Errorf("the pulls are %+v", pulls)
		}
		return nil
	})
	put(t, a, "beside", sleeper)
	a.WaitReady(t, "beside")
	if err := e.Tag(t.Context(), images.Web, absent); err != nil {
		t.Fatal(err)
	}
	a.WaitReady(t, "imageless", "never")
	for _, name := range []string{"imageless", "never", "beside"} {
		removed(t, e, a, name)
	}
}

// networkBroken checks that without a working CNI config a new pod waits for its sandbox, and that
// a pod on the host's network starts.
func networkBroken(t *testing.T, e *env.Env, a *env.Agent) {
	confs, err := filepath.Glob(filepath.Join(e.CNIConfDir, "*"))
	if err != nil || len(confs) != 1 {
		t.Fatalf("the network's configs are %v, %v", confs, err)
	}
	good, err := os.ReadFile(confs[0])
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(confs[0], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	defer write(string(good))
	write(strings.Replace(string(good), `"type": "bridge"`, `"type": "no-such-plugin"`, 1))
	networkHas(t, e, "no-such-plugin", true)
	put(t, a, "netless", sleeper)
	waitEvent(t, a, "FailedCreatePodSandBox", "netless")
	env.Eventually(t, "why about the network", func() error {
		s := why(t, a, "netless")
		if s.Step != "sandbox" || s.NextRetry == nil || !strings.Contains(s.WaitsFor, "no-such-plugin") {
			return fmt.Errorf("step %q waits for %q, next retry %v", s.Step, s.WaitsFor, s.NextRetry)
		}
		return nil
	})
	waitPod(t, a, "netless", "pending", phase(corev1.PodPending))
	put(t, a, "onhost", "hostNetwork: true"+sleeper)
	a.WaitReady(t, "onhost")
	write(string(good))
	a.WaitReady(t, "netless")
	removed(t, e, a, "netless")
	removed(t, e, a, "onhost")
}

// runtimeGone checks that while containerd is away pods run on and the agent answers. Changes wait
// and report what they wait for, and take effect afterwards.
func runtimeGone(t *testing.T, e *env.Env, a *env.Agent) {
	put(t, a, "leaving", sleeper)
	a.WaitReady(t, "leaving")
	if err := e.StopContainerd(); err != nil {
		t.Fatal(err)
	}
	put(t, a, "coming", sleeper)
	a.RemoveManifest(t, "leaving.yaml")
	env.Eventually(t, "why about the runtime", func() error {
		s := why(t, a, "coming")
		if s.Step == "" || s.NextRetry == nil || s.LastError == nil ||
			!strings.Contains(s.WaitsFor, strings.TrimPrefix(e.Endpoint, "unix://")) {
			return fmt.Errorf("step %q waits for %q, next retry %v, error %+v", s.Step, s.WaitsFor, s.NextRetry,
				s.LastError)
		}
		return nil
	})
	if out, errOut, code := a.CLI("ps"); code != 0 || !strings.Contains(out, "steady") {
		t.Errorf("berth ps: code %d, %q, %q", code, out, errOut)
	}
	env.Eventually(t, "version to tell of the runtime", func() error {
		if out, _, _ := a.CLI("version", "-o", "json"); !strings.Contains(out, `"runtimeError": "`) {
			return fmt.Errorf("it says %s", out)
		}
		return nil
	})
	// An agent that starts without a runtime waits for the runtime.
	a.Kill9()
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, "the agent's socket", func() error { _, err := a.Pods(t.Context()); return err })
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.WaitReady(t, "coming", "steady")
	a.WaitGone(t, "leaving")
	removed(t, e, a, "coming")
}
