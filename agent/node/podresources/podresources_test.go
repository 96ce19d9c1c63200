package podresources

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
	"k8s.io/kubelet/pkg/apis/podresources/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/berthd/berth/internal/localrpc/localrpctest"
)

// pieces gives each container one device, named after it.
type pieces struct{}

func (pieces) Held(uid types.UID, container string) []*resourcesapi.ContainerDevices {
	return []*resourcesapi.ContainerDevices{{ResourceName: "r", DeviceIds: []string{string(uid) + "-" + container}}}
}

func (pieces) Allocatable() []*resourcesapi.ContainerDevices {
	return []*resourcesapi.ContainerDevices{{ResourceName: "r", DeviceIds: []string{"a"}}}
}

func (pieces) CPUs(types.UID, string) []int64 { return []int64{2, 3} }
func (pieces) AllocatableCPUs() []int64       { return []int64{1, 2, 3} }

func (pieces) Memory(types.UID, string) []*resourcesapi.ContainerMemory {
	return []*resourcesapi.ContainerMemory{{MemoryType: "memory", Size: 1}}
}

func (pieces) AllocatableMemory() []*resourcesapi.ContainerMemory {
	return []*resourcesapi.ContainerMemory{{MemoryType: "memory", Size: 2}}
}

func (pieces) Dynamic(pod *v1.Pod, c *v1.Container) []*resourcesapi.DynamicResource {
	return []*resourcesapi.DynamicResource{{ClaimName: "claim of " + pod.Name + "-" + c.Name}}
}

// counts counts requests by method.
type counts struct {
	mu   sync.Mutex
	seen []string
}

func (c *counts) PodResourcesAsked(version, method string, failed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = append(c.seen, fmt.Sprint(version, " ", method, " ", failed))
}

// serve runs a server and returns a connection to it.
func serve(t *testing.T) (*grpc.ClientConn, *counts, string) {
	t.Helper()
	top := localrpctest.Dir(t)
	dir, asked := filepath.Join(top, "pod-resources"), &counts{}
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "one", UID: "1"},
		Spec: v1.PodSpec{
			InitContainers: []v1.Container{
				{Name: "init"}, {Name: "side", RestartPolicy: ptr.To(v1.ContainerRestartPolicyAlways)},
			},
			Containers: []v1.Container{{Name: "app"}},
		},
	}
	earlier, ended := pod.DeepCopy(), pod.DeepCopy()
	earlier.UID, ended.UID, ended.Name = "0", "9", "ended"
	s := New(dir, Deps{
		Pods: func() []*v1.Pod { return []*v1.Pod{pod} }, Listed: func() []*v1.Pod { return []*v1.Pod{earlier, ended, pod} },
		Pieces: pieces{}, Metrics: asked,
		Logger: slog.New(slog.DiscardHandler),
	})
	return localrpctest.Serve(t, s.Run, filepath.Join(dir, socketName)), asked, dir
}

func TestAnswers(t *testing.T) {
	conn, asked, dir := serve(t)
	client := resourcesapi.NewPodResourcesListerClient(conn)
	list, err := client.List(t.Context(), &resourcesapi.ListPodResourcesRequest{}, grpc.WaitForReady(true))
	if err != nil || len(list.GetPodResources()) != 1 {
		t.Fatalf("%v, %v", list, err)
	}
	var got []string
	for _, c := range list.GetPodResources()[0].GetContainers() {
		got = append(got, c.GetName()+" "+c.GetDevices()[0].GetDeviceIds()[0]+fmt.Sprint(c.GetCpuIds())+" "+
			c.GetDynamicResources()[0].GetClaimName())
	}
	if want := "[side 1-side[2 3] claim of one-side app 1-app[2 3] claim of one-app]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
	one, err := client.Get(t.Context(), &resourcesapi.GetPodResourcesRequest{PodNamespace: "ns", PodName: "one"})
	if err != nil || one.GetPodResources().GetName() != "one" || len(one.GetPodResources().GetContainers()) != 2 {
		t.Errorf("%v, %v", one, err)
	}
	if got := one.GetPodResources().GetContainers()[1].GetDevices()[0].GetDeviceIds()[0]; got != "1-app" {
		t.Errorf("of two pods of one name, the one that has ended is told of: %s", got)
	}
	late, err := client.Get(t.Context(), &resourcesapi.GetPodResourcesRequest{PodNamespace: "ns", PodName: "ended"})
	if err != nil || late.GetPodResources().GetName() != "ended" {
		t.Errorf("a pod that has ended: %v, %v", late, err)
	}
	_, err = client.Get(t.Context(), &resourcesapi.GetPodResourcesRequest{PodNamespace: "ns", PodName: "two"})
	if err == nil || !strings.Contains(err.Error(), "pod two in namespace ns not found") {
		t.Error(err)
	}
	all, err := client.GetAllocatableResources(t.Context(), &resourcesapi.AllocatableResourcesRequest{})
	if err != nil || len(all.GetDevices()) != 1 || len(all.GetCpuIds()) != 3 {
		t.Errorf("%v, %v", all, err)
	}
	first, err := v1alpha1.NewPodResourcesListerClient(conn).List(t.Context(), &v1alpha1.ListPodResourcesRequest{})
	if err != nil || len(first.GetPodResources()) != 1 || first.GetPodResources()[0].GetName() != "one" {
		t.Fatalf("%v, %v", first, err)
	}
	app := first.GetPodResources()[0].GetContainers()
	if len(app) != 1 || fmt.Sprint(app[0].GetDevices()[0].GetDeviceIds()) != "[1-app]" {
		t.Errorf("%v, %v", first, err)
	}
	const want = "[v1 list false v1 get false v1 get false v1 get true v1 get_allocatable false v1alpha1  false]"
	if fmt.Sprint(asked.seen) != want {
		t.Errorf("counted %v, want %s", asked.seen, want)
	}
	info, err := os.Stat(filepath.Join(dir, socketName))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v: others than root may connect", info.Mode(), err)
	}
}
