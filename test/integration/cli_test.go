//go:build integration

package integration

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/berthd/berth/client/api"
	"github.com/berthd/berth/test/env"
)

// TestCLI uses every verb on one agent with three pods: a server, a pod that restarts, and a pod
// that has ended.
func TestCLI(t *testing.T) {
	t.Parallel()
	e := env.Containerd(t, env.Options{})
	a := e.StartAgent(t, env.AgentOptions{})
	put(t, a, "server", `
terminationGracePeriodSeconds: 1
containers:
  - name: web
    image: berth.local/web:v1
    args: [serve, --stop-code=3]
  - name: shell
    image: berth.local/busybox:v1
    stdin: true
    command: [sh, -c, 'trap "exit 0" TERM; while true; do read line && echo "heard $line" || sleep 1; done']
`)
	put(t, a, "lines", `
restartPolicy: Never
containers:
  - name: main
    image: berth.local/web:v1
    args: [log, "10"]
`)
	a.WriteManifest(t, "wrong.yaml", manifest("wrong", "containers: [{name: main}]"))
	a.WaitReady(t, "server")
	// the next tests need the server to listen
	if _, err := ask(t, "GET", podOf(t, a, "server"), "/healthz"); err != nil {
		t.Fatal(err)
	}
	waitPod(t, a, "lines", "at its end", phase(corev1.PodSucceeded))
	for name, test := range (podTests{
		"ps": cliPs, "describe": cliDescribe, "logs": cliLogs, "exec": cliExec, "attach": cliAttach,
		"port-forward": cliPortForward,
		"events":       cliEvents, "why": cliWhy, "manifests": cliManifests, "validate": cliValidate,
		"images":  cliImages,
		"version": cliVersion,
		"errors":  cliErrors, "endpoints": endpointsAnswer, "watch": cliWatch, "refused": cliRefused, "user": cliUser,
		"terminal":  cliTerminal,
		"interrupt": cliInterrupt, "websocket": cliWebSocket, "cp": cliCopies,
	}) {
		t.Run(name, func(t *testing.T) { test(t, e, a) })
	}
	t.Run("kill under logs", func(t *testing.T) { cliFollowsOverKills(t, e, a) })
	t.Run("kill under exec", func(t *testing.T) { cliExecOverKill(t, e, a) })
	t.Run("restarts", func(t *testing.T) { cliRestarts(t, a) })
	t.Run("run", func(t *testing.T) { cliRun(t, e, a) })
	removed(t, e, a, "server")
	removed(t, e, a, "lines")
	nothingLeft(t, e.Leaks)
}

// prints runs a verb that must succeed, and checks that the verb prints every text.
func prints(t *testing.T, a *env.Agent, verb []string, want ...string) string {
	t.Helper()
	out, errOut, code := a.CLI(verb...)
	if code != 0 {
		t.Errorf("berth %v: code %d, %q", verb, code, errOut)
	}
	for _, text := range want {
		if !strings.Contains(out, text) {
			t.Errorf("berth %v prints no %q:\n%s", verb, text, out)
		}
	}
	return out
}

// inYAML runs a verb with -o yaml and decodes what the verb prints.
func inYAML[T any](t *testing.T, a *env.Agent, verb ...string) T {
	t.Helper()
	var value T
	out := prints(t, a, append(verb, "-o", "yaml"))
	if err := yaml.Unmarshal([]byte(out), &value); err != nil {
		t.Errorf("berth %v -o yaml: %v in %s", verb, err, out)
	}
	return value
}

func cliPs(t *testing.T, _ *env.Env, a *env.Agent) {
	prints(t, a, []string{"ps"}, "NAME", "READY", "STATUS", "RESTARTS", "AGE", "server-node", "2/2", "Running",
		"lines-node", "Completed")
	p := podOf(t, a, "server")
	prints(t, a, []string{"ps", "-o", "wide"}, "IP", p.Status.PodIP)
	if out := prints(t, a, []string{"ps", "-o", "name"}); !strings.Contains(out, "pod/server-node\n") {
		t.Errorf("names: %q", out)
	}
	if list := answers[corev1.PodList](t, a, "ps"); len(list.Items) != 2 || list.Items[0].Kind != "Pod" {
		t.Errorf("-o json has %d pods", len(list.Items))
	}
	if one := inYAML[corev1.Pod](t, a, "ps", "server"); one.UID != p.UID || one.Status.PodIP != p.Status.PodIP {
		t.Errorf("one pod in YAML is %s %s", one.Name, one.UID)
	}
	if out := prints(t, a, []string{"ps", "-n", "elsewhere"}); strings.Contains(out, "server") {
		t.Errorf("another namespace has %q", out)
	}
}

