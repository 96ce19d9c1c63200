package server

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/agent/node/hostports"
	"github.com/berthd/berth/client/api"
)

// Why warns of a host port as long as a program of the node listens on it. That is not the error
// that a pod waits for.
func TestWhyHostPortTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := int32(netip.MustParseAddrPort(taken.Addr().String()).Port())
	pod := webPod()
	pod.Spec.Containers[0].Ports = []v1.ContainerPort{{ContainerPort: 80, HostPort: port}}
	event := v1.Event{Type: v1.EventTypeWarning, Reason: hostports.ReasonTaken, Message: "of before"}
	event.InvolvedObject.UID = pod.UID
	s := &Server{backend: &fixture{pods: []*v1.Pod{pod}, kept: []v1.Event{event}}}
	ask := func() (out api.Why) {
		t.Helper()
		w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.SetPathValue("namespace", pod.Namespace)
		r.SetPathValue("pod", pod.Name)
		s.why(w, r)
		if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil || out.LastError != nil {
			t.Fatalf("%v, last error %v", err, out.LastError)
		}
		return out
	}
	want := fmt.Sprintf("listens on hostPort %d/TCP", port)
	if got := ask().Warnings; len(got) != 1 || !strings.Contains(got[0], want) {
		t.Errorf("warnings %q, want %q", got, want)
	}
	if err := taken.Close(); err != nil {
		t.Fatal(err)
	}
	if got := ask().Warnings; len(got) > 0 {
		t.Errorf("warnings %q after the program's end", got)
	}
}
