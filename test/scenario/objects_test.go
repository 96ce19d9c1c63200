package scenario

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	"k8s.io/utils/ptr"

	apiserver "github.com/berthd/berth/agent/cluster/kube/fake"
	"github.com/berthd/berth/cri/fake"
)

// core returns a resource of the core group.
func core(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: resource}
}

// member is a machine in a bubble. Its agents are connected with an API server.
type member struct{ *machine }

func join(t *testing.T) *member {
	t.Helper()
	j := &member{newMachine(t, fake.Config{})}
	j.join()
	j.runtime.SetImage(fake.Image{Name: "img:1"})
	return j
}

// join connects the machine's agents with an API server, which has the Service of itself.
func (m *machine) join() {
	m.api = apiserver.New()
	m.api.Put(core("services"), &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "kubernetes"},
		Spec:       v1.ServiceSpec{ClusterIP: "10.0.0.1", Ports: []v1.ServicePort{{Port: 443}}},
	})
}

func (j *member) close() {
	j.stop()
	j.api.Close()
}

func (j *member) put(resource, namespace string, o runtime.Object) {
	o.(metav1.Object).SetNamespace(namespace)
	j.api.Put(core(resource), o)
}

// bind makes pods that are bound to the node.
func (j *member) bind(pods ...*v1.Pod) {
	for _, pod := range pods {
		j.put("pods", pod.Namespace, pod)
	}
}

func (j *member) configMap(name, value string) {
	j.put("configmaps", "ns", &v1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"k": value},
	})
}

// settle waits until nothing more happens, and d longer.
func settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// requests returns the requests about objects since the last call, without the time-outs of
// watches.
func (j *member) requests() []string {
	var out []string
	for _, r := range j.api.Requests() {
		if strings.Contains(r.Path, "/configmaps") || strings.Contains(r.Path, "/secrets") {
			kind := "list"
			if strings.Contains(r.Query, "watch=true") {
				kind = "watch"
			}
			out = append(out, kind+" "+r.Path)
		}
	}
	return out
}

// file returns a file of a pod's ConfigMap volume.
func (j *member) file(uid, volume, name string) string {
	data, err := os.ReadFile(filepath.Join(j.root(), "pods", uid, "volumes", "kubernetes.io~configmap", volume, name))
	if err != nil {
		return err.Error()
	}
	return string(data)
}

func apiPod(uid string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "pod-" + uid, UID: types.UID(uid)},
		Spec: v1.PodSpec{
			NodeName: nodeName, RestartPolicy: v1.RestartPolicyAlways, DNSPolicy: v1.DNSDefault,
			Volumes: []v1.Volume{
				{
					Name: "config",
					VolumeSource: v1.VolumeSource{
						ConfigMap: &v1.ConfigMapVolumeSource{
							LocalObjectReference: v1.LocalObjectReference{Name: "config"},
						},
					},
				},
			},
			Containers: []v1.Container{{
				Name: "app", Image: "img:1", ImagePullPolicy: v1.PullIfNotPresent,
				Env: []v1.EnvVar{{Name: "PASS", ValueFrom: &v1.EnvVarSource{SecretKeyRef: &v1.SecretKeySelector{
					LocalObjectReference: v1.LocalObjectReference{Name: "login"}, Key: "pass",
				}}}},
				VolumeMounts: []v1.VolumeMount{{Name: "config", MountPath: "/config"}},
			}},
		},
	}
}

// env returns the environment with which a running container was made.
func (j *member) env(container string) map[string]string {
	out := map[string]string{}
	for _, call := range j.runtime.Calls("CreateContainer") {
		if request, ok := call.Request.(*runtimeapi.CreateContainerRequest); ok && call.Container == container {
			for _, kv := range request.GetConfig().GetEnvs() {
				out[kv.Key] = string(kv.Value)
			}
		}
	}
	return out
}

func TestObjectsOfTheAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := join(t)
		defer j.close()
		j.configMap("config", "1")
		j.put("secrets", "ns", &v1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "login"}, Data: map[string][]byte{"pass": []byte("hunter2")},
		})
		j.start()
		j.bind(apiPod("u1"), apiPod("u2"))
		settle(5 * time.Second)
		for _, uid := range []string{"u1", "u2"} {
			if got := j.file(uid, "config", "k"); got != "1" {
				t.Errorf("%s read %q", uid, got)
			}
		}
		if env := j.env("app"); env["PASS"] != "hunter2" || env["KUBERNETES_SERVICE_HOST"] != "10.0.0.1" {
			t.Errorf("environment: %v", env)
		}
		if got := j.requests(); len(got) != 4 {
			t.Errorf("requests for two objects of two pods: %v", got)
		}
		settle(10 * time.Minute) // nothing happens
		for _, r := range j.api.Requests() {
			if !strings.Contains(r.Path, "/leases/") && !strings.Contains(r.Path, "/nodes/") {
				t.Errorf("an idle node asks %s %s?%s", r.Method, r.Path, r.Query)
			}
		}
		j.configMap("config", "2")
		settle(time.Second)
		if a, b := j.file("u1", "config", "k"), j.file("u2", "config", "k"); a != "2" || b != "2" {
			t.Errorf("after the change they read %q and %q", a, b)
		}
		if strings.Contains(j.log.tail(100000), "hunter2") {
			t.Error("the log quotes a Secret")
		}
		for _, name := range []string{"pod-u1", "pod-u2"} {
			j.api.Delete(core("pods"), "ns", name, ptr.To(int64(0)))
		}
		settle(time.Minute)
		if left := j.leftovers(); len(left) > 0 {
			t.Errorf("left over: %q", left)
		}
	})
}

// TestObjectsThatComeLater checks that a pod waits for a missing object and reports this in the
// kubelet's words. The pod starts when the object comes, and the agent does not ask again and
// again.
func TestObjectsThatComeLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := join(t)
		defer j.close()
		j.start()
		j.bind(apiPod("u1"))
		settle(5 * time.Minute)
		if j.runtime.Container("app") != nil {
			t.Fatal("it runs without its ConfigMap")
		}
		if got := j.requests(); len(got) != 4 {
			t.Errorf("requests for two objects that are not there: %v", got)
		}
		var events []string
		for _, e := range j.agent.agent.Events() {
			events = append(events, e.Reason+": "+e.Message)
		}
		if !slices.Contains(events,
			`FailedMount: MountVolume.SetUp failed for volume "config" : configmap "config" not found`) {
			t.Errorf("told: %q", events)
		}
		j.configMap("config", "1")
		settle(time.Second)
		events = nil
		for _, e := range j.agent.agent.Events() {
			events = append(events, e.Reason+": "+e.Message)
		}
		if !slices.Contains(events, `Failed: Error: secret "login" not found`) {
			t.Errorf("told: %q", events)
		}
		j.put("secrets", "ns", &v1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "login"}, Data: map[string][]byte{"pass": []byte("x")},
		})
		settle(time.Second)
		if j.runtime.Container("app") == nil {
			t.Error("it does not start though all is there")
		}
	})
}

// TestObjectsWhileTheAPIServerIsAway checks that pods run on with the objects that they have while
// the API server is away, also over a restart of the agent.
func TestObjectsWhileTheAPIServerIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := join(t)
		defer j.close()
		j.configMap("config", "1")
		j.put("secrets", "ns", &v1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "login"}, Data: map[string][]byte{"pass": []byte("x")},
		})
		j.start()
		j.bind(apiPod("u1"))
		settle(5 * time.Second)
		running := j.runtime.Container("app")
		if running == nil {
			t.Fatal("it does not run")
		}
		j.api.Stop()
		settle(5 * time.Minute)
		j.stop()
		j.start()
		settle(5 * time.Minute)
		if now := j.runtime.Container("app"); now == nil || now.Id != running.Id {
			t.Error("the container was replaced while the API server was away")
		}
		if got := j.file("u1", "config", "k"); got != "1" {
			t.Errorf("it reads %q", got)
		}
		j.api.Start()
		j.configMap("config", "2")
		settle(10 * time.Second)
		if got := j.file("u1", "config", "k"); got != "2" {
			t.Errorf("10 s after the API server's return it reads %q", got)
		}
		if now := j.runtime.Container("app"); now == nil || now.Id != running.Id {
			t.Error("the container was replaced when the API server came back")
		}
	})
}

