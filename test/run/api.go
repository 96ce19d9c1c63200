package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/berthd/berth/test/env"
)

// apiSample is the manifest that the API server gets, in the checkout.
const apiSample = "apiserver/samples/web.yaml"

// apiServer is a berth-apiserver whose node is the agent.
type apiServer struct {
	program *env.Program
	// data is its data directory, kubectl and kubeconfig what the administrator uses.
	data, kubectl, kubeconfig string
}

// runAPI runs the sample of the API server: a server, an agent as its node, and a Deployment. It
// ends as runSamples does.
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
		kubeconfig: filepath.Join(data, "admin.kubeconfig"),
		program: rt.env.NewProgram("berth-apiserver", program, "--data-dir", data, "--node-name", env.NodeName,
			"--secure-port", strconv.Itoa(port), "--workloads"),
	}
	fmt.Print("starting the API server …")
	began := time.Now()
	if err := s.program.Start(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, opts.timeout)
	defer cancel()
	for {
		_, err := s.run(ctx, "get", "--raw", "/readyz")
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
			"authorization: {mode: Webhook}\n", rt.cgroupDriver, port, serving, serving, filepath.Join(keys, "ca.crt")),
		Flags: []string{"--kubeconfig", filepath.Join(s.data, "node.kubeconfig")},
	})
	if err != nil {
		return nil, err
	}
	return agent, agent.Start()
}

// show applies the sample, waits until it is there, asks it, and waits for the end.
func (s *apiServer) show(ctx context.Context, rt *hostRuntime, opts options) error {
	manifest := filepath.Join(rt.env.Checkout, apiSample)
	bound := "--timeout=" + opts.timeout.String()
	for _, command := range [][]string{
		{"wait", "--for=create", bound, "serviceaccount/default"},
		{"apply", "-f", manifest},
		{"wait", "--for=condition=Available", bound, "deployment/web"},
		{"get", "nodes,pods", "-o", "wide"},
		{"logs", "deployment/web", "--tail=1"},
	} {
		out, err := s.run(ctx, command...)
		if err != nil {
			return err
		}
		fmt.Printf("$ kubectl %s\n%s", strings.Join(command, " "), out)
	}
	addresses, err := s.run(ctx, "get", "pods", "-l", "app=web", "-o", "jsonpath={.items[*].status.podIP}")
	if err != nil {
		return err
	}
	for _, ip := range strings.Fields(addresses) {
		url := "http://" + net.JoinHostPort(ip, "8080") + "/"
		answer, err := fetch(ctx, url)
		if err != nil {
			return err
		}
		fmt.Printf("%s answers: %s\n", url, strings.TrimSpace(answer))
	}
	if opts.once {
		return nil
	}
	fmt.Printf("in another terminal: export KUBECONFIG=%s\nedit %s and apply it again with kubectl.\n"+
		"Ctrl-C ends it and removes everything.\n", s.kubeconfig, apiSample)
	<-ctx.Done()
	return nil
}

// remove deletes every pod and what makes pods, and waits until nothing of them is left.
func (s *apiServer) remove(rt *hostRuntime) error {
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	for _, kinds := range []string{"deployments,daemonsets,statefulsets,cronjobs,jobs", "pods"} {
		if _, err := s.run(ctx, "delete", kinds, "--all", "--all-namespaces"); err != nil {
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

// run runs kubectl as the administrator and returns what it prints. The error has its complaints.
func (s *apiServer) run(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, s.kubectl, append([]string{"--kubeconfig", s.kubeconfig}, args...)...)
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(complaints.String()))
	}
	return out.String(), nil
}
