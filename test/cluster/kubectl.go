package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/test/env"
)

const (
	// kubectlTimeout bounds a command if the test does not bound it.
	kubectlTimeout = 4 * time.Minute
	// eventually bounds what may take long on a busy machine. Nothing depends on its length.
	eventually = 8 * time.Minute
)

// Kubectl runs kubectl as the administrator and returns what it printed. The test fails if kubectl
// does not succeed within four minutes.
func (c *Cluster) Kubectl(t testing.TB, args ...string) string {
	t.Helper()
	return c.kubectl(t, "", args...)
}

// Apply applies manifests, given as text.
func (c *Cluster) Apply(t testing.TB, manifests string) {
	t.Helper()
	c.kubectl(t, manifests, "apply", "-f", "-")
}

func (c *Cluster) kubectl(t testing.TB, stdin string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), kubectlTimeout)
	defer cancel()
	out, errOut, err := c.TryKubectl(ctx, stdin, args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s%s", strings.Join(args, " "), err, out, errOut)
	}
	return out
}

// TryKubectl runs kubectl as the administrator, with an input, and returns what it printed. The
// error is an *exec.ExitError if the exit code is not 0.
func (c *Cluster) TryKubectl(ctx context.Context, stdin string, args ...string) (stdout, stderr string, err error) {
	cmd := c.KubectlCommand(ctx, args...)
	var out, errOut bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errOut
	if err = c.In(cmd.Start); err == nil {
		err = cmd.Wait()
	}
	return out.String(), errOut.String(), err
}

// KubectlCommand prepares a kubectl as the administrator, to be started in the cluster's network
// with c.In(cmd.Start). It keeps its caches in the cluster's folder.
func (c *Cluster) KubectlCommand(ctx context.Context, args ...string) *exec.Cmd {
	full := append([]string{"--kubeconfig", c.Admin, "--cache-dir", filepath.Join(c.Folder, "kubectl-cache")}, args...)
	cmd := exec.CommandContext(ctx, c.programs["kubectl"], full...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=" + c.Folder, "KUBECTL_KUBERC=false", "TERM=xterm"}
	return cmd
}

// ExitCode returns the exit code in an error of [Cluster.TryKubectl]: 0 for nil, -1 if the command
// could not be run.
func ExitCode(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	}
	return -1
}

// Eventually runs kubectl until the condition accepts its output, for at most three minutes.
func (c *Cluster) Eventually(t testing.TB, holds func(out string) error, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), eventually)
	defer cancel()
	last := ""
	for pace := env.NewPace(); ; {
		out, errOut, err := c.TryKubectl(ctx, "", args...)
		if err == nil {
			err = holds(out)
		}
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("kubectl %s: %s", strings.Join(args, " "), last)
		}
		last = fmt.Sprintf("%v\n%s%s", err, out, errOut)
		select {
		case <-ctx.Done():
		case <-time.After(pace.Pause()):
		}
	}
}

// Contains is a condition for [Cluster.Eventually]: every text is in the output.
func Contains(texts ...string) func(out string) error {
	return func(out string) error {
		for _, text := range texts {
			if !strings.Contains(out, text) {
				return fmt.Errorf("%q is not in it", text)
			}
		}
		return nil
	}
}
