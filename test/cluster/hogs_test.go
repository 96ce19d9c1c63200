//go:build cluster

package cluster

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/berthd/berth/test/env"
)

const (
	// hogsVariable set to "all" makes TestHogsAreTreatedAsByAKubelet play all pods that misbehave, and
	// not one of hogStep.
	hogsVariable = "BERTH_HOGS"
	hogStep      = 3
)

// fate is what becomes of a pod that misbehaves.
type fate struct {
	// words are the message of the event about its eviction, without amounts; empty if it ended by
	// itself. (A kubelet's status of an evicted pod that exits with 0 has them or not.)
	words string
	// ended are the pods that have ended.
	ended []string
	// crossed and created are the times from its crossing of the threshold, and from its creation,
	// to its end.
	crossed, created time.Duration
}

// TestHogsAreTreatedAsByAKubelet has the same pods misbehave beside ten others, under a kubelet and
// under berth. The same pod has to leave, with the same words, and no other one restarts or leaves.
func TestHogsAreTreatedAsByAKubelet(t *testing.T) {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		t.Skip("the working set of all pods includes what they write to files, in other amounts than under cgroup v1")
	}
	c := Start(t, Options{})
	berth, err := c.NewAgent(t.Context(), c.NodeOptions(t, env.NodeName,
		env.AgentOptions{Kubelet: kubeletOptions(c.Env) + env.HogOptions(t)}))
	if err != nil {
		t.Fatal(err)
	}
	c.SmallDisk(t, berth)
	kubelet := c.NewKubelet(t, berth)
	account(t, c)
	played := counted(hogsVariable, env.Hogs, hogStep)
	fates := func(start func() error) map[string]fate {
		t.Helper()
		if err := start(); err != nil {
			t.Fatal(err)
		}
		c.WaitNodeReady(t)
		began := c.bystanders(t)
		out := map[string]fate{}
		for _, hog := range played {
			out[hog.Name] = c.misbehaves(t, berth, hog)
		}
		if now := c.containers(t); !maps.Equal(now, began) {
			t.Errorf("the other pods' containers are %v, and were %v", now, began)
		}
		c.clear(t)
		return out
	}
	theirs := fates(kubelet.Start)
	if err := kubelet.Stop(); err != nil {
		t.Fatal(err)
	}
	c.Kubectl(t, "delete", "node", env.NodeName)
	ours := fates(berth.Start)
	for _, hog := range played {
		own, kubelets := ours[hog.Name], theirs[hog.Name]
		t.Logf("%s: %s after its creation, %s after it crossed the threshold (kubelet: %s, %s): %s", hog.Name,
			own.created, own.crossed, kubelets.created, kubelets.crossed, own.words)
		if own.words != kubelets.words {
			t.Errorf("%s: berth says %q, a kubelet %q", hog.Name, own.words, kubelets.words)
		}
		if !slices.Equal(own.ended, []string{hog.Name}) {
			t.Errorf("%s: berth ended %q, a kubelet %q", hog.Name, own.ended, kubelets.ended)
		}
	}
}

// bystanders makes pods that run well, and returns their containers.
func (c *Cluster) bystanders(t *testing.T) map[string]string {
	t.Helper()
	var list []*v1.Pod
	var names []string
	for i := range env.Bystanders {
		names = append(names, "bystander-"+strconv.Itoa(i))
		list = append(list, specified(t, names[i], env.BystanderSpec))
	}
	c.create(t, list)
	for name, answer := range c.answers(t, names) {
		if answer != admitted {
			t.Fatalf("pod %s does not run: %s", name, answer)
		}
	}
	return c.containers(t)
}

// specified returns a pod of the node with a spec in YAML.
func specified(t *testing.T, name, spec string) *v1.Pod {
	t.Helper()
	pod := &v1.Pod{}
	pod.Name = name
	if err := yaml.Unmarshal([]byte(spec), &pod.Spec); err != nil {
		t.Fatalf("read the spec of pod %s: %v", name, err)
	}
	return bound(pod)
}

