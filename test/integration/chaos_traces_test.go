//go:build integration

package integration

import (
	"cmp"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// fateOf matches four lines of containerd's log: the pod of a sandbox, the sandbox of a container,
// a container that containerd has killed, and a sandbox or container that a starting containerd
// gave up on. containerd kills a container if its caller ended during the container's start, or if
// the container's grace was over, as for a script that got its signal before it had set its trap.
// Such a container may have written that it started, and could not write that it ended.
var fateOf = regexp.MustCompile(`RunPodSandbox for .*[uU]id:\W*([0-9a-f-]+).* returns sandbox id ` +
	`\W*(\w+)|CreateContainer within sandbox \W*(\w+).* returns container id \W*(\w+)|` +
	`(?:StartContainer for \W*(\w+)\W* failed|Kill container \W*(\w+))|` +
	`Failed to load (?:sandbox|container)\W.*?([0-9a-f]{64})`)

// fates returns the UIDs of the pods that had a container which could not write its end, and of
// those among them that a starting containerd gave up on.
func (c *chaos) fates() (cut, lost map[string]bool) {
	// pods by sandbox, sandboxes by container
	pods, sandboxes := map[string]string{}, map[string]string{}
	cut, lost = map[string]bool{}, map[string]bool{}
	for _, line := range lines(filepath.Join(c.e.Dir, "containerd.log")) {
		switch m := fateOf.FindStringSubmatch(line); {
		case m == nil:
		case m[2] != "":
			pods[m[2]] = m[1]
		case m[4] != "":
			sandboxes[m[4]] = m[3]
		case m[7] != "":
			uid := pods[cmp.Or(sandboxes[m[7]], m[7])]
			cut[uid], lost[uid] = true, true
		default:
			cut[pods[sandboxes[m[5]+m[6]]]] = true
		}
	}
	return cut, lost
}

// forget takes the pods out of the calm ones that a starting containerd gave up on: see
// [env.Env.GaveUpOn].
func (c *chaos) forget(t *testing.T) {
	t.Helper()
	_, lost := c.fates()
	for name, was := range c.calm {
		if _, uid, _ := strings.Cut(was, " "); lost[uid[:strings.Index(uid, ":")]] {
			t.Logf("containerd gave up on a calm pod: %s", was)
			delete(c.calm, name)
		}
	}
}
