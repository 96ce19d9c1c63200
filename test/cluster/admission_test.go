//go:build cluster

package cluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/berthd/berth/test/env"
)

const (
	// admissionVariable set to "all" makes TestAdmissionIsThatOfAKubelet compare every case and play
	// every scene. Without it, one of caseStep cases counts, and one of sceneStep scenes.
	admissionVariable   = "BERTH_ADMISSION"
	caseStep, sceneStep = 4, 8
	// admissionCases are the cases of package admit.
	admissionCases = "agent/node/admit/testdata/cases.yaml"
	// admitted is the answer to a pod whose containers run.
	admitted = "it runs"
)

// scene is a full node to which a critical pod comes. A pod is written as in "b 500 100Mi": its QoS
// class (g, b or e, for BestEffort), its request of cpu in parts of 2000 of what the node has, and
// its request of memory.
type scene struct {
	name string
	// there are the pods of the node by their names. The word "critical" gives a pod the class
	// system-cluster-critical.
	there map[string]string
	// comes has the class system-node-critical.
	comes string
}

var scenes = []scene{
	{
		name: "the one that has enough", there: map[string]string{"x": "b 500 50Mi", "y": "b 1200 50Mi"}, comes: "b 600 50Mi",
	},
	{
		name:  "Guaranteed pods are spared",
		there: map[string]string{"g": "g 800 50Mi", "a": "b 400 50Mi", "b": "b 500 50Mi"}, comes: "b 1000 50Mi",
	},
	{
		name:  "one big one, not many small ones",
		there: map[string]string{"a": "b 400 50Mi", "b": "b 500 50Mi", "c": "b 900 50Mi"}, comes: "b 1000 50Mi",
	},
	{
		name:  "BestEffort pods have nothing to give",
		there: map[string]string{"e": "e", "a": "b 1500 50Mi", "g": "g 300 50Mi"}, comes: "b 1000 50Mi",
	},
	{
		name: "the smaller memory of two", there: map[string]string{"a": "b 900 300Mi", "b": "b 900 200Mi"},
		comes: "b 1000 50Mi",
	},
	{
		name: "critical pods of a lower priority", there: map[string]string{"k": "b 1500 50Mi critical", "a": "b 100 50Mi"},
		comes: "b 1000 50Mi",
	},
	{
		name: "nobody has enough", there: map[string]string{"a": "b 900 50Mi", "g": "g 900 50Mi"}, comes: "b 1000000 50Mi",
	},
	{
		name:  "a Guaranteed pod, if the others have too little",
		there: map[string]string{"g": "g 1500 50Mi", "a": "b 300 50Mi"}, comes: "b 1600 50Mi",
	},
}

// TestAdmissionIsThatOfAKubelet gives the same pods to a kubelet and to berth. Both refuse the same
// pods, with the same words, and the same pods have to leave for a critical one.
func TestAdmissionIsThatOfAKubelet(t *testing.T) {
	c := Start(t, Options{})
	berth, err := c.NewAgent(t.Context(),
		c.NodeOptions(t, env.NodeName, env.AgentOptions{Kubelet: KubeletOptions(c.Env)}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.checkRefusals(t) })
	kubelet := c.NewKubelet(t, berth)
	account(t, c)
	cases, played := c.admissions(t), counted(admissionVariable, scenes, sceneStep)

	answers := func(start func() error) (map[string]string, []string) {
		t.Helper()
		if err := start(); err != nil {
			t.Fatal(err)
		}
		c.WaitNodeReady(t)
		c.create(t, slices.Collect(maps.Values(cases)))
		got := c.answers(t, slices.Collect(maps.Keys(cases)))
		c.clear(t)
		var left []string
		for _, s := range played {
			left = append(left, c.play(t, s))
		}
		return got, left
	}
	want, wantLeft := answers(kubelet.Start)
	if err := kubelet.Stop(); err != nil {
		t.Fatal(err)
	}
	c.Kubectl(t, "delete", "node", env.NodeName)
	got, left := answers(berth.Start)
	if differ := differences(want, got); len(differ) > 0 {
		t.Errorf("of %d answers, these differ (- kubelet, + berth):\n%s", len(want), strings.Join(differ, "\n"))
	}
	for i, s := range played {
		if left[i] != wantLeft[i] {
			t.Errorf("%s: berth says %q, a kubelet %q", s.name, left[i], wantLeft[i])
		}
	}
	t.Logf("%d answers compared, and %d scenes", len(want), len(played))
}

// counted returns the cases that count: all if a variable is "all", or every one at a multiple of
// step.
func counted[T any](variable string, list []T, step int) []T {
	if os.Getenv(variable) == "all" {
		return list
	}
	var out []T
	for i := 0; i < len(list); i += step {
		out = append(out, list[i])
	}
	return out
}

