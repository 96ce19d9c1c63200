//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/test/env"
)

// TestHostPorts checks that a port of the host leads to the container, on all addresses or on the
// one of hostIP. No other pod gets the port meanwhile, and the next pod gets it afterwards.
func TestHostPorts(t *testing.T) {
	t.Parallel()
	e := env.Containerd(t, env.Options{OwnNetwork: true})
	a := e.StartAgent(t, env.AgentOptions{})
	a.WaitUp(t)
	serving := func(port string) string {
		return "terminationGracePeriodSeconds: 1\ncontainers:\n  - name: main\n    image: berth.local/web:v1\n" +
			"    ports: [{containerPort: 8080, " + port + "}]\n"
	}
	put(t, a, "everywhere", serving("hostPort: 18080"))
	put(t, a, "bound", serving("hostPort: 18081, hostIP: "+env.HostIP))
	put(t, a, "aside", "terminationGracePeriodSeconds: 1\ninitContainers:\n  - name: side\n"+
		"    image: berth.local/web:v1\n    restartPolicy: Always\n"+
		"    ports: [{containerPort: 8080, hostPort: 18082, hostIP: "+env.HostIP+"}]\n"+aside)
	a.WaitReady(t, "everywhere")
	a.WaitReady(t, "bound")
	a.WaitReady(t, "aside")
	reach := func(address string, want bool) {
		t.Helper()
		env.Eventually(t, fmt.Sprintf("whether %s answers to be %t", address, want), func() error {
			switch err := get(t.Context(), e, address); {
			case want:
				return err
			case err == nil:
				return errors.New("it answers")
			}
			return nil
		})
	}
	reach(e.NodeIP()+":18080", true)
	reach(env.HostIP+":18080", true)
	reach(env.HostIP+":18081", true)
	reach(e.NodeIP()+":18081", false)
	reach(env.HostIP+":18082", true)
	reach(e.NodeIP()+":18082", false)
	put(t, a, "late", serving("hostPort: 18080, hostIP: "+env.HostIP))
	if p := waitPod(t, a, "late", "refused", phase(corev1.PodFailed)); p.Status.Reason != "NodePorts" {
		t.Errorf("it was refused for %s: %s", p.Status.Reason, p.Status.Message)
	}
	put(t, a, "beside", serving("hostPort: 18081, hostIP: "+e.NodeIP()))
	a.WaitReady(t, "beside")
	reach(e.NodeIP()+":18081", true)
	for _, name := range []string{"everywhere", "late"} {
		removed(t, e, a, name)
	}
	reach(env.HostIP+":18080", false)
	put(t, a, "late", serving("hostPort: 18080, hostIP: "+env.HostIP))
	a.WaitReady(t, "late")
	reach(env.HostIP+":18080", true)
	for _, name := range []string{"late", "beside", "bound", "aside"} {
		removed(t, e, a, name)
	}
	nothingLeft(t, e.Leaks)
}

// get asks a web server in the environment's network whether it is healthy.
func get(ctx context.Context, e *env.Env, address string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/healthz", nil)
	if err != nil {
		return err
	}
	transport := &http.Transport{DialContext: e.Dial, DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// TestHostPortTaken checks that a pod with a host port on which a program of the node listens has
// an event of that, and that "berth why" warns of it until the program ends.
func TestHostPortTaken(t *testing.T) {
	t.Parallel()
	e := env.Containerd(t, env.Options{OwnNetwork: true})
	a := e.StartAgent(t, env.AgentOptions{})
	a.WaitUp(t)
	// does not say on which port it listens: admission knows nothing of it
	put(t, a, "program", "terminationGracePeriodSeconds: 1\nhostNetwork: true\n"+
		"containers: [{name: main, image: berth.local/web:v1}]\n")
	a.WaitReady(t, "program")
	env.Eventually(t, "the program to listen", func() error { return get(t.Context(), e, env.HostIP+":8080") })
	put(t, a, "taker", "terminationGracePeriodSeconds: 1\ncontainers:\n  - name: main\n    image: berth.local/web:v1\n"+
		"    ports: [{containerPort: 8080, hostPort: 8080}]\n")
	a.WaitReady(t, "taker")
	const says = "of the node listens on hostPort 8080/TCP of container main, too"
	prints(t, a, []string{"events", "--for", "taker"}, "HostPortTaken", says)
	prints(t, a, []string{"why", "taker"}, says)
	removed(t, e, a, "program")
	env.Eventually(t, "why to warn no more", func() error {
		if warnings := why(t, a, "taker").Warnings; len(warnings) > 0 {
			return fmt.Errorf("the warnings are %q", warnings)
		}
		return nil
	})
	removed(t, e, a, "taker")
	nothingLeft(t, e.Leaks)
}
