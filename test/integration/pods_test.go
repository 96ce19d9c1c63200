//go:build integration

package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/test/env"
)

// manifest returns the manifest of a pod. spec is YAML without indentation.
func manifest(name, spec string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata:\n  name: " + name + "\nspec:\n  " +
		strings.ReplaceAll(strings.TrimSpace(spec), "\n", "\n  ") + "\n"
}

// sleeper is the spec of a pod that runs until its signal, and then ends at once.
const sleeper = `
terminationGracePeriodSeconds: 5
containers:
  - name: main
    image: berth.local/web:v1
    args: [sleep]
`

// put writes a pod's manifest to the file NAME.yaml.
func put(t *testing.T, a *env.Agent, name, spec string) {
	t.Helper()
	a.WriteManifest(t, name+".yaml", manifest(name, spec))
}

// podTests are tests, by name, that share an agent and have pods of their own.
type podTests map[string]func(*testing.T, *env.Env, *env.Agent)

// onOneAgent runs the tests at the same time, as subtests.
func onOneAgent(t *testing.T, e *env.Env, a *env.Agent, tests podTests) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, e, a)
		})
	}
}

// podOf returns the agent's pod with that name in its manifest.
func podOf(t *testing.T, a *env.Agent, name string) *corev1.Pod {
	t.Helper()
	return waitPod(t, a, name, "there", func(*corev1.Pod) error { return nil })
}

// waitPod waits until the check accepts the pod with that name, and returns the pod.
func waitPod(t *testing.T, a *env.Agent, name, what string, check func(*corev1.Pod) error) *corev1.Pod {
	t.Helper()
	var found *corev1.Pod
	env.Eventually(t, "pod "+name+" to be "+what, func() error {
		pods, err := a.Pods(t.Context())
		if err != nil {
			return err
		}
		if found = env.Find(pods, name); found == nil {
			return errors.New("there is no such pod")
		}
		if err := check(found); err != nil {
			return fmt.Errorf("%w: %s", err, env.Describe([]corev1.Pod{*found}))
		}
		return nil
	})
	return found
}

// phase returns a check of a pod's phase.
func phase(want corev1.PodPhase) func(*corev1.Pod) error {
	return func(p *corev1.Pod) error {
		if p.Status.Phase != want {
			return fmt.Errorf("phase is %s, want %s", p.Status.Phase, want)
		}
		return nil
	}
}

// waitingFor returns a check that a pod's first container, or init container, waits for the reason.
func waitingFor(reason string) func(*corev1.Pod) error {
	return func(p *corev1.Pod) error {
		for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses) {
			if c.State.Waiting != nil && c.State.Waiting.Reason == reason {
				return nil
			}
		}
		return fmt.Errorf("no container waits for %s", reason)
	}
}

// statusOf returns the status of a pod's container.
func statusOf(p *corev1.Pod, container string) corev1.ContainerStatus {
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses,
		p.Status.EphemeralContainerStatuses) {
		if c.Name == container {
			return c
		}
	}
	return corev1.ContainerStatus{}
}

// removed removes a pod's manifest, waits until the pod is gone, and checks that nothing of the pod
// is left.
func removed(t *testing.T, e *env.Env, a *env.Agent, name string) {
	t.Helper()
	p := podOf(t, a, name)
	texts := []string{string(p.UID), strings.ReplaceAll(string(p.UID), "-", "_"), "/" + p.Name + "_" + p.Namespace}
	for _, s := range sandboxesOf(t, e, p) {
		texts = append(texts, s.Id)
	}
	for _, c := range slices.Concat(p.Status.InitContainerStatuses, p.Status.ContainerStatuses,
		p.Status.EphemeralContainerStatuses) {
		if _, id, ok := strings.Cut(c.ContainerID, "://"); ok {
			texts = append(texts, id)
		}
	}
	a.RemoveManifest(t, name+".yaml")
	a.WaitGone(t, name)
	nothingLeft(t, func() []string { return e.LeaksOf(texts...) })
}

// nothingLeft waits until there are no leaks.
func nothingLeft(t *testing.T, leaks func() []string) {
	t.Helper()
	env.Eventually(t, "nothing to be left", func() error {
		if left := leaks(); len(left) > 0 {
			return errors.New(strings.Join(left, "\n"))
		}
		return nil
	})
}

func sandboxesOf(t *testing.T, e *env.Env, p *corev1.Pod) []*runtimeapi.PodSandbox {
	t.Helper()
	list, err := e.Runtime().ListPodSandbox(t.Context(),
		&runtimeapi.ListPodSandboxRequest{Filter: &runtimeapi.PodSandboxFilter{
			LabelSelector: map[string]string{"io.kubernetes.pod.uid": string(p.UID)},
		}})
	if err != nil {
		t.Fatalf("list the sandboxes of %s: %v", p.Name, err)
	}
	return list.Items
}

