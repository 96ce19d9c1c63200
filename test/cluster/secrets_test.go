//go:build cluster

package cluster

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berthd/berth/test/csidriver"
	"github.com/berthd/berth/test/env"
)

// The secrets of this file's pods. Each is a text that appears nowhere else.
const (
	secretEnv     = "hunter2-environment"
	secretFile    = "hunter2-volume-file"
	secretPath    = "hunter2-sub-path"
	secretPull    = "hunter2-pull-password"
	secretBroken  = "hunter2-broken-pull-secret"
	secretLocal   = "hunter2-local-object"
	secretBadYAML = "hunter2-wrong-manifest"
	secretBinary  = "hunter2-binary"
	secretCaller  = "hunter2-callers-bearer"
	secretHeader  = "hunter2-manifest-url-header"
	secretStage   = "hunter2-csi-stage"
	secretPublish = "hunter2-csi-publish"
	secretExpand  = "hunter2-csi-expand"
	secretInline  = "hunter2-csi-inline"
)

// drivenSecrets are a storage driver that asks for tokens, a driver that gets tokens among the
// secrets, and pods with volumes of both. The volumes log in whenever a driver is called: one has a
// claim that grows, and one is the pod's own. The second driver fails to publish.
const drivenSecrets = `apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: tokens.berth.dev}
spec: {attachRequired: false, volumeLifecycleModes: [Persistent, Ephemeral], podInfoOnMount: true,
  requiresRepublish: true, tokenRequests: [{audience: csi-vault}]}
---
apiVersion: storage.k8s.io/v1
kind: CSIDriver
metadata: {name: fails.berth.dev}
spec: {attachRequired: false, volumeLifecycleModes: [Ephemeral], serviceAccountTokenInSecrets: true,
  tokenRequests: [{audience: csi-fails}]}
---
apiVersion: v1
kind: Secret
metadata: {name: stage, namespace: kube-system}
stringData: {pass: ` + secretStage + `}
---
apiVersion: v1
kind: Secret
metadata: {name: publish, namespace: kube-system}
stringData: {pass: ` + secretPublish + `}
---
apiVersion: v1
kind: Secret
metadata: {name: expand, namespace: kube-system}
stringData: {pass: ` + secretExpand + `}
---
apiVersion: v1
kind: Secret
metadata: {name: inline}
stringData: {pass: ` + secretInline + `}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: grows-0}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: grows
  csi:
    driver: tokens.berth.dev
    volumeHandle: disk-0
    nodeStageSecretRef: {name: stage, namespace: kube-system}
    nodePublishSecretRef: {name: publish, namespace: kube-system}
    nodeExpandSecretRef: {name: expand, namespace: kube-system}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: grows}
provisioner: tokens.berth.dev
allowVolumeExpansion: true
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec: {accessModes: [ReadWriteOnce], storageClassName: grows, resources: {requests: {storage: 1Gi}}}
`

// drivenPods are the pods with those volumes.
const drivenPods = `apiVersion: v1
kind: Pod
metadata: {name: driven}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: main
      image: berth.local/busybox:v1
      command: [sleep, "3600"]
      volumeMounts: [{name: v, mountPath: /v}, {name: own, mountPath: /own}]
  volumes:
    - {name: v, persistentVolumeClaim: {claimName: data}}
    - {name: own, csi: {driver: tokens.berth.dev, nodePublishSecretRef: {name: inline}}}
---
apiVersion: v1
kind: Pod
metadata: {name: unpublished}
spec:
  containers: [{name: main, image: berth.local/busybox:v1, volumeMounts: [{name: v, mountPath: /v}]}]
  volumes: [{name: v, csi: {driver: fails.berth.dev, nodePublishSecretRef: {name: inline}}}]
`

