package main

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/berthd/berth/agent/desired/stopped"
	"github.com/berthd/berth/agent/images/garbage"
	podengine "github.com/berthd/berth/agent/pod"
	"github.com/berthd/berth/client/api"
)

// hold shows a pod as stopped, by an operator or a drain.
func (*fakeAgent) hold(pod *v1.Pod, reason, message string) {
	pod.Status.Reason, pod.Status.Message, pod.Status.Conditions = reason, message, nil
	for i := range pod.Status.ContainerStatuses {
		c := &pod.Status.ContainerStatuses[i]
		c.Ready, c.State = false, v1.ContainerState{Terminated: &v1.ContainerStateTerminated{Reason: "Completed"}}
	}
}

// Restart restarts the pod web, and no other.
func (f *fakeAgent) Restart(_ context.Context, pod *v1.Pod, names []string, grace *int64) ([]string, error) {
	switch {
	case pod.UID != "u-web":
		return nil, fmt.Errorf("%w: container c has not started yet", podengine.ErrNotRestarted)
	case ptr.Deref(grace, 30) == 0:
		return []string{"main (at once)"}, nil
	case len(names) == 0:
		names = []string{"main", "side"}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range names {
		if f.restarts == nil {
			f.restarts = map[string]int32{}
		}
		f.restarts[name]++
	}
	return names, nil
}

// restarted shows the restarts of the containers of the pod web. The caller holds f.mu.
func (f *fakeAgent) restarted(web *v1.Pod) {
	for i := range web.Status.ContainerStatuses {
		web.Status.ContainerStatuses[i].RestartCount += f.restarts[web.Status.ContainerStatuses[i].Name]
	}
	if len(f.restarts) > 0 {
		web.Status.Conditions = append(web.Status.Conditions, v1.PodCondition{
			Type: v1.PodReady, Status: v1.ConditionTrue,
		})
	}
}

// Stop stops the pods web and broken, which ask for their own grace or for 5 seconds or none.
func (f *fakeAgent) Stop(pod *v1.Pod, grace *int64) error {
	if pod.Namespace == "other" {
		return fmt.Errorf("%w: pod other/%s belongs to the API server", stopped.ErrRefused, pod.Name)
	}
	if seconds := ptr.Deref(grace, 5); seconds != 5 && seconds != 0 {
		return errors.New("an odd grace")
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stopped == nil {
		f.stopped = map[types.UID]bool{}
	}
	f.stopped[pod.UID] = true
	return nil
}

// Start starts a pod again.
func (f *fakeAgent) Start(_ context.Context, pod *v1.Pod) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	was := f.stopped[pod.UID]
	delete(f.stopped, pod.UID)
	return was, nil
}

// RemoveImage removes old:1, and no other image.
func (*fakeAgent) RemoveImage(_ context.Context, name string) (api.Image, error) {
	switch name {
	case "old:1":
		return api.Image{ID: "sha256:1", Tags: []string{"old:1"}}, nil
	case "used:1":
		return api.Image{}, fmt.Errorf("%w: used:1: pod default/web names it", garbage.ErrNeeded)
	case "stuck:1":
		return api.Image{}, errors.New("remove image stuck:1: busy")
	}
	return api.Image{}, fmt.Errorf("%w: %s", garbage.ErrNoImage, name)
}

// PullImage pulls good:1, and no other image.
func (*fakeAgent) PullImage(_ context.Context, image string) (id string, err error) {
	if image != "good:1" {
		return "", errors.New("pulling image " + image + ": ErrImagePull: not found")
	}
	return "sha256:good", nil
}
