//go:build cluster

package test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	// patience bounds each wait, on a machine that others use, too.
	patience = 4 * time.Minute
	// pollInterval is how often a condition is asked for.
	pollInterval = 50 * time.Millisecond
	// nodeName is the node of node.kubeconfig.
	nodeName = "one"
)

// program is the path of the program under test, kubectl that of kubectl.
var program, kubectl string

func TestMain(m *testing.M) {
	code, err := func() (int, error) {
		checkout, err := filepath.Abs("../..")
		if err != nil {
			return 1, err
		}
		kubectl = filepath.Join(checkout, ".cache", "bin", "kubectl")
		if _, err := os.Stat(kubectl); err != nil {
			return 1, fmt.Errorf("find kubectl (run \"scripts/deps kubectl\"): %w", err)
		}
		if program = os.Getenv("BERTH_APISERVER_BIN"); program != "" {
			return m.Run(), nil
		}
		dir, err := os.MkdirTemp("", "apiserver-")
		if err != nil {
			return 1, err
		}
		defer os.RemoveAll(dir)
		program = filepath.Join(dir, "berth-apiserver")
		build := exec.Command("go", "build", "-trimpath", "-o", program, "./cmd/berth-apiserver")
		build.Dir, build.Env = filepath.Join(checkout, "apiserver"), append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return 1, fmt.Errorf("build the program: %w: %s", err, out)
		}
		return m.Run(), nil
	}()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(code)
}

// server is a running berth-apiserver.
type server struct {
	dir  string
	url  string
	log  string
	args []string
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

// start starts a server with these flags besides its own, waits until it is ready, and ends it with
// the test. If the test fails, its output gets the end of the server's log.
func start(t testing.TB, flags ...string) *server {
	t.Helper()
	return startIn(t, filepath.Join(shortFolder(t), "data"), flags...)
}

// shortFolder makes a folder for the test, whose path is short, as that of a socket must be.
func shortFolder(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "api-") //nolint:usetesting // the path of a socket must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// startIn does that with a data directory. The log is beside it.
func startIn(t testing.TB, dir string, flags ...string) *server {
	t.Helper()
	s := prepare(t, dir, flags...)
	s.start(t)
	return s
}

// prepare returns a server that does not run yet.
func prepare(t testing.TB, dir string, flags ...string) *server {
	t.Helper()
	port := freePort(t)
	s := &server{dir: dir, url: "https://127.0.0.1:" + strconv.Itoa(port), log: dir + ".log"}
	s.args = append([]string{
		"--data-dir", s.dir, "--secure-port", strconv.Itoa(port), "--node-name", nodeName,
	}, flags...)
	t.Cleanup(func() {
		s.kill()
		if t.Failed() {
			t.Logf("the end of the server's log:\n%s", s.tail())
		}
	})
	return s
}

// start starts the program, again after it has ended, and waits until it is ready.
func (s *server) start(t testing.TB) {
	t.Helper()
	began := time.Now()
	s.launch(t)
	s.await(t, "it is ready", func() error {
		code, body, err := s.get("/readyz")
		if err != nil || code != http.StatusOK {
			return fmt.Errorf("/readyz says %d %q, %w", code, body, err)
		}
		return nil
	})
	t.Logf("ready after %s; %s", time.Since(began).Round(time.Millisecond), s.memory())
}

// launch starts the program.
func (s *server) launch(t testing.TB) {
	t.Helper()
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	s.cmd, s.done = exec.Command(program, s.args...), make(chan struct{})
	s.cmd.Stdout, s.cmd.Stderr = log, log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		s.err = s.cmd.Wait()
		close(s.done)
	}()
}

// memory returns what the kernel says of the process's memory.
func (s *server) memory() string {
	text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	var lines []string
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "VmRSS") || strings.HasPrefix(line, "RssAnon") {
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
	}
	return strings.Join(lines, ", ")
}

// kill ends the program as a power cut does, if it runs.
func (s *server) kill() {
	if s.cmd == nil {
		return
	}
	_ = s.cmd.Process.Kill()
	<-s.done
}

// stop asks the program to end, which must succeed.
func (s *server) stop(t testing.TB) {
	t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.done:
	case <-time.After(patience):
		t.Fatal("it does not stop")
	}
	if s.err != nil {
		t.Fatalf("it ends with %v", s.err)
	}
}

func (s *server) tail() string {
	text, _ := os.ReadFile(s.log)
	if len(text) > 4000 {
		text = text[len(text)-4000:]
	}
	return string(text)
}

// await waits until there is no error. It fails the test when the server has ended.
func (s *server) await(t testing.TB, what string, check func() error) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-s.done:
			t.Fatalf("wait until %s: the server has ended: %v: %s", what, s.err, s.tail())
		case <-time.After(pollInterval):
		}
		if time.Now().After(deadline) {
			t.Fatalf("wait until %s: %v", what, err)
		}
	}
}

// get makes a request without credentials.
func (s *server) get(path string) (code int, body string, err error) {
	pool := x509.NewCertPool()
	ca, err := os.ReadFile(filepath.Join(s.dir, "pki", "ca.crt"))
	if err != nil {
		return 0, "", err
	}
	pool.AppendCertsFromPEM(ca)
	client := &http.Client{
		Timeout:   time.Minute,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, DisableKeepAlives: true},
	}
	answer, err := client.Get(s.url + path)
	if err != nil {
		return 0, "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return answer.StatusCode, string(text), err
}

// file returns the path of a file in the data directory.
func (s *server) file(name string) string { return filepath.Join(s.dir, name) }

// write makes a file for the server or for kubectl, and returns its path.
func (s *server) write(t testing.TB, name, text string) string {
	t.Helper()
	path := filepath.Join(filepath.Dir(s.dir), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// kubectl runs kubectl as the administrator. It must succeed.
func (s *server) kubectl(t testing.TB, args ...string) string {
	t.Helper()
	out, err := s.as("admin", "", args...)
	if err != nil {
		t.Fatalf("kubectl %s: %v", strings.Join(args, " "), err)
	}
	return out
}

// apply creates the objects of a manifest as the administrator.
func (s *server) apply(t testing.TB, manifest string) {
	t.Helper()
	if _, err := s.as("admin", manifest, "apply", "-f", "-"); err != nil {
		t.Fatalf("apply: %v\n%s", err, manifest)
	}
}

// as runs kubectl with the kubeconfig of that name. The error has what kubectl wrote.
func (s *server) as(user, stdin string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, kubectl, append([]string{"--kubeconfig", s.file(user + ".kubeconfig")}, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+filepath.Dir(s.dir))
	cmd.Stdin = strings.NewReader(stdin)
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		return out.String(), errors.Join(err, errors.New(strings.TrimSpace(complaints.String())))
	}
	return strings.TrimSpace(out.String()), nil
}

// eventually waits until kubectl, as the administrator, prints what is wanted.
func (s *server) eventually(t testing.TB, want string, args ...string) {
	t.Helper()
	s.await(t, fmt.Sprintf("kubectl %s prints %q", strings.Join(args, " "), want), func() error {
		if out, err := s.as("admin", "", args...); err != nil || out != want {
			return fmt.Errorf("it prints %q, %w", out, err)
		}
		return nil
	})
}

// freePort returns a port of loopback on which nobody listens now.
func freePort(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
