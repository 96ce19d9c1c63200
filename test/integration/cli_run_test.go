//go:build integration

package integration

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/test/env"
	"github.com/berthd/berth/test/images"
)

// cliRun runs a pod in the foreground, beside an agent whose pods must not be affected.
func cliRun(t *testing.T, e *env.Env, a *env.Agent) {
	before := running(podOf(t, a, "server"))
	root := filepath.Join(e.Dir, "run")
	if e.Native { // a native run has images of its own
		for _, name := range []string{images.Busybox, images.Pause} {
			link := filepath.Join(a.Home, "images", filepath.Base(name)+".tar")
			if err := os.Symlink(archiveOf(t, e, name), link); err != nil {
				t.Fatal(err)
			}
		}
	}
	job := filepath.Join(t.TempDir(), "job.yaml")
	run := func(spec string) (string, int) {
		t.Helper()
		if err := os.WriteFile(job, []byte(manifest("job", spec)), 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		cmd := exec.CommandContext(ctx, binary(t, a), "run", job, "--once", "--config",
			filepath.Join(a.Home, "berth.yaml"), "--root-dir", root)
		var out, errOut bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errOut
		_ = cmd.Run()
		t.Logf("berth run: %q", errOut.String())
		return out.String(), cmd.ProcessState.ExitCode()
	}
	for _, want := range []int{0, 9} {
		out, code := run(fmt.Sprintf("containers: [{name: main, image: berth.local/busybox:v1, command: [sh, -c, "+
			"'echo ran; exit %d']}]", want))
		if code != want || !strings.Contains(out, "ran\n") {
			t.Errorf("a pod that ends with %d: code %d, %q", want, code, out)
		}
	}
	const program = "containers: [{name: main, image: berth.local/busybox:v1, command: "
	for spec, want := range map[string]int{
		"containers: [{name: main}]":                                   125,
		program + "[no-such-program]}]":                                127,
		program + "[/etc]}]":                                           126,
		"restartPolicy: OnFailure\n" + program + "[no-such-program]}]": 127,
	} {
		if _, code := run(spec); code != want {
			t.Errorf("%s: code %d, want %d", spec, code, want)
		}
	}
	if _, err := os.Stat(root); !os.IsNotExist(err) {
		t.Errorf("its folder is left: %v", err)
	}
	nothingLeft(t, func() []string { return e.LeaksOf("job-", "berth-run") })
	if after := running(podOf(t, a, "server")); after != before {
		t.Errorf("berth run changed the agent's pod from %s to %s", before, after)
	}
}
