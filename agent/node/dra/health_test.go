package dra

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	healthapi "k8s.io/kubelet/pkg/apis/dra-health/v1alpha1"
	draapi "k8s.io/kubelet/pkg/apis/dra/v1"

	"github.com/berthd/berth/test/dradriver"
)

// says is what a driver says of a device.
func says(name string, health healthapi.HealthStatus, message string) *healthapi.DeviceHealth {
	return &healthapi.DeviceHealth{
		Device: &healthapi.DeviceIdentifier{PoolName: "p", DeviceName: name}, Health: health, Message: message,
	}
}

// healthOfPod writes the health of a pod's devices in one line, sorted by container.
func (b *bed) healthOfPod(pod *v1.Pod) string {
	var out []string
	all := b.Health(pod)
	for i := range pod.Spec.Containers {
		for _, s := range all[pod.Spec.Containers[i].Name] {
			text := pod.Spec.Containers[i].Name + " " + string(s.Name)
			for _, r := range s.Resources {
				text += fmt.Sprintf(" %s=%s", r.ResourceID, r.Health)
				if r.Message != nil {
					text += "(" + *r.Message + ")"
				}
			}
			out = append(out, text)
		}
	}
	return strings.Join(out, "; ")
}

// shows waits until the pod that is woken shows a health.
func (b *bed) shows(pod *v1.Pod, want string) {
	b.t.Helper()
	for b.healthOfPod(pod) != want {
		select {
		case uid := <-b.woken:
			if uid != pod.UID {
				b.t.Errorf("pod %s is woken", uid)
			}
		case <-time.After(time.Minute):
			b.t.Fatalf("it shows %q, want %q", b.healthOfPod(pod), want)
		}
	}
}

// twoCards are two devices, of which one has no CDI name.
func twoCards(context.Context, *draapi.Claim) ([]*draapi.Device, error) {
	return []*draapi.Device{
		{PoolName: "p", DeviceName: "0", RequestNames: []string{"one"}, CdiDeviceIds: []string{"a/gpu=0", "a/gpu=x"}},
		{PoolName: "p", DeviceName: "1", RequestNames: []string{"two"}},
	}, nil
}

// A pod shows what its drivers say of its devices, and is woken by each change. Nothing is shown
// before they have answered. Of devices of which nothing is said any more, nothing is known.
func TestHealth(t *testing.T) {
	b := start(t, shortDir(t))
	b.run()
	d := b.plug(dradriver.Config{Health: true, Prepare: twoCards})
	b.claim("c", []string{gpu}, "u")
	pod := podWith("u", "c")
	pod.Spec.Containers[1].Resources.Claims = []v1.ResourceClaim{{Name: "my-c", Request: "two"}}
	b.prepares(pod)
	b.shows(pod, "")

	d.Say(says("0", healthapi.HealthStatus_HEALTHY, ""))
	b.shows(pod, "app claim:my-c a/gpu=0=Healthy gpu.example.com/p/1=Unknown; "+
		"other claim:my-c/two gpu.example.com/p/1=Unknown")
	d.Say(says("0", healthapi.HealthStatus_UNHEALTHY, "hot"), says("1", healthapi.HealthStatus_HEALTHY, ""))
	b.shows(pod, "app claim:my-c a/gpu=0=Unhealthy(hot) gpu.example.com/p/1=Healthy; "+
		"other claim:my-c/two gpu.example.com/p/1=Healthy")
	b.cfg.HealthMessages = false
	b.shows(pod, "app claim:my-c a/gpu=0=Unhealthy gpu.example.com/p/1=Healthy; "+
		"other claim:my-c/two gpu.example.com/p/1=Healthy")
	short := says("0", healthapi.HealthStatus_HEALTHY, "")
	short.HealthCheckTimeoutSeconds = 1
	d.Say(short)
	b.shows(pod, "app claim:my-c a/gpu=0=Healthy gpu.example.com/p/1=Healthy; "+
		"other claim:my-c/two gpu.example.com/p/1=Healthy")
	b.shows(pod, "app claim:my-c a/gpu=0=Unknown gpu.example.com/p/1=Healthy; "+
		"other claim:my-c/two gpu.example.com/p/1=Healthy")
	d.Stop()
	b.Deregister(found(d, gpu, filepath.Join(b.root, gpu+".sock")))
	b.shows(pod, "app claim:my-c a/gpu=0=Unknown gpu.example.com/p/1=Unknown; "+
		"other claim:my-c/two gpu.example.com/p/1=Unknown")
}

// A restart of the agent changes no status: nothing is shown until the driver answers. The end of
// the agent changes none either.
func TestHealthOverARestart(t *testing.T) {
	root := shortDir(t)
	b := start(t, root)
	stop := b.run()
	d := b.plug(dradriver.Config{Health: true, Prepare: twoCards})
	b.claim("c", []string{gpu}, "u")
	pod := podWith("u", "c")
	b.prepares(pod)
	d.Say(says("0", healthapi.HealthStatus_HEALTHY, ""), says("1", healthapi.HealthStatus_HEALTHY, ""))
	const healthy = "app claim:my-c a/gpu=0=Healthy gpu.example.com/p/1=Healthy"
	b.shows(pod, healthy)
	stop()
	if got := b.healthOfPod(pod); got != healthy {
		t.Errorf("at its end the agent shows %q", got)
	}
	next := start(t, root)
	next.run()
	if got := next.healthOfPod(pod); got != "" {
		t.Errorf("the next agent shows %q before it has heard anything", got)
	}
	if err := next.Register(t.Context(), found(d, gpu, filepath.Join(root, gpu+".sock"))); err != nil {
		t.Fatal(err)
	}
	next.shows(pod, healthy)
}

// Of the devices of a driver without the service for health, nothing is known.
func TestDriverWithoutHealth(t *testing.T) {
	b := start(t, shortDir(t))
	b.run()
	b.plug(dradriver.Config{Prepare: twoCards})
	b.claim("c", []string{gpu}, "u")
	pod := podWith("u", "c")
	b.prepares(pod)
	b.shows(pod, "app claim:my-c a/gpu=0=Unknown gpu.example.com/p/1=Unknown")
}

func TestLongMessage(t *testing.T) {
	long := strings.Repeat("ä", 600)
	got := shortened(long)
	if len(got) > v1.ResourceHealthMessageMaxLength || !strings.HasSuffix(got, "ää...") || shortened("hot") != "hot" {
		t.Errorf("%d bytes, %q", len(got), got)
	}
}