func cliDescribe(t *testing.T, _ *env.Env, a *env.Agent) {
	prints(t, a, []string{"describe", "default/server"}, "server-node", "Containers:", "web", "berth.local/web:v1",
		"Running", "Events:", "Started")
	prints(t, a, []string{"describe", "lines"}, "Succeeded", "Completed")
}

func cliLogs(t *testing.T, _ *env.Env, a *env.Agent) {
	var all strings.Builder
	for i := 1; i <= 10; i++ {
		fmt.Fprintf(&all, "line %d\n", i)
	}
	got := strings.Split(strings.TrimSpace(prints(t, a, []string{"logs", "lines"})), "\n")
	slices.Sort(got) // two streams have no order
	want := strings.Split(strings.TrimSpace(all.String()), "\n")
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("the log is %q", got)
	}
	if out := prints(t, a, []string{"logs", "lines", "--tail", "3"}); strings.Count(out, "\n") != 3 {
		t.Errorf("the last 3 lines are %q", out)
	}
	if out := prints(t, a, []string{"logs", "lines", "--limit-bytes", "8"}); len(out) > 8 {
		t.Errorf("8 bytes are %q", out)
	}
	out := prints(t, a, []string{"logs", "lines", "--timestamps", "--tail", "1"})
	if stamp, _, _ := strings.Cut(out, " "); stamp == "" {
		t.Error("no line")
	} else if _, err := time.Parse(time.RFC3339Nano, stamp); err != nil {
		t.Errorf("the time before a line: %v", err)
	}
	env.Eventually(t, "the server's first line", func() error {
		if out, errOut, code := a.CLI("logs", "server", "--all-containers", "--prefix"); code != 0 ||
			!strings.Contains(out, "[pod/server-node/web] serving") {
			return fmt.Errorf("code %d, %q, %q", code, out, errOut)
		}
		return nil
	})
	// Following ends with the container, which has already ended here.
	prints(t, a, []string{"logs", "-f", "lines"}, "line 10")
	// A log that grows is followed while it grows.
	f := begin(t, a, nil, "logs", "-f", "server", "-c", "web", "--tail", "1")
	f.waitOut(t, "\n")
	if _, err := ask(t, "GET", podOf(t, a, "server"), "/log?text=followed&n=2"); err != nil {
		t.Fatal(err)
	}
	f.waitOut(t, "followed\nfollowed\n")
	f.interrupt(t)
}

func cliExec(t *testing.T, _ *env.Env, a *env.Agent) {
	for _, code := range []int{0, 7} {
		out, errOut, got := a.CLI("exec", "server", "-c", "shell", "--", "sh", "-c",
			fmt.Sprintf("echo out; echo err >&2; exit %d", code))
		if got != code || out != "out\n" || !strings.HasPrefix(errOut, "err\n") {
			t.Errorf("exec: code %d, want %d, %q, %q", got, code, out, errOut)
		}
	}
	x := begin(t, a, strings.NewReader("some\ninput\n"), "exec", "-i", "server", "-c", "shell", "--", "wc", "-l")
	if code := x.wait(t); code != 0 || strings.TrimSpace(x.out.String()) != "2" {
		t.Errorf("exec with input: code %d, %q, %q", code, x.out.String(), x.errOut.String())
	}
	if _, errOut, code := a.CLI("exec", "server", "-c", "shell", "--", "no-such-program"); code == 0 ||
		!strings.Contains(errOut, "no-such-program") {
		t.Errorf("exec of what is not there: code %d, %q", code, errOut)
	}
	if _, errOut, code := a.CLI("exec", "server"); code == 0 || !strings.Contains(errOut, "no command") {
		t.Errorf("exec without a command: code %d, %q", code, errOut)
	}
}

func cliAttach(t *testing.T, _ *env.Env, a *env.Agent) {
	in, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	defer in.Close()
	x := begin(t, a, in, "attach", "-i", "server", "-c", "shell")
	env.Eventually(t, "an echo", func() error {
		if _, err := io.WriteString(w, "hello\n"); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(x.out.String(), "heard hello\n") {
			return fmt.Errorf("it prints %q, %q", x.out.String(), x.errOut.String())
		}
		return nil
	})
	x.interrupt(t)
}

