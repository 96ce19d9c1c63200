//go:build cluster

package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log"
	"math"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/test/env"
)

// metricsAPI makes the API server ask for metrics.k8s.io here: at the node's address, by endpoints,
// without kube-proxy. Its account may read a node's metrics, as metrics-server's may.
const metricsAPI = `apiVersion: v1
kind: ServiceAccount
metadata: {name: metrics-server, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: system:metrics-server}
rules: [{apiGroups: [""], resources: [nodes/metrics], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: system:metrics-server}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: system:metrics-server}
subjects: [{kind: ServiceAccount, name: metrics-server, namespace: kube-system}]
---
apiVersion: v1
kind: Service
metadata: {name: metrics-server, namespace: kube-system}
spec: {ports: [{port: 443, targetPort: 4443}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: metrics-server, namespace: kube-system, labels: {kubernetes.io/service-name: metrics-server}}
addressType: IPv4
endpoints: [{addresses: [%[1]s], conditions: {ready: true}}]
ports: [{port: 4443, protocol: TCP}]
---
apiVersion: apiregistration.k8s.io/v1
kind: APIService
metadata: {name: v1beta1.metrics.k8s.io}
spec:
  group: metrics.k8s.io
  version: v1beta1
  groupPriorityMinimum: 100
  versionPriority: 100
  service: {name: metrics-server, namespace: kube-system}
  caBundle: %[2]s
`

// metricsServer answers metrics.k8s.io/v1beta1 from the node's /metrics/resource, which it reads
// with a token. This is what metrics-server does, without its memory of the last minutes. CPU usage
// is the mean since the server started.
type metricsServer struct {
	t      *testing.T
	scrape caller
	first  map[string]sample
}

// sample is one value of /metrics/resource.
type sample struct {
	value float64
	at    time.Time
}

// serveMetricsAPI serves until the test ends. The cluster's API server needs the flag
// --enable-aggregator-routing.
func serveMetricsAPI(t *testing.T, c *Cluster) {
	t.Helper()
	authority, err := os.ReadFile(c.PKI.CA.File)
	if err != nil {
		t.Fatal(err)
	}
	c.Apply(t, fmt.Sprintf(metricsAPI, env.HostIP, base64.StdEncoding.EncodeToString(authority)))
	c.may(t, "system:serviceaccount:kube-system:metrics-server", "metrics")
	s := &metricsServer{
		t: t,
		scrape: caller{
			c: c, token: strings.TrimSpace(c.Kubectl(t, "create", "token", "metrics-server", "-n", "kube-system")),
		},
	}
	if s.first, err = s.read(); err != nil {
		t.Fatal(err)
	}
	pair, err := c.PKI.CA.Issue(t.TempDir(), "metrics-server", Subject{
		User: "metrics-server", Hosts: []string{"metrics-server.kube-system.svc"},
	})
	if err != nil {
		t.Fatal(err)
	}
	cert, err := tls.LoadX509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	proxies := x509.NewCertPool()
	if pem, err := os.ReadFile(c.PKI.FrontProxy.File); err != nil || !proxies.AppendCertsFromPEM(pem) {
		t.Fatalf("read the front proxy's authority: %v", err)
	}
	var l net.Listener
	if err := c.In(func() (err error) { l, err = net.Listen("tcp", env.HostIP+":4443"); return err }); err != nil {
		t.Fatal(err)
	}
	server := &http.Server{
		Handler: s,
		TLSConfig: &tls.Config{
			Certificates: []tls.Certificate{cert}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: proxies,
		},
		ErrorLog: log.New(t.Output(), "", 0),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.ServeTLS(l, "", "")
	}()
	t.Cleanup(func() {
		server.Close()
		<-done
	})
	c.Kubectl(t, "wait", "--for=condition=Available", "apiservice/v1beta1.metrics.k8s.io", "--timeout=180s")
}

var sampleLine = regexp.MustCompile(`^(\w+)(?:\{(.*)\})? (\S+)(?: (\d+))?$`)

// read scrapes the node. The keys are the names and labels as they are in the answer.
func (s *metricsServer) read() (map[string]sample, error) {
	code, text := s.scrape.do(s.t, http.MethodGet, "/metrics/resource")
	if code != http.StatusOK {
		return nil, fmt.Errorf("scrape the node: %d %s", code, text)
	}
	out := map[string]sample{}
	for line := range strings.Lines(text) {
		m := sampleLine.FindStringSubmatch(strings.TrimSpace(line))
		if m == nil {
			continue
		}
		value, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			return nil, fmt.Errorf("read %q: %w", line, err)
		}
		at := time.Now()
		if ms, err := strconv.ParseInt(m[4], 10, 64); err == nil {
			at = time.UnixMilli(ms)
		}
		out[m[1]+"{"+m[2]+"}"] = sample{value, at}
	}
	return out, nil
}

