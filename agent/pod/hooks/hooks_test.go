package hooks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/berthd/berth/test/leaks"
)

func TestMain(m *testing.M) { os.Exit(leaks.Run(m)) }

// testPod is the pod of every hook in these tests.
func testPod() *v1.Pod {
	pod := &v1.Pod{}
	pod.Name, pod.Namespace, pod.UID = "pod", "ns", "uid"
	return pod
}

const inPod = ` for Container "c" in Pod "pod_ns(uid)" failed - error: `

// portOf returns the port of a server on the loopback interface.
func portOf(t *testing.T, addr net.Addr) intstr.IntOrString {
	t.Helper()
	return intstr.FromInt32(int32(addr.(*net.TCPAddr).Port))
}

// wantErr compares an error's text; the empty text stands for no error.
func wantErr(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case err == nil && want == "":
	case err == nil || want == "" || !strings.HasPrefix(err.Error(), want):
		t.Errorf("error %.300v\nwant  %.300s", err, want)
	}
}

func TestExec(t *testing.T) {
	cause := errors.New("no runtime")
	tests := []struct {
		name string
		exit int
		out  string
		err  error
		want string
	}{
		{name: "succeeds", out: "fine"},
		{
			name: "fails",
			exit: 3,
			out:  "bad \xff",
			want: `Exec lifecycle hook ([sh -c x])` + inPod + `command 'sh -c x' exited with 3`,
		},
		{name: "cannot run", err: cause, want: `Exec lifecycle hook ([sh -c x])` + inPod + `no runtime`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var seen Observation
			r := New(Config{}, Deps{
				Exec: func(_ context.Context, id string, cmd []string, timeout time.Duration) (int, []byte, error) {
					if id != "id" || len(cmd) != 3 || timeout != 0 {
						t.Errorf("exec of %v in %s within %v", cmd, id, timeout)
					}
					return tt.exit, []byte(tt.out), tt.err
				},
				Observe: func(o Observation) { seen = o },
			})
			err := r.Run(t.Context(), testPod(), "", &v1.Container{Name: "c"}, "id",
				&v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"sh", "-c", "x"}}})
			wantErr(t, err, tt.want)
			if tt.err != nil && !errors.Is(err, tt.err) {
				t.Errorf("the cause is not wrapped: %v", err)
			}
			if seen.Handler != "exec" || !errors.Is(seen.Err, err) {
				t.Errorf("observed %+v", seen)
			}
		})
	}
}

func TestGraceEnds(t *testing.T) {
	hang := func(ctx context.Context, _ string, _ []string, _ time.Duration) (int, []byte, error) {
		<-ctx.Done()
		return 0, nil, errors.New("rpc error: code = Canceled")
	}
	for name, handler := range map[string]*v1.LifecycleHandler{
		"exec":  {Exec: &v1.ExecAction{Command: []string{"sleep"}}},
		"sleep": {Sleep: &v1.SleepAction{Seconds: 60}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var seen Observation
				r := New(Config{}, Deps{Exec: hang, Observe: func(o Observation) { seen = o }})
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				err := r.Run(ctx, testPod(), "", &v1.Container{Name: "c"}, "id", handler)
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("error %v, want the context's", err)
				}
				if seen.Duration != 30*time.Second || seen.SleepTerminated != (name == "sleep") {
					t.Errorf("observed %+v", seen)
				}
			})
		})
	}
}

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		r := New(Config{}, Deps{})
		for _, seconds := range []int64{0, 5} {
			wantErr(t,
				r.Run(t.Context(), testPod(), "", &v1.Container{Name: "c"}, "id",
					&v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: seconds}}), "")
		}
		if slept := time.Since(began); slept != 5*time.Second {
			t.Errorf("slept %v", slept)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := r.Run(ctx, testPod(), "", &v1.Container{Name: "c"}, "id",
			&v1.LifecycleHandler{Sleep: &v1.SleepAction{Seconds: 5}})
		wantErr(t, err, "Sleep lifecycle hook (5)"+inPod+"container terminated before sleep hook finished")
	})
}

func TestInvalid(t *testing.T) {
	r := New(Config{}, Deps{})
	for name, handler := range map[string]*v1.LifecycleHandler{
		"tcpSocket": {TCPSocket: &v1.TCPSocketAction{}},
		"empty":     {},
	} {
		t.Run(name, func(t *testing.T) {
			wantErr(t, r.Run(t.Context(), testPod(), "127.0.0.1", &v1.Container{Name: "c"}, "id", handler),
				"Cannot run handler: invalid handler: &LifecycleHandler{")
		})
	}
	wantErr(t,
		r.Run(t.Context(), testPod(), "", &v1.Container{Name: "c"}, "id", &v1.LifecycleHandler{Exec: &v1.ExecAction{}}),
		"Exec lifecycle hook ([])"+inPod+"exec is not available")
}

