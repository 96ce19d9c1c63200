package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/berthd/berth/test/env"
	"github.com/berthd/berth/test/images"
)

// apiSample is the manifest that the API server gets, in the checkout. apiClient is the pod of it
// that asks for the Service.
const apiSample, apiClient = "apiserver/samples/web.yaml", "client"

// apiServer is a berth-apiserver whose node is the agent.
type apiServer struct {
	program *env.Program
	env     *env.Env
	// path is the program, and port where it listens.
	path string
	port int
	// data is its data directory, kubectl and kubeconfig what the administrator uses.
	data, kubectl, kubeconfig string
}

// runAPI runs the sample of the API server: a server, an agent as its node, kube-proxy, CoreDNS,
// and a Deployment behind a Service. It ends as runSamples does. All of it is in a network of its
// own, because kube-proxy writes rules of the firewall.
func runAPI(ctx context.Context, rt *hostRuntime, opts options) error {
	server, err := startServer(ctx, rt, opts)
	if err != nil {
		return err
	}
	agent, err := startNode(ctx, rt, server)
	if err != nil {
		return errors.Join(err, server.program.Stop())
	}
	err = server.show(ctx, rt, opts)
	if ctx.Err() != nil && !opts.once {
		err = nil // the usual end
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "the end of the agent's log:\n%s\nthe end of the server's log:\n%s\n", agent.LogTail(),
			server.program.LogTail())
	}
	fmt.Println("removing the pods")
	return errors.Join(err, server.remove(rt), agent.Stop(), server.program.Stop())
}