// confidants are pods that use Secrets in every way, some of them wrongly, and the Secrets.
const confidants = `apiVersion: v1
kind: Secret
metadata: {name: keys}
stringData: {env: ` + secretEnv + `, file: ` + secretFile + `, path: ../` + secretPath + `}
---
apiVersion: v1
kind: Secret
metadata: {name: pull}
type: kubernetes.io/dockerconfigjson
stringData: {.dockerconfigjson: '{"auths":{"127.0.0.1:5000":{"username":"puller","password":"` + secretPull + `"}}}'}
---
apiVersion: v1
kind: Secret
metadata: {name: broken}
type: kubernetes.io/dockerconfigjson
stringData: {.dockerconfigjson: '{"auths":{"127.0.0.1:5000":{"auth":"` + secretBroken + `"}}}'}
---
apiVersion: v1
kind: Secret
metadata: {name: binary}
data: {value: %s}
---
apiVersion: v1
kind: Pod
metadata: {name: good}
spec:
  terminationGracePeriodSeconds: 1
  containers:
    - name: main
      image: berth.local/busybox:v1
      command: [sh, -c, 'test "$ENV" = ` + "$(cat /keys/env)" + ` && exec sleep 3600']
      env: [{name: ENV, valueFrom: {secretKeyRef: {name: keys, key: env}}}]
      envFrom: [{prefix: ALL_, secretRef: {name: keys}}]
      livenessProbe: {exec: {command: [sh, -c, 'test -n "$ENV"']}, periodSeconds: 1, timeoutSeconds: 30}
      lifecycle: {postStart: {exec: {command: [sh, -c, 'test -n "$ENV"']}}}
      volumeMounts: [{name: keys, mountPath: /keys}, {name: keys, mountPath: /one, subPath: file},
        {name: tokens, mountPath: /tokens}]
  volumes:
    - {name: keys, secret: {secretName: keys, defaultMode: 0400}}
    - name: tokens
      projected:
        sources:
          - {serviceAccountToken: {path: vault, audience: vault, expirationSeconds: 600}}
          - {secret: {name: keys, items: [{key: file, path: again}]}}
---
apiVersion: v1
kind: Pod
metadata: {name: no-key}
spec:
  containers: [{name: main, image: berth.local/busybox:v1, env: [{name: OK,
    valueFrom: {secretKeyRef: {name: keys, key: env}}}, {name: ABSENT, valueFrom: {secretKeyRef: {name: keys,
      key: nope}}}]}]
---
apiVersion: v1
kind: Pod
metadata: {name: tattler}
spec:
  containers:
    - {name: main, image: berth.local/busybox:v1, command: [sleep, "3600"],
        env: [{name: ENV, valueFrom: {secretKeyRef: {name: keys, key: env}}}],
       lifecycle: {postStart: {exec: {command: [sh, -c, 'echo "$ENV"; echo "$ENV" >&2; exit 3']}}}}
---
apiVersion: v1
kind: Pod
metadata: {name: no-file}
spec:
  containers: [{name: main, image: berth.local/busybox:v1, volumeMounts: [{name: keys, mountPath: /keys}]}]
  volumes: [{name: keys, secret: {secretName: keys, items: [{key: file, path: file}, {key: nope, path: nope}]}}]
---
apiVersion: v1
kind: Pod
metadata: {name: bad-path}
spec:
  containers:
    - name: main
      image: berth.local/busybox:v1
      command: [sleep, "3600"]
      env: [{name: PLACE, valueFrom: {secretKeyRef: {name: keys, key: path}}}]
      volumeMounts: [{name: scratch, mountPath: /scratch, subPathExpr: $(PLACE)}]
  volumes: [{name: scratch, emptyDir: {}}]
---
apiVersion: v1
kind: Pod
metadata: {name: binary}
spec:
  containers: [{name: main, image: berth.local/busybox:v1, command: [sleep, "3600"],
    env: [{name: VALUE, valueFrom: {secretKeyRef: {name: binary, key: value}}}]}]
---
apiVersion: v1
kind: Pod
metadata: {name: puller}
spec:
  imagePullSecrets: [{name: pull}, {name: broken}]
  containers: [{name: main, image: "127.0.0.1:5000/private:v1"}]
`

