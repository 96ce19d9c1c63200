//go:build cluster

package cluster

import (
	"context"
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/berthd/berth/test/env"
)

// metricsAPI makes the API server ask for metrics.k8s.io at the node's address, by endpoints,
// without kube-proxy. The rights are exactly those of metrics-server's own manifest.
const metricsAPI = `apiVersion: v1
kind: ServiceAccount
metadata: {name: metrics-server, namespace: kube-system}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: system:metrics-server}
rules:
  - {apiGroups: [""], resources: [nodes/metrics], verbs: [get]}
  - {apiGroups: [""], resources: [pods, nodes], verbs: [get, list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: system:metrics-server}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: system:metrics-server}
subjects: [{kind: ServiceAccount, name: metrics-server, namespace: kube-system}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: "metrics-server:system:auth-delegator"}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: system:auth-delegator}
subjects: [{kind: ServiceAccount, name: metrics-server, namespace: kube-system}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: metrics-server-auth-reader, namespace: kube-system}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: extension-apiserver-authentication-reader}
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

// serveMetricsAPI runs metrics-server until the test ends. It scrapes the node, and asks the
// cluster's API server who its callers are and what they may do. That API server needs the flag
// --enable-aggregator-routing.
func serveMetricsAPI(t *testing.T, c *Cluster) {
	t.Helper()
	authority, err := os.ReadFile(c.PKI.CA.File)
	if err != nil {
		t.Fatal(err)
	}
	c.Apply(t, fmt.Sprintf(metricsAPI, env.HostIP, base64.StdEncoding.EncodeToString(authority)))
	// metrics-server ends if it may not read this when it starts.
	c.Eventually(t, Contains("yes"), "auth", "can-i", "get", "configmaps/extension-apiserver-authentication",
		"-n", "kube-system", "--as", "system:serviceaccount:kube-system:metrics-server")
	kubeconfig := filepath.Join(c.Folder, "metrics-server.conf")
	token := strings.TrimSpace(c.Kubectl(t, "create", "token", "metrics-server", "-n", "kube-system"))
	if err := WriteKubeconfig(kubeconfig, c.Config().Host, c.PKI.CA.File, map[string]any{"token": token}); err != nil {
		t.Fatal(err)
	}
	pair, err := c.PKI.CA.Issue(c.Folder, "metrics-server", Subject{
		User: "metrics-server", Hosts: []string{"metrics-server.kube-system.svc"},
	})
	if err != nil {
		t.Fatal(err)
	}
	server := c.program("metrics-server",
		"--kubeconfig", kubeconfig, "--authentication-kubeconfig", kubeconfig, "--authorization-kubeconfig", kubeconfig,
		"--secure-port", "4443", "--tls-cert-file", pair.Cert, "--tls-private-key-file", pair.Key,
		"--kubelet-insecure-tls", "--kubelet-preferred-address-types", "InternalIP", "--kubelet-use-node-status-port",
		"--metric-resolution", "10s", "--kubelet-request-timeout", "9s",
	)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	c.Kubectl(t, "wait", "--for=condition=Available", "apiservice/v1beta1.metrics.k8s.io", "--timeout=180s")
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

// TestTop checks kubectl top, and with it what the node answers to metrics-server.
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