// startServer starts the API server and waits until it is ready.
func startServer(ctx context.Context, rt *hostRuntime, opts options) (*apiServer, error) {
	port, err := env.FreePort()
	if err != nil {
		return nil, err
	}
	program, err := filepath.Abs(opts.api)
	if err != nil {
		return nil, fmt.Errorf("find the API server: %w", err)
	}
	data := filepath.Join(rt.env.Dir, "api")
	s := &apiServer{
		data: data, kubectl: filepath.Join(rt.env.Checkout, ".cache", "bin", "kubectl"),
		kubeconfig: filepath.Join(data, "admin.kubeconfig"), path: program, port: port, env: rt.env,
		program: rt.env.NewProgram("berth-apiserver", program, "--data-dir", data, "--node-name", env.NodeName,
			"--secure-port", strconv.Itoa(port), "--workloads", "--bind-address", "0.0.0.0",
			"--advertise-address", env.HostIP),
	}
	fmt.Print("starting the API server …")
	began := time.Now()
	if err := s.program.Start(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, opts.timeout)
	defer cancel()
	for {
		_, err := s.run(ctx, "", "get", "--raw", "/readyz")
		if err == nil {
			fmt.Printf(" %s\n", time.Since(began).Round(100*time.Millisecond))
			return s, nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
		if ctx.Err() != nil || !s.program.Running() {
			return nil, errors.Join(fmt.Errorf("start the API server: %w\n%s", err, s.program.LogTail()), s.program.Stop())
		}
	}
}

// startNode starts the agent as the server's node.
func startNode(ctx context.Context, rt *hostRuntime, s *apiServer) (*env.Agent, error) {
	port, err := env.FreePort()
	if err != nil {
		return nil, err
	}
	keys := filepath.Join(s.data, "pki")
	serving := filepath.Join(keys, "node-serving.pem")
	agent, err := rt.env.NewAgent(ctx, env.AgentOptions{
		Kubelet: fmt.Sprintf("cgroupDriver: %s\nenableServer: true\nport: %d\ntlsCertFile: %q\ntlsPrivateKeyFile: %q\n"+
			"authentication:\n  anonymous: {enabled: false}\n  webhook: {enabled: true}\n  x509: {clientCAFile: %q}\n"+
			"authorization: {mode: Webhook}\nclusterDNS: [10.96.0.10]\nclusterDomain: cluster.local\n",
			rt.cgroupDriver, port, serving, serving, filepath.Join(keys, "ca.crt")),
		Flags: []string{"--kubeconfig", filepath.Join(s.data, "node.kubeconfig"), "--node-ip", env.HostIP},
	})
	if err != nil {
		return nil, err
	}
	return agent, agent.Start()
}

// show applies the sample, waits until it is there, asks for it by the name of its Service, and
// waits for the end.
func (s *apiServer) show(ctx context.Context, rt *hostRuntime, opts options) error {
	bound := "--timeout=" + opts.timeout.String()
	if _, err := s.run(ctx, "", "wait", "--for=create", bound, "serviceaccount/default"); err != nil {
		return err
	}
	if err := s.startServices(ctx, rt); err != nil {
		return err
	}
	for _, command := range [][]string{
		{"apply", "-f", filepath.Join(rt.env.Checkout, apiSample)},
		{"wait", "--for=condition=Available", bound, "deployment/web"},
		{"wait", "--for=condition=Ready", bound, "pod/" + apiClient},
		{"-n", "kube-system", "wait", "--for=condition=Available", bound, "deployment/coredns"},
		{"get", "nodes,services,pods", "--all-namespaces", "-o", "wide"},
		{"logs", "deployment/web", "--tail=1"},
	} {
		out, err := s.run(ctx, "", command...)
		if err != nil {
			return err
		}
		fmt.Printf("$ kubectl %s\n%s", strings.Join(command, " "), out)
	}
	if err := s.ask(ctx, opts.timeout); err != nil {
		return err
	}
	if opts.once {
		return nil
	}
	release, err := s.publish(ctx, rt)
	if err != nil {
		return err
	}
	defer release()
	fmt.Printf("in another terminal: export KUBECONFIG=%s\nedit %s and apply it again with kubectl.\n"+
		"Ctrl-C ends it and removes everything.\n", s.kubeconfig, apiSample)
	<-ctx.Done()
	return nil
}

// startServices imports the images of kube-proxy and CoreDNS, and applies what the server prints
// for them.
func (s *apiServer) startServices(ctx context.Context, rt *hostRuntime) error {
	built, err := images.Services(ctx, rt.env.Checkout)
	if err != nil {
		return err
	}
	for _, image := range built {
		if err := rt.env.Import(ctx, image); err != nil {
			return err
		}
	}
	manifests, err := s.command(ctx, "", s.path, "services", "--data-dir", s.data, "--kube-proxy-image", images.KubeProxy,
		"--coredns-image", images.CoreDNS)
	if err != nil {
		return err
	}
	out, err := s.run(ctx, manifests, "apply", "-f", "-")
	fmt.Printf("$ berth-apiserver services | kubectl apply -f -\n%s", out)
	return err
}

// ask asks for the page of the Service by its name, from a pod, until there is an answer.
// kube-proxy may be a little behind.
func (s *apiServer) ask(ctx context.Context, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	command := []string{"exec", apiClient, "--", "/testapp", "get", "http://web/"}
	for {
		out, err := s.run(ctx, "", command...)
		if err == nil {
			fmt.Printf("$ kubectl %s\n%s", strings.Join(command, " "), out)
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// publish lets kubectl outside of the server's network reach the server, at the address that the
// kubeconfig names. release ends that.
func (s *apiServer) publish(ctx context.Context, rt *hostRuntime) (release func(), err error) {
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port))
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("let kubectl reach the server at %s: %w", address, err)
	}
	go func() {
		for {
			outer, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = outer.Close() }()
				inner, err := rt.env.Dial(ctx, "tcp", address)
				if err != nil {
					return
				}
				defer func() { _ = inner.Close() }()
				go func() {
					_, _ = io.Copy(inner, outer)
					_ = inner.Close()
				}()
				_, _ = io.Copy(outer, inner)
			}()
		}
	}()
	return func() { _ = listener.Close() }, nil
}

// remove deletes every pod and what makes pods, and waits until nothing of them is left.
func (s *apiServer) remove(rt *hostRuntime) error {
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	for _, kinds := range []string{"deployments,daemonsets,statefulsets,cronjobs,jobs", "pods"} {
		if _, err := s.run(ctx, "", "delete", kinds, "--all", "--all-namespaces"); err != nil {
			return err
		}
	}
	for leaks := rt.env.Leaks(); len(leaks) > 0; leaks = rt.env.Leaks() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("the pods were not removed; left:\n%s", strings.Join(leaks, "\n"))
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil
}

// run runs kubectl as the administrator, with an input, and returns what it prints. The error has
// its complaints.
func (s *apiServer) run(ctx context.Context, input string, args ...string) (string, error) {
	return s.command(ctx, input, s.kubectl, append([]string{"--kubeconfig", s.kubeconfig}, args...)...)
}

// command runs a program in the server's network.
func (s *apiServer) command(ctx context.Context, input, program string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, program, args...)
	var out, complaints bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &out, &complaints
	err := s.env.In(cmd.Start)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return "", fmt.Errorf("%s %s: %w: %s", filepath.Base(program), strings.Join(args, " "), err,
			strings.TrimSpace(complaints.String()))
	}
	return out.String(), nil
}