func TestHTTP(t *testing.T) {
	var elsewhere atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	var got atomic.Pointer[http.Request]
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(_ http.ResponseWriter, req *http.Request) { got.Store(req) })
	mux.HandleFunc("/fail", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusInternalServerError)
	})
	mux.HandleFunc("/huge", func(w http.ResponseWriter, req *http.Request) {
		for chunk := strings.Repeat("x", 1<<20); req.Context().Err() == nil; {
			if _, err := io.WriteString(w, chunk); err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/away", func(w http.ResponseWriter, req *http.Request) {
		http.Redirect(w, req, strings.Replace(other.URL, "127.0.0.1", "localhost", 1), http.StatusFound)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	port := portOf(t, server.Listener.Addr())

	r := New(Config{}, Deps{})
	named := &v1.Container{Name: "c", Ports: []v1.ContainerPort{{Name: "web", ContainerPort: port.IntVal}}}
	tests := []struct {
		name, podIP string
		get         v1.HTTPGetAction
		want        string
	}{
		{
			"named port on the pod", "127.0.0.1",
			v1.HTTPGetAction{
				Path:        "/x?y",
				Port:        intstr.FromString("web"),
				HTTPHeaders: []v1.HTTPHeader{{Name: "Host", Value: "me"}},
			},
			"",
		},
		{
			"a host of its own", "",
			v1.HTTPGetAction{
				Path:        "/x?y",
				Port:        port,
				Host:        "127.0.0.1",
				HTTPHeaders: []v1.HTTPHeader{{Name: "Host", Value: "me"}},
			},
			"",
		},
		{"any status is an answer", "127.0.0.1", v1.HTTPGetAction{Path: "/fail", Port: port}, ""},
		{"huge body", "127.0.0.1", v1.HTTPGetAction{Path: "/huge", Port: port}, ""},
		{"redirect elsewhere is not followed", "127.0.0.1", v1.HTTPGetAction{Path: "/away", Port: port}, ""},
		{
			"no pod IP", "",
			v1.HTTPGetAction{Path: "/x", Port: port},
			"HTTP lifecycle hook (/x)" + inPod + "pod has no IP address yet",
		},
		{
			"no such port", "127.0.0.1",
			v1.HTTPGetAction{Path: "/x", Port: intstr.FromString("nope")},
			"HTTP lifecycle hook (/x)" + inPod + `find port of container c: it has no port named "nope"`,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got.Store(nil)
			wantErr(t, r.Run(t.Context(), testPod(), tt.podIP, named, "id", &v1.LifecycleHandler{HTTPGet: &tt.get}),
				tt.want)
			if req := got.Load(); strings.HasPrefix(tt.get.Path, "/x?") &&
				(req == nil || req.UserAgent() != "kube-lifecycle/1.36" || req.Host != "me" ||
					req.URL.RawQuery != "y") {
				t.Errorf("request %+v", req)
			}
		})
	}
	if elsewhere.Load() != 0 {
		t.Error("the redirect was followed")
	}
}

func TestHTTPHangs(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	killed := errors.New("container killed")
	ctx, cancel := context.WithCancelCause(t.Context())
	accepted := make(chan net.Conn)
	go func() {
		c, err := l.Accept()
		cancel(killed)
		if err != nil {
			c = nil
		}
		accepted <- c
	}()
	r := New(Config{}, Deps{})
	err = r.Run(ctx, testPod(), "127.0.0.1", &v1.Container{Name: "c"}, "id",
		&v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{Port: portOf(t, l.Addr())}})
	if !errors.Is(err, killed) {
		t.Errorf("error %v, want the context's cause", err)
	}
	if c := <-accepted; c != nil {
		c.Close()
	}
}

func TestHTTPSFallsBack(t *testing.T) {
	var seen Observation
	var events []string
	r := New(Config{}, Deps{
		Observe: func(o Observation) { seen = o },
		Events: func(pod *v1.Pod, container, eventType, reason, message string) {
			events = append(events, fmt.Sprintf("%s/%s|%s|%s|%s", pod.Name, container, eventType, reason, message))
		},
	})
	var credentials atomic.Bool
	handler := http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Authorization") != "" {
			credentials.Store(true)
		}
	})
	plain, encrypted := httptest.NewServer(handler), httptest.NewTLSServer(handler)
	defer plain.Close()
	defer encrypted.Close()
	run := func(addr net.Addr) error {
		return r.Run(t.Context(), testPod(), "127.0.0.1", &v1.Container{Name: "c"}, "id",
			&v1.LifecycleHandler{HTTPGet: &v1.HTTPGetAction{
				Scheme:      v1.URISchemeHTTPS,
				Port:        portOf(t, addr),
				HTTPHeaders: []v1.HTTPHeader{{Name: "Authorization", Value: "Bearer x"}},
			}})
	}
	wantErr(t, run(encrypted.Listener.Addr()), "")
	if seen.HTTPFallback || !credentials.Swap(false) || len(events) != 0 {
		t.Errorf("HTTPS: observed %+v, events %v", seen, events)
	}
	wantErr(t, run(plain.Listener.Addr()), "")
	want := fmt.Sprintf("pod/|Warning|LifecycleHTTPFallback|request to HTTPS lifecycle hook %s got HTTP response, "+
		"retry with HTTP succeeded", plain.Listener.Addr())
	if !seen.HTTPFallback || credentials.Load() || len(events) != 1 || events[0] != want {
		t.Errorf("HTTP: observed %+v, credentials %v, events %v, want %s", seen, credentials.Load(), events, want)
	}
}