// usage returns cpu and memory of what has these labels, nil if they are not known.
func (s *metricsServer) usage(now map[string]sample, kind, labels string) map[string]string {
	cpu, memory := kind+"_cpu_usage_seconds_total{"+labels+"}", kind+"_memory_working_set_bytes{"+labels+"}"
	used, since := now[cpu], s.first[cpu]
	if _, known := now[memory]; !known || !used.at.After(since.at) || since.at.IsZero() {
		return nil
	}
	nanocores := math.Round((used.value - since.value) / used.at.Sub(since.at).Seconds() * 1e9)
	return map[string]string{"cpu": fmt.Sprintf("%.0fn", nanocores), "memory": fmt.Sprintf("%.0f", now[memory].value)}
}

// ServeHTTP answers discovery and lists.
func (s *metricsServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const group = "metrics.k8s.io/v1beta1"
	now, err := s.read()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	answer := map[string]any{"apiVersion": group}
	switch path := strings.TrimPrefix(r.URL.Path, "/apis/"+group); {
	case path == "" || path == "/":
		answer = map[string]any{
			"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group, "resources": []any{
				map[string]any{
					"name": "nodes", "kind": "NodeMetrics", "namespaced": false, "verbs": []string{"get", "list"},
				},
				map[string]any{
					"name": "pods", "kind": "PodMetrics", "namespaced": true, "verbs": []string{"get", "list"},
				},
			},
		}
	case path == "/nodes":
		answer["kind"], answer["items"] = "NodeMetricsList", []any{map[string]any{
			"metadata": map[string]any{"name": env.NodeName}, "timestamp": time.Now().UTC().Format(time.RFC3339),
			"window": "10s", "usage": s.usage(now, "node", ""),
		}}
	case strings.HasSuffix(path, "/pods"):
		answer["kind"], answer["items"] = "PodMetricsList", s.pods(now)
	default:
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

var containerLabels = regexp.MustCompile(
	`^container_cpu_usage_seconds_total\{(container="([^"]*)",namespace="([^"]*)",pod="([^"]*)")\}$`,
)

// pods returns the pods whose containers are known now and were known when the server started.
func (s *metricsServer) pods(now map[string]sample) []any {
	containers := map[[2]string][]any{}
	for key := range now {
		if m := containerLabels.FindStringSubmatch(key); m != nil {
			if usage := s.usage(now, "container", m[1]); usage != nil {
				pod := [2]string{m[3], m[4]}
				containers[pod] = append(containers[pod], map[string]any{"name": m[2], "usage": usage})
			}
		}
	}
	out := []any{}
	for pod, list := range containers {
		out = append(out, map[string]any{
			"metadata":  map[string]any{"namespace": pod[0], "name": pod[1]},
			"timestamp": time.Now().UTC().Format(time.RFC3339), "window": "10s", "containers": list,
		})
	}
	return out
}

// burner is a pod that uses as much cpu as it may.
const burner = `apiVersion: v1
kind: Pod
metadata: {name: burner}
spec:
  terminationGracePeriodSeconds: 0
  containers:
    - name: main
      image: berth.local/busybox:v1
      command: [sh, -c, "while :; do :; done"]
      resources: {limits: {cpu: 200m, memory: 32Mi}}
    - {name: idle, image: berth.local/busybox:v1, command: [sleep, "3600"]}
`

// TestTop checks kubectl top, and with it what the node answers to clients that read its metrics as
// metrics-server does.
func TestTop(t *testing.T) {
	c := Start(t, Options{APIServer: []string{"--enable-aggregator-routing"}})
	c.StartNode(t, env.AgentOptions{})
	c.WaitNodeReady(t)
	c.Apply(t, burner)
	c.Kubectl(t, "wait", "--for=condition=Ready", "pod/burner", "--timeout=180s")
	checkTop(t, c)
}

// checkTop checks what kubectl top prints about the pod burner and the node.
func checkTop(t *testing.T, c *Cluster) {
	t.Helper()
	serveMetricsAPI(t, c)
	number := func(pattern string, group int, out string) (int, error) {
		m := regexp.MustCompile(pattern).FindStringSubmatch(out)
		if m == nil {
			return 0, fmt.Errorf("no %s", pattern)
		}
		return strconv.Atoi(m[group])
	}
	c.Eventually(t, func(out string) error {
		used, err := number(`(?m)^burner +main +(\d+)m +\d+Mi`, 1, out)
		if err == nil && (used < 20 || used > 260) {
			err = fmt.Errorf("a container that may use 200m uses %dm", used)
		}
		if err != nil {
			return err
		}
		idle, err := number(`(?m)^burner +idle +(\d+)m`, 1, out)
		if err == nil && idle > 20 {
			err = fmt.Errorf("an idle container uses %dm", idle)
		}
		return err
	}, "top", "pods", "--containers")
	c.Eventually(t, func(out string) error {
		memory, err := number(`(?m)^`+env.NodeName+` +(\d+)m +\d+% +(\d+)Mi +\d+%`, 2, out)
		if err == nil && memory < 10 {
			err = fmt.Errorf("the node uses %d Mi", memory)
		}
		return err
	}, "top", "nodes")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, errOut, err := c.TryKubectl(ctx, "", "top", "pod", "nobody"); ExitCode(err) != 1 {
		t.Errorf("a pod that is not there: %v %s", err, errOut)
	}
}
