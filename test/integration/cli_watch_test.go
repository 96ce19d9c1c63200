//go:build integration

package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/berthd/berth/test/env"
)

// cliWatch checks that watches show a pod that comes, runs and goes.
func cliWatch(t *testing.T, e *env.Env, a *env.Agent) {
	pods := begin(t, a, nil, "ps", "-w")
	events := begin(t, a, nil, "events", "-w", "--for", "watched-node")
	objects := begin(t, a, nil, "ps", "-w", "-o", "json")
	pods.waitOut(t, "server-node")
	events.waitOut(t, "REASON")
	// The pod's volume comes only after the watch has shown the pod without it. A watch shows only
	// the result of changes that follow each other at once.
	put(t, a, "watched",
		sleeper+
			"    volumeMounts: [{name: late, mountPath: /late}]\nvolumes: [{name: late, configMap: {name: watched}}]\n")
	for _, want := range []string{"watched-node", "ContainerCreating"} {
		pods.waitOut(t, want)
	}
	a.WriteManifest(t, "watched-config.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: watched}\n")
	a.WaitReady(t, "watched")
	pods.waitOut(t, "Running")
	events.waitOut(t, "Started")
	removed(t, e, a, "watched")
	a.RemoveManifest(t, "watched-config.yaml")
	pods.waitOut(t, "Deleted")
	events.waitOut(t, "Killing")
	objects.waitOut(t, `"deletionTimestamp"`)
	pods.interrupt(t)
	events.interrupt(t)
	objects.interrupt(t)
	if out := events.out.String(); strings.Contains(out, "server-node") {
		t.Errorf("events of one pod are %s", out)
	}
}

// cliRefused checks that a pod reports that its newer manifest is refused, and that a pod whose
// first manifest is refused reports it, too.
func cliRefused(t *testing.T, e *env.Env, a *env.Agent) {
	put(t, a, "kept", sleeper)
	a.WaitReady(t, "kept")
	file := filepath.Join(a.Manifests, "kept.yaml")
	for _, bad := range []struct{ text, want string }{
		{manifest("kept", "containers: [{name: main}]"), "spec.containers[0].image: Required value"},
		{
			manifest("kept", "containers: [{name: main, image: i, command: sleep}]"),
			"spec.containers[0].command: must be a list, not a string",
		},
		{"kind: [", "not valid YAML"},
	} {
		a.WriteManifest(t, "kept.yaml", bad.text)
		env.Eventually(t, bad.want, func() error {
			out, errOut, _ := a.CLI("describe", "kept")
			if !strings.Contains(out, file+" is refused: ") || !strings.Contains(out, bad.want) ||
				!strings.Contains(out, "last good version") {
				return fmt.Errorf("describe says %s%s", out, errOut)
			}
			return nil
		})
		if s := why(t, a, "kept"); s.Manifest == nil || !strings.Contains(s.Manifest.Message, bad.want) {
			t.Errorf("why says %+v", s.Manifest)
		}
	}
	removed(t, e, a, "kept")
	for _, verb := range [][]string{{"logs", "wrong"}, {"describe", "default/wrong"}, {"exec", "wrong", "--", "ls"}} {
		if _, errOut, code := a.CLI(verb...); code == 0 || !strings.Contains(errOut, "wrong.yaml is refused: ") ||
			!strings.Contains(errOut, "Required value") {
			t.Errorf("berth %v: code %d, %q", verb, code, errOut)
		}
	}
}

// cliUser checks that a user who is not root gets one clear error from verbs that need root, and
// that nothing is made.
func cliUser(t *testing.T, e *env.Env, a *env.Agent) {
	dir, err := os.MkdirTemp("", "user") //nolint:usetesting // others must come to it
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	program := filepath.Join(dir, "berth")
	// Another program writes the copy. If this process wrote it, a child that starts meanwhile
	// would keep the copy open for writing, and then nobody could run it.
	if out, err := exec.CommandContext(t.Context(), "install", "-m", "755", binary(t, a),
		program).CombinedOutput(); err != nil {
		t.Fatalf("copy the program: %v, %s", err, out)
	}
	if err := os.Chmod(dir, 0o777); err != nil { //nolint:gosec // somebody else works in it
		t.Fatal(err)
	}
	root := filepath.Join(dir, "root")
	for _, args := range [][]string{
		{"agent", "--root-dir", root, "--config", filepath.Join(a.Home, "berth.yaml")},
		{"run", filepath.Join(dir, "none.yaml"), "--root-dir", root},
	} {
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Dir = dir
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := cmd.CombinedOutput()
		if err == nil || strings.Count(string(out), "\n") != 1 || !strings.Contains(string(out), "use sudo") {
			t.Errorf("berth %s as another user: %v, %s", args[0], err, out)
		}
	}
	if _, err := os.Stat(root); !os.IsNotExist(err) {
		t.Errorf("the root directory: %v", err)
	}
	cmd := exec.CommandContext(t.Context(), program, "ps", "--socket", a.Socket)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "you may not use "+a.Socket) {
		t.Errorf("berth ps as another user: %v, %s", err, out)
	}
}
