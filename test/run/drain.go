package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/berthd/berth/test/env"
)

const (
	// drainTimeout bounds the pods' removal: the longest grace of the samples, and time for a slow
	// machine.
	drainTimeout = time.Minute
	// uidLabel is the label of a sandbox with its pod's UID.
	uidLabel = "io.kubernetes.pod.uid"
)

// drain removes the pods in the same way as a user who deletes the pods' manifests, but it does not
// delete the samples: it starts the agent again with an empty folder. It returns an error if
// anything of the pods is left, and removes this, too.
func drain(rt *hostRuntime, agent *env.Agent) error {
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	pods, _ := agent.Pods(ctx)
	err := removePods(ctx, rt, agent)
	if err == nil || rt.private {
		return err
	}
	for i := range pods {
		err = errors.Join(err, removeSandboxes(rt, string(pods[i].UID)))
	}
	return err
}

func removePods(ctx context.Context, rt *hostRuntime, agent *env.Agent) error {
	if err := agent.Stop(); err != nil {
		return err
	}
	empty := filepath.Join(agent.Home, "no-manifests")
	if err := os.MkdirAll(empty, 0o700); err != nil {
		return fmt.Errorf("make an empty manifest folder: %w", err)
	}
	last, err := startAgent(ctx, rt, empty)
	if err != nil {
		return err
	}
	for {
		pods, err := last.Pods(ctx)
		leaks := rt.env.Leaks()
		if err == nil && len(pods) == 0 && len(leaks) == 0 {
			return last.Stop()
		}
		select {
		case <-time.After(50 * time.Millisecond):
			if last.Running() {
				continue
			}
			err = errors.Join(err, errors.New("the agent has ended by itself"))
		case <-ctx.Done():
		}
		return errors.Join(fmt.Errorf("the pods were not removed; left:\n%s%s\nthe end of the agent's log:\n%s",
			env.Describe(pods), strings.Join(leaks, "\n"), last.LogTail()), err)
	}
}

// removeSandboxes removes the sandboxes of one pod through the runtime.
func removeSandboxes(rt *hostRuntime, uid string) error {
	ctx, cancel := context.WithTimeout(context.Background(), drainTimeout)
	defer cancel()
	list, err := rt.env.Runtime().ListPodSandbox(ctx, &runtimeapi.ListPodSandboxRequest{
		Filter: &runtimeapi.PodSandboxFilter{LabelSelector: map[string]string{uidLabel: uid}},
	})
	if err != nil {
		return fmt.Errorf("list the sandboxes of pod %s: %w", uid, err)
	}
	var errs []error
	for _, s := range list.Items {
		_, err := rt.env.Runtime().StopPodSandbox(ctx, &runtimeapi.StopPodSandboxRequest{PodSandboxId: s.Id})
		errs = append(errs, err)
		_, err = rt.env.Runtime().RemovePodSandbox(ctx, &runtimeapi.RemovePodSandboxRequest{PodSandboxId: s.Id})
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
