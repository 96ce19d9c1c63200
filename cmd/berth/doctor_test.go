package main

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berthd/berth/configs"
	"github.com/berthd/berth/internal/pods"
)

// TestPodsOf: without an agent, the pods are those of the manifests that it would read.
func TestPodsOf(t *testing.T) {
	dir := t.TempDir()
	cfg := &configs.Config{}
	cfg.Berth.Socket, cfg.Kubelet.StaticPodPath = filepath.Join(dir, "s"), filepath.Join(dir, "manifests")
	cfg.HostnameOverride = "node"
	if all, err := podsOf(t.Context(), cfg); err != nil || len(all) > 0 {
		t.Errorf("without manifests: %v, %v", all, err)
	}
	if err := os.Mkdir(cfg.Kubelet.StaticPodPath, 0o755); err != nil {
		t.Fatal(err)
	}
	const web = "{apiVersion: v1, kind: Pod, metadata: {name: web}, spec: {containers: [{name: c, image: i}]}}"
	for name, text := range map[string]string{"web.yaml": web, "web.yaml.old": web, "wrong.yaml": "{"} {
		if err := os.WriteFile(filepath.Join(cfg.Kubelet.StaticPodPath, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	all, err := podsOf(t.Context(), cfg)
	if err != nil || len(all) != 1 || pods.FullName(all[0]) != "default/web-node" {
		t.Errorf("%v, %v", all, err)
	}
}

// TestPortsTaken: the program that listens on a pod's host port is named with the pod. A pod that
// does not run has no port.
func TestPortsTaken(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := int32(netip.MustParseAddrPort(l.Addr().String()).Port())
	web := func(name string, status v1.PodStatus) *v1.Pod {
		return &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Status: status,
			Spec: v1.PodSpec{Containers: []v1.Container{{Name: "c", Ports: []v1.ContainerPort{{HostPort: port}}}}},
		}
	}
	got := portsTaken([]*v1.Pod{
		web("ended", v1.PodStatus{Phase: v1.PodSucceeded}),
		web("held", v1.PodStatus{Phase: v1.PodRunning, Reason: pods.ReasonStopped}),
		web("web", v1.PodStatus{}),
	})
	want, number := fmt.Sprintf("pod ns/web: the process %d ", os.Getpid()), fmt.Sprintf("hostPort %d/TCP", port)
	if len(got) != 1 || !strings.HasPrefix(got[0], want) || !strings.Contains(got[0], number) {
		t.Errorf("%q, want %q", got, want)
	}
}