// misbehaves creates a pod that misbehaves, and returns what became of it when the node lacks
// nothing any more. Then the pod is deleted.
func (c *Cluster) misbehaves(t *testing.T, a *env.Agent, hog env.Hog) fate {
	t.Helper()
	crossed, stop := make(chan time.Time, 1), make(chan struct{})
	defer close(stop)
	go func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				if over(a, c.Env, hog) {
					crossed <- time.Now()
					return
				}
			}
		}
	}()
	began := time.Now()
	c.create(t, []*v1.Pod{specified(t, hog.Name, hog.Spec)})
	var out fate
	c.Eventually(t, func(text string) error {
		var list v1.PodList
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			return err
		}
		out.ended = nil
		for i := range list.Items {
			if p := list.Items[i].Status.Phase; p == v1.PodFailed || p == v1.PodSucceeded {
				out.ended = append(out.ended, list.Items[i].Name)
			}
		}
		if !slices.Contains(out.ended, hog.Name) {
			return fmt.Errorf("%q have ended", out.ended)
		}
		return nil
	}, "get", "pods", "-o", "json")
	ended := time.Now()
	out.created = ended.Sub(began)
	if hog.Message != "" {
		c.Eventually(t, func(message string) error {
			out.words = amountText.ReplaceAllString(message, "${1}…")
			if !strings.HasPrefix(message, hog.Message) {
				return fmt.Errorf("it was evicted with %q", message)
			}
			return nil
		}, "get", "events", "--field-selector", "reason=Evicted,involvedObject.name="+hog.Name, "-o",
			"jsonpath={.items[0].message}")
	}
	select {
	case at := <-crossed:
		out.crossed = ended.Sub(at)
	default: // it ended by itself
	}
	c.Eventually(t, func(conditions string) error {
		if strings.Contains(conditions, "Pressure=True") {
			return fmt.Errorf("the node has %s", conditions)
		}
		return nil
	}, "get", "node", env.NodeName, "-o", `jsonpath={range .status.conditions[*]}{.type}={.status} {end}`)
	c.Kubectl(t, "delete", "pod", hog.Name, "--timeout=120s")
	c.Kubectl(t, "delete", "events", "--all")
	return out
}

var amountText = regexp.MustCompile(`(available: |using )\d+\w*`)

// over reports whether a pod that misbehaves has crossed its threshold.
func over(a *env.Agent, e *env.Env, hog env.Hog) bool {
	var disk unix.Statfs_t
	switch hog.Signal {
	case "allocatableMemory.available":
		text, err := os.ReadFile(filepath.Join("/sys/fs/cgroup/memory", e.CgroupRoot, "kubepods/memory.usage_in_bytes"))
		if err != nil {
			return false
		}
		used, err := strconv.Atoi(strings.TrimSpace(string(text)))
		return err == nil && used > 500<<20
	case "nodefs.available":
		return unix.Statfs(a.RootDir, &disk) == nil && disk.Bavail*uint64(disk.Bsize) < 60<<20
	case "nodefs.inodesFree":
		return unix.Statfs(a.RootDir, &disk) == nil && disk.Ffree < 2000
	case "ephemeralpodfs.limit":
		size := int64(0)
		_ = filepath.WalkDir(a.LogsDir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && strings.Contains(path, hog.Name) {
				if info, err := d.Info(); err == nil {
					size += info.Size()
				}
			}
			return nil
		})
		return size > 8<<20
	}
	return false
}

// containers returns the containers of all pods with their restart counts, by the pods' names.
func (c *Cluster) containers(t *testing.T) map[string]string {
	t.Helper()
	var list v1.PodList
	if err := json.Unmarshal([]byte(c.Kubectl(t, "get", "pods", "-o", "json")), &list); err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for i := range list.Items {
		for _, s := range list.Items[i].Status.ContainerStatuses {
			out[list.Items[i].Name] = fmt.Sprintf("%s, %d restarts", s.ContainerID, s.RestartCount)
		}
	}
	return out
}
