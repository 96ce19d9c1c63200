package probes

import (
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func tcpTask(host string, port intstr.IntOrString) task {
	return task{
		container: &v1.Container{Name: "c"},
		podIP:     "127.0.0.1",
		spec: &v1.Probe{
			ProbeHandler:   v1.ProbeHandler{TCPSocket: &v1.TCPSocketAction{Host: host, Port: port}},
			TimeoutSeconds: patient,
		},
	}
}

func TestTCP(t *testing.T) {
	ends := make(chan error, 1)
	open := listen(t, func(c net.Conn) {
		_, err := c.Read(make([]byte, 1))
		ends <- err
	})
	p := testProber(Config{})
	named := tcpTask("", intstr.FromString("db"))
	named.container.Ports = []v1.ContainerPort{{Name: "db", ContainerPort: open}}
	if got, err := p.run(t.Context(), named); err != nil || got != (reply{outcome: success}) {
		t.Errorf("open: %+v, %v", got, err)
	}
	if err := <-ends; !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, io.EOF) {
		t.Errorf("the connection ended with %v", err)
	} else if errors.Is(err, io.EOF) {
		t.Error("the connection was closed, not reset: it stays in TIME_WAIT")
	}

	got, err := p.run(t.Context(), tcpTask("", intstr.FromInt32(closedPort(t))))
	if err != nil || got.outcome != failure || !strings.Contains(got.text, "connect: connection refused") {
		t.Errorf("closed: %+v, %v", got, err)
	}
	got, err = p.run(t.Context(), tcpTask("", intstr.FromString("nope")))
	if err == nil || got.outcome != unknown {
		t.Errorf("unknown port: %+v, %v", got, err)
	}
}