// admissions returns the pods of the cases that do not depend on the node, by the pods' names.
func (c *Cluster) admissions(t *testing.T) map[string]*v1.Pod {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(c.Checkout, admissionCases))
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Name     string `json:"name"`
		Anywhere bool   `json:"anywhere"`
		Pod      v1.Pod `json:"pod"`
	}
	if err := yaml.Unmarshal(text, &cases); err != nil {
		t.Fatalf("read %s: %v", admissionCases, err)
	}
	var list []*v1.Pod
	for i := range cases {
		pod := &cases[i].Pod
		if !cases[i].Anywhere {
			continue
		}
		pod.Name = strings.Trim(strings.Map(func(r rune) rune {
			if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
				return r
			}
			return '-'
		}, strings.ToLower(cases[i].Name)), "-")
		list = append(list, onNode(pod))
	}
	out := map[string]*v1.Pod{}
	for _, pod := range counted(admissionVariable, list, caseStep) {
		out[pod.Name] = pod
	}
	return out
}

// bound completes a pod, and binds it to the node.
func bound(pod *v1.Pod) *v1.Pod {
	pod.APIVersion, pod.Kind, pod.Spec.NodeName = "v1", "Pod", env.NodeName
	pod.Spec.TerminationGracePeriodSeconds, pod.Spec.AutomountServiceAccountToken = ptr.To(int64(1)), ptr.To(false)
	return pod
}

// onNode does that for a pod whose containers have nothing to do.
func onNode(pod *v1.Pod) *v1.Pod {
	for _, list := range [][]v1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			list[i].Image, list[i].Command = "berth.local/busybox:v1", []string{"sleep", "3600"}
		}
	}
	return bound(pod)
}

func (c *Cluster) create(t *testing.T, list []*v1.Pod) {
	t.Helper()
	var text strings.Builder
	for _, pod := range list {
		one, err := json.Marshal(pod)
		if err != nil {
			t.Fatal(err)
		}
		text.Write(one)
		text.WriteString("\n---\n")
	}
	c.Apply(t, text.String())
}

// clear deletes all pods.
func (c *Cluster) clear(t *testing.T) {
	t.Helper()
	c.Kubectl(t, "delete", "pod", "--all", "--timeout=120s")
}

// answers waits until each pod runs or has failed, and returns what the agent says to each.
func (c *Cluster) answers(t *testing.T, names []string) map[string]string {
	t.Helper()
	var out map[string]string
	c.Eventually(t, func(text string) error {
		var list v1.PodList
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			return err
		}
		out = map[string]string{}
		for i := range list.Items {
			switch s := &list.Items[i].Status; {
			case s.Phase == v1.PodFailed:
				out[list.Items[i].Name] = s.Reason + ": " + s.Message
			case len(s.ContainerStatuses) > 0 && s.ContainerStatuses[0].State.Running != nil:
				out[list.Items[i].Name] = admitted
			}
		}
		for _, name := range names {
			if out[name] == "" {
				return fmt.Errorf("there is no answer to pod %s", name)
			}
		}
		return nil
	}, "get", "pods", "-o", "json")
	return out
}

// play plays a scene, and returns the answer to the critical pod and the pods that had to leave.
func (c *Cluster) play(t *testing.T, s scene) string {
	t.Helper()
	cpu, err := resource.ParseQuantity(c.Kubectl(t, "get", "node", env.NodeName, "-o",
		"jsonpath={.status.allocatable.cpu}"))
	if err != nil {
		t.Fatal(err)
	}
	whole := cpu.MilliValue()
	var list []*v1.Pod
	var names []string
	for _, name := range slices.Sorted(maps.Keys(s.there)) {
		list, names = append(list, sized(t, name, s.there[name], whole)), append(names, name)
	}
	c.create(t, list)
	for name, answer := range c.answers(t, names) {
		if answer != admitted {
			t.Fatalf("%s: pod %s does not run: %s", s.name, name, answer)
		}
	}
	critical := sized(t, "critical", s.comes, whole)
	critical.Spec.PriorityClassName = "system-node-critical"
	c.create(t, []*v1.Pod{critical})
	var all map[string]string
	env.Eventually(t, s.name+": the pods to leave that have to", func() error {
		all = c.answers(t, append(names, critical.Name))
		used := int64(0)
		for _, pod := range append(list, critical) {
			if all[pod.Name] == admitted {
				used += pod.Spec.Containers[0].Resources.Requests.Cpu().MilliValue()
			}
		}
		if used > whole {
			return fmt.Errorf("%d thousandths of a core are in use, of %d", used, whole)
		}
		return nil
	})
	var left []string
	for _, name := range names {
		if all[name] != admitted {
			left = append(left, name+" ("+all[name]+")")
		}
	}
	c.clear(t)
	return all[critical.Name] + "; there left: " + strings.Join(left, ", ")
}

// sized returns a pod of a scene on a node with this many thousandths of a core.
func sized(t *testing.T, name, shape string, whole int64) *v1.Pod {
	t.Helper()
	fields := strings.Fields(shape)
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c"}}},
	}
	if len(fields) > 2 {
		own := &pod.Spec.Containers[0].Resources
		parts, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		text := fmt.Sprintf("{cpu: %dm, memory: %s}", parts*whole/2000, fields[2])
		if err := yaml.Unmarshal([]byte(text), &own.Requests); err != nil {
			t.Fatal(err)
		}
		if fields[0] == "g" {
			own.Limits = own.Requests
		}
	}
	if slices.Contains(fields, "critical") {
		pod.Spec.PriorityClassName = "system-cluster-critical"
	}
	return onNode(pod)
}
