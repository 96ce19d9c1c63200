//go:build integration

package integration

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// chaosTraces is a folder of the host that every container of the pods sees. It has testapp, and
// for each pod name a lock and a trace:
//
//   - The container's processes hold the lock from the container's first moment to its last one,
//     however it ends: the kernel takes the lock from them. So a container that finds the lock
//     taken runs beside another one, of its pod or of the pod before, and writes "overlap".
//   - A container writes "start" when it has looked at the lock, and "end" when it was asked to
//     end. One that is killed writes no end.
type chaosTraces struct {
	dir string
	// settled has the number of starts of each instance when it was last seen ready.
	settled map[string]int
	// owners has the UIDs of the pods of sandboxes and containers, by their IDs.
	owners map[string]string
}

func newChaosTraces(t *testing.T, checkout string) *chaosTraces {
	t.Helper()
	c := &chaosTraces{dir: t.TempDir(), settled: map[string]int{}, owners: map[string]string{}}
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-ldflags=-s -w", "-o",
		filepath.Join(c.dir, "testapp"), "./test/images/testapp")
	build.Dir, build.Env = checkout, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if err := os.Chmod(c.dir, 0o777); err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *chaosTraces) of(name string) string { return filepath.Join(c.dir, name+".trace") }

func (c *chaosTraces) lockOf(name string) string { return filepath.Join(c.dir, name+".lock") }

// starts returns how often an instance has started.
func (c *chaosTraces) starts(name, instance string) int {
	n := 0
	for _, line := range lines(c.of(name)) {
		if line == "start "+instance {
			n++
		}
	}
	return n
}

// runs reports whether a container of the pods of a name runs. It may be asked only about pods that
// nobody stops or starts: for a moment, the question itself may have the lock.
func (c *chaosTraces) runs(t *testing.T, name string) bool {
	t.Helper()
	f, err := os.Open(c.lockOf(name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return unix.Flock(int(f.Fd()), unix.LOCK_SH|unix.LOCK_NB) != nil
}

// settle notes how often an instance that is ready has started: it starts no more. It reports
// whether the instance has started.
func (c *chaosTraces) settle(name, instance string) bool {
	n := c.starts(name, instance)
	c.settled[instance] = n
	return n > 0
}

// know notes whose the runtime's sandboxes and containers are.
func (c *chaosTraces) know(ctx context.Context, runtime runtimeapi.RuntimeServiceClient) error {
	sandboxes, err := runtime.ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{})
	if err != nil {
		return err
	}
	containers, err := runtime.ListContainers(ctx, &runtimeapi.ListContainersRequest{})
	if err != nil {
		return err
	}
	byID := map[string]string{}
	for _, s := range sandboxes.Items {
		byID[s.Id] = s.Metadata.Uid
		c.owners[s.Id] = s.Metadata.Uid
	}
	for _, ctr := range containers.Containers {
		c.owners[ctr.Id] = byID[ctr.PodSandboxId]
	}
	return nil
}

// gaveUp matches the lines of containerd's log about a sandbox, a container or a shim that a
// starting containerd gave up on, as it does on a machine that is short of CPU.
var gaveUp = regexp.MustCompile(`(?:Failed to load (?:sandbox|container)|failed to load shim)\W.*?([0-9a-f]{64})`)

// lost returns the UIDs of the pods of which a starting containerd gave up on something. No agent
// can keep their containers: containerd has killed them, or lists them no more.
func (c *chaosTraces) lost(containerdLog string) map[string]bool {
	lost := map[string]bool{}
	for _, line := range lines(containerdLog) {
		if m := gaveUp.FindStringSubmatch(line); m != nil {
			lost[c.owners[m[1]]] = true
		}
	}
	delete(lost, "")
	return lost
}

// check reads the traces: never do two containers of a pod run at the same time, nor one of a pod
// and one of its predecessor; none starts again that has ended because it was asked to, or that was
// ready.
func (c *chaosTraces) check(t *testing.T, lost map[string]bool) {
	t.Helper()
	files, err := filepath.Glob(c.of("*"))
	if err != nil || len(files) < chaosPods {
		t.Fatalf("traces %v, %v", files, err)
	}
	var starts, kills int
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".trace")
		current := "" // the instance that has started and not ended; it may have been killed
		ended, started := map[string]bool{}, map[string]int{}
		for _, line := range lines(f) {
			what, instance, _ := strings.Cut(line, " ")
			switch {
			case what == "start" && ended[instance]:
				t.Errorf("%s: %s after its end", name, line)
			case what == "start":
				if current != "" {
					kills++
				}
				current = instance
				started[instance]++
				starts++
			case what == "end" && current == instance:
				current, ended[instance] = "", true
			default: // an overlap, or an end of what does not run
				t.Errorf("%s: %s (%q runs)", name, line, current)
			}
		}
		for instance, n := range started {
			_, uid, _ := strings.Cut(instance, " ")
			if settled := c.settled[instance]; settled > 0 && n > settled && !lost[uid] {
				t.Errorf("%s: %s was ready after %d starts, and has started %d times", name, instance, settled, n)
			}
		}
		if strings.HasPrefix(name, "calm-") && len(started) != 1 {
			t.Errorf("%s has had %d instances", name, len(started))
		}
	}
	t.Logf("%d containers have started, %d of them were killed before another one started", starts, kills)
}