// TestAccessToTheAPIServer checks the volume that the API server gives every pod: token,
// certificate, namespace.
func TestAccessToTheAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := join(t)
		defer j.close()
		j.put("configmaps", "ns", &v1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "kube-root-ca.crt"}, Data: map[string]string{"ca.crt": "certificate"},
		})
		j.start()
		pod := apiPod("u1")
		pod.Spec.ServiceAccountName, pod.Spec.Containers[0].Env = "default", nil
		pod.Spec.Volumes = []v1.Volume{
			{
				Name: "config",
				VolumeSource: v1.VolumeSource{Projected: &v1.ProjectedVolumeSource{Sources: []v1.VolumeProjection{
					{
						ServiceAccountToken: &v1.ServiceAccountTokenProjection{
							ExpirationSeconds: ptr.To(int64(3607)), Path: "token",
						},
					},
					{
						ConfigMap: &v1.ConfigMapProjection{
							LocalObjectReference: v1.LocalObjectReference{Name: "kube-root-ca.crt"},
							Items:                []v1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}},
						},
					},
					{
						DownwardAPI: &v1.DownwardAPIProjection{
							Items: []v1.DownwardAPIVolumeFile{
								{
									Path: "namespace",
									FieldRef: &v1.ObjectFieldSelector{
										APIVersion: "v1", FieldPath: "metadata.namespace",
									},
								},
							},
						},
					},
				}}},
			},
		}
		j.bind(pod)
		settle(5 * time.Second)
		dir := filepath.Join(j.root(), "pods", "u1", "volumes", "kubernetes.io~projected", "config")
		read := func(name string) string {
			data, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				return err.Error()
			}
			return string(data)
		}
		first := read("token")
		if !strings.HasPrefix(first, apiserver.TokenPrefix) || read("ca.crt") != "certificate" ||
			read("namespace") != "ns" {
			t.Errorf("token %q, ca.crt %q, namespace %q", first, read("ca.crt"), read("namespace"))
		}
		settle(49 * time.Minute)
		if next := read("token"); next == first || !strings.HasPrefix(next, apiserver.TokenPrefix) {
			t.Errorf("after 80 %% of its life the token is %q, and was %q", next, first)
		}
		timeline, _ := j.agent.agent.Timeline("u1")
		for _, text := range []string{j.log.tail(100000), fmt.Sprintf("%+v %+v", timeline, j.agent.agent.Events())} {
			if strings.Contains(text, apiserver.TokenPrefix) {
				t.Errorf("a token is quoted: %s", text)
			}
		}
		j.api.Delete(core("pods"), "ns", "pod-u1", ptr.To(int64(0)))
		settle(time.Minute)
		j.api.Requests()
		settle(2 * time.Hour)
		for _, r := range j.api.Requests() {
			if strings.HasSuffix(r.Path, "/token") {
				t.Errorf("a pod that is gone gets a token: %s", r.Path)
			}
		}
	})
}

// TestObjectsOfOneSourceOnly checks that a pod of a manifest never gets an object of the API
// server, and that a pod from the API never gets a local one.
func TestObjectsOfOneSourceOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := join(t)
		defer j.close()
		j.put("configmaps", "default", &v1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: "theirs"}, Data: map[string]string{"k": "v"},
		})
		const pod = `{apiVersion: v1, kind: Pod, metadata: {name: local, uid: s1}, spec: {containers: [{name: static, image: "img:1", imagePullPolicy: IfNotPresent,
 envFrom: [{configMapRef: {name: theirs}}]}]}}`
		if err := j.manifests.put("local.yaml", []byte(pod)); err != nil {
			t.Fatal(err)
		}
		if err := j.manifests.put("objects.yaml",
			[]byte("{apiVersion: v1, kind: ConfigMap, metadata: {name: config, namespace: ns}, data: {k: "+
				"local}}\n")); err != nil {
			t.Fatal(err)
		}
		j.start()
		j.bind(apiPod("u1"))
		settle(time.Minute)
		if j.runtime.Container("static") != nil {
			t.Error("a manifest's pod got an object of the API server")
		}
		if j.runtime.Container("app") != nil || j.file("u1", "config", "k") == "local" {
			t.Error("a pod from the API server got a local object")
		}
	})
}
