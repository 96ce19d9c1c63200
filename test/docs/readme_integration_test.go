//go:build integration

package docs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/distribution/reference"

	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/test/env"
	"github.com/berthd/berth/test/images"
)

// longest bounds one command of a document.
const longest = 5 * time.Minute

// onceManifest is the pod.yaml that "berth run" of docs/commands.md is about.
const onceManifest = `apiVersion: v1
kind: Pod
metadata:
  name: once
spec:
  restartPolicy: Never
  containers:
    - name: main
      image: ` + images.Busybox + `
      command: [echo, done]
`

// server stands in for the server that the documents are about: its folders, sockets and ports are
// moved into an environment.
type server struct {
	env   *env.Env
	agent *env.Agent
	moved *strings.Replacer
	// printed is what each command printed.
	printed map[string]string
}

// TestReadme runs the commands of the README and of the other documents of byReader from top to
// bottom, as one reader would.
func TestReadme(t *testing.T) {
	s := newServer(t)
	shown := 0
	for _, file := range byReader {
		text := lines(t, file)
		for _, c := range commands(file, text) {
			words := c.words()
			switch {
			case words[0] == "make":
				// A make inside of "make test" would not end.
			case words[0] == "berth" && words[1] == "agent":
				if err := s.agent.Start(); err != nil {
					t.Fatal(err)
				}
				s.agent.WaitUp(t)
			default:
				s.run(t, c)
			}
		}
		shown += s.compare(t, file, text)
	}
	if shown < 5 {
		t.Errorf("only %d outputs compared", shown)
	}
}

func newServer(t *testing.T) *server {
	t.Helper()
	e := env.Containerd(t, env.Options{})
	port, err := env.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	agent, err := e.NewAgent(t.Context(), env.AgentOptions{Kubelet: fmt.Sprintf("healthzPort: %d", port)})
	if err != nil {
		t.Fatal(err)
	}
	binary, err := env.Binary(t.Context(), e.Checkout)
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"bin", "work", "etc"} {
		if err := os.MkdirAll(filepath.Join(agent.Home, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s := &server{env: e, agent: agent, printed: map[string]string{}, moved: strings.NewReplacer(
		"/etc/kubernetes/manifests", agent.Manifests,
		"/etc/berth", filepath.Join(agent.Home, "etc"),
		"/usr/local/bin", filepath.Join(agent.Home, "bin"),
		"/run/berth/berth.sock", agent.Socket,
		"unix:///run/containerd/containerd.sock", e.Endpoint,
		"127.0.0.1:10248", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)),
		" bin/berth", " "+binary,
		// Any free local port will do.
		"port-forward hello 8080", "port-forward hello :8080",
	)}
	s.addImage(t)
	if err := os.WriteFile(filepath.Join(agent.Home, "work", "pod.yaml"), []byte(onceManifest), 0o600); err != nil {
		t.Fatal(err)
	}
	return s
}

// addImage makes the image of the README's pod known: there is no registry.
func (s *server) addImage(t *testing.T) {
	t.Helper()
	m := regexp.MustCompile(`(?m)^ *image: (\S+)$`).FindStringSubmatch(strings.Join(lines(t, "README.md"), "\n"))
	if m == nil {
		t.Fatal("the README's pod has no image")
	}
	name, err := reference.ParseNormalizedNamed(m[1])
	if err != nil {
		t.Fatal(err)
	}
	if err := s.env.Tag(t.Context(), images.Busybox, name.String()); err != nil {
		t.Fatal(err)
	}
}