// localSecrets is a manifest with a Secret and its pod. localWrong is one whose Secret cannot be
// read.
const (
	localSecrets = `apiVersion: v1
kind: Secret
metadata: {name: local}
stringData: {env: ` + secretLocal + `}
---
apiVersion: v1
kind: Pod
metadata: {name: static}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: main, image: berth.local/busybox:v1, command: [sleep, "3600"],
    envFrom: [{secretRef: {name: local}}]}]
`
	localWrong = `apiVersion: v1
kind: Secret
metadata: {name: wrong}
data: {env: ` + secretBadYAML + `}
stringData: [` + secretBadYAML + `]
`
)

// TestSecretsStayIn checks that secrets are in their containers and nowhere else: not in the most
// detailed log, an event, a status, a timeline or a metric, nor in anything else that the agent
// answers or keeps. This holds also when pulls, volumes and environments fail, when the registry
// repeats what it was sent, and after the agent was killed.
func TestSecretsStayIn(t *testing.T) {
	c := Start(t, Options{})
	serveEcho(t, c)
	manifests := serveManifests(t, c)
	traces := c.StartCollector(t)
	node := c.StartNode(t, env.AgentOptions{
		Kubelet: "staticPodURL: http://" + manifests + "/\nstaticPodURLHeader: {Authorization: [" + secretHeader +
			"]}\nhttpCheckFrequency: 1s\ntracing: {samplingRatePerMillion: 1000000}\n",
		Flags: []string{"--v", "10"},
	})
	c.WaitNodeReady(t)
	account(t, c)
	node.WriteManifest(t, "static.yaml", localSecrets)
	node.WriteManifest(t, "wrong.yaml", localWrong)
	binary := base64.StdEncoding.EncodeToString([]byte(secretBinary + "\x00\xff" + secretBinary))
	c.Apply(t, fmt.Sprintf(confidants, binary))
	tokens := driven(t, c, node)
	c.Kubectl(t, "wait", "--for=condition=Ready", "pod/good", "--timeout=180s")
	node.WaitReady(t, "static-"+env.NodeName)
	secrets := []string{
		secretEnv, secretFile, secretPath, secretPull, secretBroken, secretLocal, secretBadYAML, secretBinary,
		secretCaller, secretHeader, secretStage, secretPublish, secretExpand, secretInline,
	}
	secrets = append(secrets, tokens...)
	for _, path := range []string{"/tokens/vault", "/var/run/secrets/kubernetes.io/serviceaccount/token"} {
		secrets = append(secrets, c.Kubectl(t, "exec", "good", "--", "cat", path))
	}
	for _, s := range secrets[:len(secrets):len(secrets)] {
		if strings.HasPrefix(s, "hunter2") {
			secrets = append(secrets, base64.StdEncoding.EncodeToString([]byte(s))[:len(s)])
		}
	}
	secrets = append(secrets, base64.StdEncoding.EncodeToString([]byte("puller:"+secretPull)))

	faults := map[string]string{
		"no-key": "couldn't find key nope", "no-file": "references non-existent secret key: nope", "bad-path": "Failed",
		"puller": "403 Forbidden", "binary": "Error", "tattler": "PostStartHook failed: the command exited with 3",
		"unpublished": "told to fail",
	}
	for pod, text := range faults {
		c.Eventually(t, Contains(text), "get", "events", "--field-selector", "involvedObject.name="+pod)
	}
	if code, _ := (caller{c: c, token: secretCaller}).do(t, http.MethodGet, "/pods"); code != http.StatusUnauthorized {
		t.Errorf("an unknown token is answered with %d", code)
	}
	env.Eventually(t, "traces of passes, their steps and the runtime's calls", func() error {
		return Contains(`"syncPod"`, `"runtime.v1.RuntimeService/RunPodSandbox"`, `"runtime.v1.ImageService/PullImage"`,
			`"volumes"`, "references non-existent secret key", "default/good")(traces.Text())
	})
	node.Kill9()
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	node.WaitReady(t, "good", "driven", "static-"+env.NodeName)
	c.WaitNodeReady(t)
	c.Eventually(t, Contains("CreateContainerConfigError"), "get", "pods", "-o", "yaml")

	said := saidBy(t, c, node)
	said["traces"] = traces.Text()
	for where, text := range said {
		for _, secret := range secrets {
			if i := strings.Index(text, secret); i >= 0 {
				t.Errorf("%s tells a secret: …%s", where, text[max(0, i-150):min(len(text), i+len(secret)+20)])
			}
		}
	}
	// A check is worth nothing if its text is missing.
	for where, want := range map[string]string{
		"the log": "good", "why default/good": "good", "/metrics": "kubelet_node_name", "/pods": "secretKeyRef",
		"/configz": "staticPodURL", "events of the API": "Failed",
		"manifests -o yaml": "wrong.yaml", "files": filepath.Join("berth", "pods"),
		"pods of the API": "CreateContainerConfigError", "/debug/pprof/cmdline": "berth",
		"/flagz": "kubeconfig=", "/statusz": "Binary version", "traces": "default/good",
	} {
		if !strings.Contains(said[where], want) {
			t.Errorf("%s does not say %q: nothing was looked at", where, want)
		}
	}
}

