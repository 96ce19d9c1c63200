package hostports

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// TestTaken has a program of the node, this test, that listens on host ports of pods.
func TestTaken(t *testing.T) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	number := func(a net.Addr) int32 { return int32(netip.MustParseAddrPort(a.String()).Port()) }
	port := func(p v1.ContainerPort) v1.PodSpec {
		return v1.PodSpec{Containers: []v1.Container{{Name: "c", Ports: []v1.ContainerPort{p}}}}
	}
	listens := v1.ContainerPort{HostPort: number(tcp.Addr())}
	overUDP := v1.ContainerPort{HostPort: number(udp.LocalAddr()), Protocol: v1.ProtocolUDP}
	host, sidecar, once := port(listens), port(listens), port(listens)
	host.HostNetwork = true
	sidecar.InitContainers, sidecar.Containers = sidecar.Containers, nil
	sidecar.InitContainers[0].RestartPolicy = ptr.To(v1.ContainerRestartPolicyAlways)
	once.InitContainers, once.Containers = once.Containers, nil
	for name, test := range map[string]struct {
		spec  v1.PodSpec
		taken string
	}{
		"all addresses":     {port(listens), fmt.Sprintf("hostPort %d/TCP of container c", listens.HostPort)},
		"its address":       {port(v1.ContainerPort{HostPort: listens.HostPort, HostIP: "127.0.0.1"}), "container c"},
		"another address":   {port(v1.ContainerPort{HostPort: listens.HostPort, HostIP: "192.0.2.1"}), ""},
		"UDP":               {port(overUDP), "/UDP of container c"},
		"SCTP":              {port(v1.ContainerPort{HostPort: listens.HostPort, Protocol: v1.ProtocolSCTP}), ""},
		"no hostPort":       {port(v1.ContainerPort{ContainerPort: listens.HostPort}), ""},
		"host network":      {host, ""},
		"a sidecar":         {sidecar, "container c"},
		"an init container": {once, ""},
	} {
		got := strings.Join(Taken(&v1.Pod{Spec: test.spec}), "\n")
		if (test.taken == "") != (got == "") || !strings.Contains(got, test.taken) {
			t.Errorf("%s: %q, want %q", name, got, test.taken)
		}
		if process := fmt.Sprintf("the process %d (hostports", os.Getpid()); got != "" && !strings.Contains(got, process) {
			t.Errorf("%s: %q, want %s", name, got, process)
		}
	}
}

// TestOfCRIO checks that CRI-O, which may open the host ports of its pods, is no other program.
func TestOfCRIO(t *testing.T) {
	const comm = "/proc/self/comm"
	before, err := os.ReadFile(comm)
	if err != nil {
		t.Fatal(err)
	}
	defer os.WriteFile(comm, before, 0)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := int32(netip.MustParseAddrPort(l.Addr().String()).Port())
	pod := &v1.Pod{Spec: v1.PodSpec{Containers: []v1.Container{{Ports: []v1.ContainerPort{{HostPort: port}}}}}}
	if got := Taken(pod); len(got) != 1 {
		t.Errorf("of another program: %q", got)
	}
	if err := os.WriteFile(comm, []byte(crio), 0); err != nil {
		t.Fatal(err)
	}
	if got := Taken(pod); len(got) > 0 {
		t.Errorf("of CRI-O: %q", got)
	}
}