// run runs a command of a document by bash, in a folder of its own.
func (s *server) run(t *testing.T, c command) {
	t.Helper()
	words := c.words()
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	// "berth run" has an agent of its own, which must find the environment, too.
	script := `berth() {
  if [ "$1" = run ]; then
    shift
    set -- run --config "$CONFIG" --root-dir "$RUN_ROOT" "$@"
  fi
  command berth "$@"
}
` + s.moved.Replace(c.text)
	cmd := exec.CommandContext(ctx, "bash", "-euc", script)
	cmd.Dir = filepath.Join(s.agent.Home, "work")
	cmd.Env = append(os.Environ(),
		"PATH="+filepath.Join(s.agent.Home, "bin")+":"+os.Getenv("PATH"), "BERTH_SOCKET="+s.agent.Socket,
		"CONFIG="+filepath.Join(s.agent.Home, "berth.yaml"), "RUN_ROOT="+filepath.Join(s.agent.Home, "run"))
	if lasts := slices.Contains(words, "port-forward"); lasts {
		s.runForward(t, cmd, c)
		return
	}
	out, err := cmd.CombinedOutput()
	s.printed[strings.Join(words, " ")] = string(out)
	t.Logf("$ %s\n%s", strings.Join(words, " "), out)
	if err != nil {
		t.Fatalf("%s:%d: %s: %v\n%s", c.file, c.line, c.text, err, out)
	}
	switch last := words[len(words)-1]; {
	case strings.HasPrefix(last, "/etc/kubernetes/manifests"):
		if words[0] == "mv" {
			s.agent.WaitReady(t, "hello")
			// The diff further below is about the same file.
			s.copyBack(t)
		}
	case strings.Contains(c.text, ">/etc/berth/"):
		s.checkConfig(t)
	}
}

// copyBack puts the manifest back beside the reader, who edits it there.
func (s *server) copyBack(t *testing.T) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(s.agent.Manifests, "hello.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(s.agent.Home, "work", "hello.yaml"), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// checkConfig loads the documents' config file, which must give no warning.
func (s *server) checkConfig(t *testing.T) {
	t.Helper()
	file := filepath.Join(s.agent.Home, "etc", "config.yaml")
	cfg, warnings, err := configs.Load(configs.Options{File: file})
	if err != nil || len(warnings) > 0 {
		t.Fatalf("the documents' config: %v, warnings %v", err, warnings)
	}
	if cfg.Kubelet.StaticPodPath != s.agent.Manifests || cfg.Kubelet.ContainerRuntimeEndpoint != s.env.Endpoint {
		t.Errorf("the documents' config says %s and %s", cfg.Kubelet.StaticPodPath,
			cfg.Kubelet.ContainerRuntimeEndpoint)
	}
}

// runForward starts a command that lasts, and ends it once it says that it forwards.
func (s *server) runForward(t *testing.T, cmd *exec.Cmd, c command) {
	t.Helper()
	file := filepath.Join(s.agent.Home, "forward.log")
	log, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	// Without the function, so that the process is berth itself.
	cmd.Args[2] = "exec " + s.moved.Replace(c.text)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	env.Eventually(t, c.text, func() error {
		if out, err := os.ReadFile(file); err != nil || !strings.Contains(string(out), "Forwarding from") {
			return fmt.Errorf("it says %q, %w", out, errors.Join(err))
		}
		return nil
	})
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait()
}

// compare checks that the outputs that a document shows begin as the real ones do, and returns how
// many there are. Numbers differ from run to run.
func (s *server) compare(t *testing.T, file string, text []string) int {
	t.Helper()
	shown := 0
	for _, b := range blocks(text) {
		for i, l := range b.text {
			name, isCommand := strings.CutPrefix(l, "# berth ")
			if b.language == "sh" || !isCommand || i+1 == len(b.text) {
				continue
			}
			out, ran := s.printed["berth "+name]
			if !ran {
				continue
			}
			shown++
			want, _, _ := strings.Cut(out, "\n")
			if plain(b.text[i+1]) != plain(want) {
				t.Errorf("%s:%d: %q now prints\n%s", file, b.line+i, l, out)
			}
		}
	}
	return shown
}

// plain takes what differs from run to run out of a line.
func plain(line string) string {
	return strings.Join(strings.Fields(regexp.MustCompile(`\d+`).ReplaceAllString(line, "0")), " ")
}