// driven starts storage drivers and pods with their volumes. It checks that each driver got its
// secrets, and returns the tokens that the drivers got.
func driven(t *testing.T, c *Cluster, node *env.Agent) []string {
	t.Helper()
	works, _ := startCSIDriver(t, c, node, "tokens.berth.dev", "-can", "STAGE_UNSTAGE_VOLUME,EXPAND_VOLUME")
	fails, _ := startCSIDriver(t, c, node, "fails.berth.dev")
	if err := csidriver.Set(fails, "NodePublishVolume", csidriver.Fail); err != nil {
		t.Fatal(err)
	}
	c.Apply(t, drivenSecrets)
	c.Eventually(t, Contains("Bound"), "get", "pvc", "data", "-o", "jsonpath={.status.phase}")
	grow(t, c, "2Gi")
	c.Apply(t, drivenPods)
	c.Kubectl(t, "wait", "--for=condition=Ready", "pod/driven", "--timeout=180s")
	c.Eventually(t, Contains("told to fail"), "get", "events", "--field-selector", "involvedObject.name=unpublished")
	driverGot(t, works, secretStage, secretPublish, secretExpand, secretInline)
	driverGot(t, fails, secretInline)
	var tokens []string
	for _, dir := range []string{works, fails} {
		calls, err := csidriver.Calls(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, call := range calls {
			var r struct{ VolumeContext, Secrets map[string]string }
			if err := json.Unmarshal(call.Request, &r); err != nil {
				t.Fatal(err)
			}
			text := r.VolumeContext["csi.storage.k8s.io/serviceAccount.tokens"]
			if secret, err := base64.StdEncoding.DecodeString(
				r.Secrets["csi.storage.k8s.io/serviceAccount.tokens"],
			); err == nil && len(secret) > 0 {
				text = string(secret)
			} else if text == "" {
				text = r.Secrets["csi.storage.k8s.io/serviceAccount.tokens"]
			}
			var list map[string]struct{ Token string }
			if text != "" && json.Unmarshal([]byte(text), &list) != nil {
				t.Errorf("%s got tokens that are none", call.Method)
			}
			for _, one := range list {
				tokens = append(tokens, one.Token)
			}
		}
	}
	if len(tokens) < 3 {
		t.Errorf("the drivers got %d tokens", len(tokens))
	}
	return tokens
}

// saidBy collects everything that an agent answers and keeps, except the volumes of its pods.
func saidBy(t *testing.T, c *Cluster, node *env.Agent) map[string]string {
	t.Helper()
	said := map[string]string{}
	log, err := os.ReadFile(node.Log)
	if err != nil {
		t.Fatal(err)
	}
	said["the log"] = string(log)
	pods := []string{
		"good", "no-key", "no-file", "tattler", "bad-path", "binary", "puller", "driven", "unpublished",
		"static-" + env.NodeName,
	}
	for _, args := range [][]string{
		{"events", "-o", "yaml"}, {"manifests", "-o", "yaml"}, {"ps", "-o", "yaml"}, {"images", "-o", "yaml"},
	} {
		out, errOut, _ := node.CLI(args...)
		said[strings.Join(args, " ")] = out + errOut
	}
	for _, pod := range pods {
		for _, args := range [][]string{
			{"why", "default/" + pod}, {"why", "default/" + pod, "-o", "yaml"}, {"describe", "default/" + pod},
		} {
			out, errOut, _ := node.CLI(args...)
			said[strings.Join(args, " ")] = out + errOut
		}
	}
	for _, path := range []string{
		"/metrics", "/metrics/resource", "/metrics/cadvisor", "/metrics/probes", "/metrics/slis", "/stats/summary",
		"/configz", "/pods", "/runningpods/", "/healthz?verbose",
		"/debug/pprof/cmdline", "/debug/pprof/goroutine?debug=2", "/berth/v1/events", "/berth/v1/manifests", "/flagz",
		"/statusz",
	} {
		resp, err := node.Get(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		said[path] = string(body)
	}
	said["events of the API"] = c.Kubectl(t, "get", "events", "-A", "-o", "yaml")
	said["pods of the API"] = c.Kubectl(t, "get", "pods", "-o", "yaml")
	said["claims of the API"] = c.Kubectl(t, "get", "pvc", "-o", "yaml")
	said["the Node of the API"] = c.Kubectl(t, "get", "nodes", "-o", "yaml")
	said["files"] = filesOf(t, node.RootDir)
	return said
}

// filesOf returns the files below an agent's root directory, their names and contents, without the
// volumes, which belong to the pods.
func filesOf(t *testing.T, root string) string {
	t.Helper()
	var out bytes.Buffer
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // the agent runs meanwhile
		case err != nil:
			return err
		}
		if d.IsDir() && (d.Name() == "volumes" || d.Name() == "volume-subpaths") {
			return fs.SkipDir
		}
		fmt.Fprintln(&out, path)
		if !d.Type().IsRegular() {
			return nil
		}
		text, err := os.ReadFile(path)
		out.Write(text)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// serveEcho serves a registry that refuses every request and repeats what it was sent.
func serveEcho(t *testing.T, c *Cluster) {
	t.Helper()
	c.serve(t, "127.0.0.1:5000", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		sent := r.Header.Get("Authorization")
		if sent == "" {
			w.Header().Set("WWW-Authenticate", `Basic realm="private"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		user, password, _ := r.BasicAuth()
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		message := fmt.Sprintf("denied: %s, user %s, password %s", sent, user, password)
		_ = json.NewEncoder(w).Encode(map[string]any{
			"errors": []any{map[string]any{"code": "DENIED", "message": message, "detail": message}},
		})
	}))
}

// serveManifests serves manifests and repeats what it was sent. It returns its address.
func serveManifests(t *testing.T, c *Cluster) string {
	t.Helper()
	return c.serve(t, "127.0.0.1:0", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		http.Error(w, "no manifests for "+r.Header.Get("Authorization"), http.StatusForbidden)
	}))
}

// serve serves HTTP in the cluster's network until the test ends, and returns the address.
func (c *Cluster) serve(t *testing.T, address string, handler http.Handler) string {
	t.Helper()
	var l net.Listener
	if err := c.In(func() (err error) { l, err = net.Listen("tcp", address); return err }); err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(l)
	}()
	t.Cleanup(func() {
		server.Close()
		<-done
	})
	return l.Addr().String()
}