func cliPortForward(t *testing.T, _ *env.Env, a *env.Agent) {
	x, port := forward(t, a, "server", "8080")
	for range 3 {
		if body := through(t, port); body != "hello from the image\n" {
			t.Errorf("through the port: %q", body)
		}
	}
	x.interrupt(t)
	closedPort(t, a)
}

// forward begins to forward a port of a pod, and returns the verb and the local port.
func forward(t *testing.T, a *env.Agent, pod, port string) (x *command, local string) {
	t.Helper()
	x = begin(t, a, nil, "port-forward", pod, ":"+port)
	env.Eventually(t, "the local port", func() error {
		_, rest, ok := strings.Cut(x.out.String(), "Forwarding from 127.0.0.1:")
		if local, _, _ = strings.Cut(rest, " "); !ok || local == "" {
			return fmt.Errorf("it prints %q, %q", x.out.String(), x.errOut.String())
		}
		return nil
	})
	return x, local
}

// through returns what a forwarded port answers over HTTP.
func through(t *testing.T, port string) string {
	t.Helper()
	client := http.Client{Timeout: 10 * time.Minute} // only a forwarding that does not work takes as long
	resp, err := client.Get("http://" + net.JoinHostPort("127.0.0.1", port) + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Errorf("through the port: %v", err)
	}
	return string(body)
}

// closedPort checks that a connection to a port on which nobody listens ends the forwarding, as
// kubectl's does, and that errors are plain text and not lines of a log.
func closedPort(t *testing.T, a *env.Agent) {
	t.Helper()
	x, port := forward(t, a, "server", "9")
	conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if code := x.wait(t); code != 1 || !strings.Contains(x.errOut.String(), "connection refused") ||
		!strings.HasSuffix(x.errOut.String(), "Error: lost connection to pod\n") {
		t.Errorf("code %d, %q", code, x.errOut.String())
	}
	for line := range strings.Lines(x.errOut.String()) {
		if !strings.HasPrefix(line, "Error: ") {
			t.Errorf("it says %q", line)
		}
	}
}

func cliEvents(t *testing.T, _ *env.Env, a *env.Agent) {
	prints(t, a, []string{"events"}, "REASON", "Started", "server-node")
	out := prints(t, a, []string{"events", "--for", "lines"}, "lines")
	if strings.Contains(out, "server-node") {
		t.Errorf("events of one pod: %s", out)
	}
	if list := inYAML[api.EventList](t, a, "events"); len(list.Items) == 0 {
		t.Error("no events in YAML")
	}
	waitEvent(t, a, "Started", "server-node")
}

func cliWhy(t *testing.T, _ *env.Env, a *env.Agent) {
	prints(t, a, []string{"why", "server"}, "server-node", "sandbox", "containers")
	s := why(t, a, "server")
	if s.Status != "Running" || s.WaitsFor != "" || s.Phase != corev1.PodRunning || s.WorkerPhase != "Running" ||
		len(s.Steps) == 0 {
		t.Errorf("why of a pod that runs: %+v", s)
	}
	if s := inYAML[api.Why](t, a, "why", "wrong"); s.Manifest == nil || s.Manifest.Field != "spec.containers[0].image" {
		t.Errorf("why of a pod that was refused: %+v", s)
	}
}

func cliManifests(t *testing.T, _ *env.Env, a *env.Agent) {
	prints(t, a, []string{"manifests"}, "server.yaml", "wrong.yaml", "spec.containers[0].image")
	prints(t, a, []string{"manifests", "-o", "wide"}, "server.yaml")
	// other manifests have just been removed
	env.Eventually(t, "the three manifests in YAML", func() error {
		if list := inYAML[api.ManifestList](t, a, "manifests"); len(list.Items) != 3 {
			return fmt.Errorf("they are %+v", list)
		}
		return nil
	})
}

func cliValidate(t *testing.T, _ *env.Env, a *env.Agent) {
	validate := func(args ...string) (string, int) {
		cmd := exec.Command(binary(t, a), append([]string{"validate"}, args...)...)
		out, err := cmd.CombinedOutput()
		if err != nil && cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return string(out), cmd.ProcessState.ExitCode()
	}
	if out, code := validate(filepath.Join(a.Manifests, "server.yaml")); code != 0 {
		t.Errorf("a good manifest: code %d, %s", code, out)
	}
	out, code := validate(a.Manifests)
	if code != 1 || !strings.Contains(out, "wrong.yaml") || !strings.Contains(out, "spec.containers[0].image") {
		t.Errorf("a folder with a bad manifest: code %d, %s", code, out)
	}
	if out, code := validate("/nonexistent.yaml", "-o", "json"); code != 1 || !strings.Contains(out, "nonexistent") {
		t.Errorf("a manifest that is not there: code %d, %s", code, out)
	}
}