// inside runs a command in a pod's container and returns what the command prints.
func inside(t *testing.T, a *env.Agent, name, container string, command ...string) string {
	t.Helper()
	out, errOut, code := a.CLI(append([]string{"exec", "-q", name, "-c", container, "--"}, command...)...)
	if code != 0 {
		t.Fatalf("run %v in %s of %s: code %d, %q, %q", command, container, name, code, out, errOut)
	}
	return out
}

// asked sends each request once, on a connection of its own. A client that keeps connections sends
// a request again if its server ends while it answers, and the next instance would get it, too.
var asked = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// ask sends a request to a server on a pod's address and returns the answer's body. Even if the pod
// is ready, the server may not listen yet.
func ask(t *testing.T, method string, p *corev1.Pod, path string) (string, error) {
	t.Helper()
	if p.Status.PodIP == "" {
		return "", errors.New("the pod has no address")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+p.Status.PodIP+":8080"+path, nil)
	if err != nil {
		return "", err
	}
	resp, err := asked.Do(req)
	for errors.Is(err, syscall.ECONNREFUSED) && ctx.Err() == nil {
		time.Sleep(10 * time.Millisecond)
		resp, err = asked.Do(req)
	}
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", resp.Status, body)
	}
	return string(body), err
}

// answers runs a verb with -o json and decodes what the verb prints.
func answers[T any](t *testing.T, a *env.Agent, verb ...string) T {
	t.Helper()
	var value T
	out, errOut, code := a.CLI(append(verb, "-o", "json")...)
	if code != 0 {
		t.Fatalf("berth %v: code %d, %s", verb, code, errOut)
	}
	if err := json.Unmarshal([]byte(out), &value); err != nil {
		t.Fatalf("berth %v: %v in %s", verb, err, out)
	}
	return value
}

// why returns a pod's timeline.
func why(t *testing.T, a *env.Agent, name string) api.Why {
	t.Helper()
	return answers[api.Why](t, a, "why", name)
}

// waitEvent waits for an event with that reason and with the text in its message or object.
func waitEvent(t *testing.T, a *env.Agent, reason, text string) {
	t.Helper()
	env.Eventually(t, "event "+reason+" about "+text, func() error {
		var seen []string
		for _, e := range answers[api.EventList](t, a, "events").Items {
			if e.Reason == reason && strings.Contains(e.InvolvedObject.Name+" "+e.Message, text) {
				return nil
			}
			seen = append(seen, e.Reason+" "+e.InvolvedObject.Name+": "+e.Message)
		}
		return errors.New(strings.Join(seen, "\n"))
	})
}

// metric returns the value of a metric without labels, "" if there is no such metric.
func metric(t *testing.T, a *env.Agent, name string) string {
	t.Helper()
	resp, err := a.Get(t.Context(), "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// running returns what must not change about a pod's containers while nobody changes the pod.
func running(p *corev1.Pod) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s:", p.Name, p.UID)
	for _, c := range p.Status.ContainerStatuses {
		started := "not running"
		if c.State.Running != nil {
			started = c.State.Running.StartedAt.UTC().Format(time.RFC3339)
		}
		fmt.Fprintf(&b, " %s %s restarts=%d %s", c.Name, c.ContainerID, c.RestartCount, started)
	}
	return b.String()
}

// recorder records the CRI's events in their order.
type recorder struct {
	mu     sync.Mutex
	events []*runtimeapi.ContainerEventResponse
}

// record starts to record the CRI's events, until the test ends.
func record(t *testing.T, e *env.Env) *recorder {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	stream, err := e.Runtime().GetContainerEvents(ctx, &runtimeapi.GetEventsRequest{})
	if err != nil {
		cancel()
		t.Fatalf("follow the events: %v", err)
	}
	r := &recorder{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			event, err := stream.Recv()
			if err != nil {
				return
			}
			r.mu.Lock()
			r.events = append(r.events, event)
			r.mu.Unlock()
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return r
}

// index returns the place of the event of that kind about a container or sandbox, -1 if there is
// none yet.
func (r *recorder) index(kind runtimeapi.ContainerEventType, id string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.IndexFunc(r.events, func(e *runtimeapi.ContainerEventResponse) bool {
		return e.ContainerEventType == kind && e.ContainerId == id
	})
}

// lines returns the lines of a file, or no lines if there is no such file.
func lines(path string) []string {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}

// podCgroup returns the path of a pod's cgroup below the mount of a controller, on cgroup v1 and
// v2.
func podCgroup(e *env.Env, controller string, p *corev1.Pod) string {
	class := map[corev1.PodQOSClass]string{
		corev1.PodQOSBestEffort: "besteffort", corev1.PodQOSBurstable: "burstable", corev1.PodQOSGuaranteed: "",
	}[p.Status.QOSClass]
	mount := filepath.Join("/sys/fs/cgroup", controller)
	if unified() {
		mount = "/sys/fs/cgroup"
	}
	return filepath.Join(mount, e.CgroupRoot, "kubepods", class, "pod"+string(p.UID))
}

func unified() bool {
	_, err := os.Stat("/sys/fs/cgroup/cgroup.controllers")
	return err == nil
}