func cliImages(t *testing.T, _ *env.Env, a *env.Agent) {
	prints(t, a, []string{"images"}, "berth.local/web", "berth.local/busybox")
	prints(t, a, []string{"images", "-o", "wide"}, "berth.local/web")
	list := inYAML[api.Images](t, a, "images")
	if !slices.ContainsFunc(list.Items,
		func(i api.Image) bool { return slices.Contains(i.Tags, "berth.local/web:v1") && i.Size > 0 }) {
		t.Errorf("images in YAML: %+v", list)
	}
}

func cliVersion(t *testing.T, e *env.Env, a *env.Agent) {
	runtime := "containerd"
	if e.Native {
		runtime = "berth"
	}
	prints(t, a, []string{"version"}, "Runtime:  "+runtime+" ")
	if v := answers[map[string]any](t, a, "version"); len(v) == 0 {
		t.Error("version in JSON is empty")
	}
	prints(t, a, []string{"version", "--client"})
}

func cliErrors(t *testing.T, e *env.Env, a *env.Agent) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"logs", "absent"}, "default/server-node"},
		{[]string{"describe", "absent"}, "absent"},
		{[]string{"why", "absent"}, "absent"},
		{[]string{"logs", "server", "-c", "absent"}, "web, shell"},
		{[]string{"logs", "-p", "lines"}, "previous"},
		{[]string{"ps", "-o", "xml"}, "json"},
		{[]string{"port-forward", "server", "nonsense"}, "does not have a named port \"nonsense\""},
		{[]string{"logs", "-l", "app in ("}, "-l"},
		{[]string{"attach", "lines"}, "lines"},
	} {
		out, errOut, code := a.CLI(c.args...)
		if code == 0 || !strings.Contains(errOut, c.want) || out != "" {
			t.Errorf("berth %v: code %d, %q, %q; the error must have %q", c.args, code, out, errOut, c.want)
		}
	}
	nowhere := *a
	nowhere.Socket = filepath.Join(e.Dir, "nobody.sock")
	for _, verb := range [][]string{
		{"ps"}, {"logs", "server"}, {"why", "server"}, {"images"}, {"manifests"}, {"events"},
	} {
		_, errOut, code := nowhere.CLI(verb...)
		if code == 0 || !strings.Contains(errOut, "nobody.sock") || !strings.Contains(errOut, "agent") {
			t.Errorf("berth %v without an agent: code %d, %q", verb, code, errOut)
		}
	}
}

// endpointsAnswer checks that the socket has the kubelet's endpoints.
func endpointsAnswer(t *testing.T, _ *env.Env, a *env.Agent) {
	for path, want := range map[string]string{
		"/healthz": "ok", "/pods": "server-node", "/runningpods/": "server", "/metrics": "kubelet_node_name",
		"/configz":                               "kubeletconfig",
		"/containerLogs/default/lines-node/main": "line 10",
	} {
		resp, err := a.Get(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(body), want) {
			t.Errorf("%s answers %s %v, %.300q", path, resp.Status, err, body)
		}
	}
}

// cliRestarts checks the log of the instance before the last restart.
func cliRestarts(t *testing.T, a *env.Agent) {
	p := podOf(t, a, "server")
	if _, err := ask(t, "GET", p, "/log?text=before"); err != nil {
		t.Fatal(err)
	}
	_, _ = ask(t, "GET", p, "/exit?code=3") // the server ends while it answers
	waitPod(t, a, "server", "restarted", func(p *corev1.Pod) error {
		if statusOf(p, "web").RestartCount != 1 || !env.Ready(p) {
			return fmt.Errorf("not restarted")
		}
		return nil
	})
	prints(t, a, []string{"logs", "-p", "server", "-c", "web"}, "before")
	if out := prints(t, a, []string{"logs", "server", "-c", "web"}); strings.Contains(out, "before") {
		t.Errorf("the new instance's log has %q", out)
	}
	prints(t, a, []string{"ps"}, "1 (")
	prints(t, a, []string{"describe", "server"}, "Last State")
}
