package cri_test

import (
	"errors"
	"maps"
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/berthd/berth/cri"
)

func testPod() *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web-0", Namespace: "shop", UID: "0b5c2a66-8f5e-4a1c-9f6e-1c7d4f0a9e11",
			Labels:                     map[string]string{"app": "web", cri.LabelPodName: "a user's lie"},
			Annotations:                map[string]string{"kubernetes.io/config.source": "file"},
			DeletionGracePeriodSeconds: ptr.To[int64](7),
		},
		Spec: v1.PodSpec{TerminationGracePeriodSeconds: ptr.To[int64](30)},
	}
}

func testContainer() *v1.Container {
	return &v1.Container{
		Name: "test_container", Image: "foo/image:v1",
		TerminationMessagePath:   "/dev/termination-log",
		TerminationMessagePolicy: v1.TerminationMessageReadFile,
		Lifecycle: &v1.Lifecycle{PreStop: &v1.LifecycleHandler{
			HTTPGet: &v1.HTTPGetAction{Path: "/stop", Port: intstr.FromInt32(8080)},
		}},
		Ports: []v1.ContainerPort{{Name: "http", ContainerPort: 8080, Protocol: v1.ProtocolTCP}},
	}
}

// The texts are what a kubelet 1.36 writes for the same pod. Each must stay the same to the byte.
func TestLabelsAreTheKubelets(t *testing.T) {
	pod, container := testPod(), testContainer()
	all := []string{"*/*"}
	identity := map[string]string{
		"io.kubernetes.pod.name":      "web-0",
		"io.kubernetes.pod.namespace": "shop",
		"io.kubernetes.pod.uid":       "0b5c2a66-8f5e-4a1c-9f6e-1c7d4f0a9e11",
	}
	sandbox := maps.Clone(identity)
	sandbox["app"] = "web"
	named := maps.Clone(identity)
	named["io.kubernetes.container.name"] = "test_container"
	for name, c := range map[string]struct{ got, want map[string]string }{
		"sandbox labels":      {cri.SandboxLabels(pod), sandbox},
		"sandbox annotations": {cri.SandboxAnnotations(pod, all), map[string]string{"kubernetes.io/config.source": "file"}},
		"container labels":    {cri.ContainerLabels(pod, container.Name), named},
		"container annotations": {cri.ContainerAnnotations(pod, container, 3), map[string]string{
			"io.kubernetes.container.ports": `[{"name":"http","containerPort":8080,"protocol":"TCP"}]`,

			"io.kubernetes.container.hash":                     "8e45cbd0",
			"io.kubernetes.container.restartCount":             "3",
			"io.kubernetes.container.terminationMessagePath":   "/dev/termination-log",
			"io.kubernetes.container.terminationMessagePolicy": "File",
			"io.kubernetes.container.preStopHandler":           `{"httpGet":{"path":"/stop","port":8080}}`,
			"io.kubernetes.pod.terminationGracePeriod":         "30",
			"io.kubernetes.pod.deletionGracePeriod":            "7",
		}},
		"annotations of a bare container": {cri.ContainerAnnotations(&v1.Pod{}, &v1.Container{}, 0), map[string]string{
			"io.kubernetes.container.hash":                     "edd67cc4",
			"io.kubernetes.container.restartCount":             "0",
			"io.kubernetes.container.terminationMessagePath":   "",
			"io.kubernetes.container.terminationMessagePolicy": "",
		}},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	cri.SandboxAnnotations(pod, all)["x"] = "y"
	if len(pod.Annotations) != 1 {
		t.Error("SandboxAnnotations gave out the pod's own map")
	}
}

// Only chosen annotations reach the runtime.
func TestSandboxAnnotationsAreChosen(t *testing.T) {
	pod := &v1.Pod{}
	pod.Annotations = map[string]string{
		"kubernetes.io/ingress-bandwidth": "1M", "io.katacontainers.config.hypervisor.default_vcpus": "2",
		"cdi.k8s.io/vendor": "vendor.com/device=all", "io.kubernetes.cri.untrusted-workload": "true", "note": "x",
		"kubectl.kubernetes.io/last-applied-configuration": "{}",
	}
	for _, c := range []struct {
		patterns []string
		want     map[string]string
	}{
		{nil, map[string]string{}},
		{[]string{"kubernetes.io/*", "io.katacontainers.*", "["}, map[string]string{
			"kubernetes.io/ingress-bandwidth": "1M", "io.katacontainers.config.hypervisor.default_vcpus": "2",
		}},
		{[]string{"*", "*/*"}, pod.Annotations},
	} {
		if diff := cmp.Diff(c.want, cri.SandboxAnnotations(pod, c.patterns)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", c.patterns, diff)
		}
	}
}

func TestParseContainerReadsWhatWasWritten(t *testing.T) {
	pod, container := testPod(), testContainer()
	id, err := cri.ParseContainer(cri.ContainerLabels(pod, container.Name), cri.ContainerAnnotations(pod, container, 3))
	if err != nil {
		t.Fatal(err)
	}
	want := cri.ContainerID{
		Pod: cri.IDOf(pod), Name: "test_container", Hash: "8e45cbd0", RestartCount: 3,
		TerminationMessagePath: "/dev/termination-log", TerminationMessagePolicy: v1.TerminationMessageReadFile,
		PreStop: container.Lifecycle.PreStop, Ports: container.Ports,
		GracePeriod: ptr.To[int64](30), DeletionGracePeriod: ptr.To[int64](7),
	}
	if diff := cmp.Diff(want, id); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got, ok := cri.ParseSandbox(cri.SandboxLabels(pod), nil); !ok || got != cri.IDOf(pod) {
		t.Errorf("ParseSandbox = %v, %v", got, ok)
	}
}

func TestParseContainerPassesOverMalformedAnnotations(t *testing.T) {
	for name, c := range map[string]struct {
		key, value string
		wantErr    bool
		check      func(cri.ContainerID) bool
	}{
		"hash not hexadecimal": {
			cri.AnnotationHash, "xyz", true, func(id cri.ContainerID) bool { return id.Hash == "" },
		},
		"hash too long": {
			cri.AnnotationHash, strings.Repeat("f", 17), true, func(id cri.ContainerID) bool { return id.Hash == "" },
		},
		"hash in another form": {
			cri.AnnotationHash, "0ABC", false, func(id cri.ContainerID) bool { return id.Hash == "abc" },
		},
		"restart count negative": {
			cri.AnnotationRestartCount, "-1", true, func(id cri.ContainerID) bool { return id.RestartCount == 0 },
		},
		"restart count too big": {
			cri.AnnotationRestartCount, "2147483648", true,
			func(id cri.ContainerID) bool { return id.RestartCount == 0 },
		},
		"grace negative": {
			cri.AnnotationTerminationGracePeriod, "-5", true,
			func(id cri.ContainerID) bool { return id.GracePeriod == nil },
		},
		"grace beyond a duration": {
			cri.AnnotationTerminationGracePeriod, "9223372036854775807", false,
			func(id cri.ContainerID) bool {
				return *id.GracePeriod == math.MaxInt64/int64(time.Second)
			},
		},
		"deletion grace empty": {
			cri.AnnotationDeletionGracePeriod, "", true,
			func(id cri.ContainerID) bool { return id.DeletionGracePeriod == nil },
		},
		"preStop torn": {
			cri.AnnotationPreStopHandler, `{"exec":`, true, func(id cri.ContainerID) bool { return id.PreStop == nil },
		},
		"preStop without act": {
			cri.AnnotationPreStopHandler, `null`, false, func(id cri.ContainerID) bool { return id.PreStop == nil },
		},
		"ports of wrong type": {
			cri.AnnotationPorts, `{"a":1}`, true, func(id cri.ContainerID) bool { return id.Ports == nil },
		},
	} {
		t.Run(name, func(t *testing.T) {
			pod := testPod()
			annotations := cri.ContainerAnnotations(pod, &v1.Container{Name: "app"}, 1)
			delete(annotations, cri.AnnotationRestartCount)
			annotations[c.key] = c.value
			id, err := cri.ParseContainer(cri.ContainerLabels(pod, "app"), annotations)
			if (err != nil) != c.wantErr || errors.Is(err, cri.ErrUnmanaged) {
				t.Errorf("error is %v", err)
			}
			if id.Pod != cri.IDOf(pod) || id.Name != "app" || !c.check(id) {
				t.Errorf("got %+v", id)
			}
		})
	}
}

func TestParseRefusesForeignAndHostileIdentity(t *testing.T) {
	for name, change := range map[string]func(map[string]string){
		"no uid":            func(l map[string]string) { delete(l, cri.LabelPodUID) },
		"empty name":        func(l map[string]string) { l[cri.LabelPodName] = "" },
		"uid climbs":        func(l map[string]string) { l[cri.LabelPodUID] = ".." },
		"namespace climbs":  func(l map[string]string) { l[cri.LabelPodNamespace] = "a/../../etc" },
		"name has NUL":      func(l map[string]string) { l[cri.LabelPodName] = "a\x00b" },
		"name is too long":  func(l map[string]string) { l[cri.LabelPodName] = strings.Repeat("a", 256) },
		"no container name": func(l map[string]string) { delete(l, cri.LabelContainerName) },
		"container climbs":  func(l map[string]string) { l[cri.LabelContainerName] = "../x" },
	} {
		labels := cri.ContainerLabels(testPod(), "app")
		change(labels)
		if id, err := cri.ParseContainer(labels, nil); !errors.Is(err, cri.ErrUnmanaged) ||
			!cmp.Equal(id, cri.ContainerID{}) {
			t.Errorf("%s: got %+v, %v", name, id, err)
		}
	}
	if _, ok := cri.ParseSandbox(nil, nil); ok {
		t.Error("a sandbox without labels was taken for a pod's")
	}
}

// FuzzLabels gives hostile values to the parsers. Whatever they accept is safe in a path, fits its
// type, and is the same after it is written and read again.
func FuzzLabels(f *testing.F) {
	f.Add("web-0", "shop", "0b5c2a66", "app", "8e45cbd0", "3", "30", `{"exec":{"command":["a"]}}`,
		`[{"containerPort":80}]`)
	f.Add("", "", "", "", "", "", "", "", "")
	f.Add("..", "/", "a/b", "\x00", "-1", "-1", "-1", "null", "null")
	f.Add("a", "b", "c", "d", "FFFFFFFFFFFFFFFF", "2147483647", "9223372036854775807", `{"sleep":{"seconds":-1}}`,
		`[{"hostIP":"\ud800"}]`)
	f.Add("a", "b", "c_d", "e", "0x1", "+1", "1e3", `{"tcpSocket":{"port":"http"}}`, `[[]]`)
	f.Fuzz(func(t *testing.T, name, namespace, uid, container, hash, restarts, grace, preStop, ports string) {
		labels := map[string]string{
			cri.LabelPodName:       name,
			cri.LabelPodNamespace:  namespace,
			cri.LabelPodUID:        uid,
			cri.LabelContainerName: container,
		}
		id, err := cri.ParseContainer(labels, map[string]string{
			cri.AnnotationHash: hash, cri.AnnotationRestartCount: restarts, cri.AnnotationTerminationGracePeriod: grace,
			cri.AnnotationDeletionGracePeriod: grace, cri.AnnotationPreStopHandler: preStop, cri.AnnotationPorts: ports,
		})
		if errors.Is(err, cri.ErrUnmanaged) {
			return
		}
		if id.RestartCount < 0 || id.RestartCount > math.MaxInt32 {
			t.Errorf("restart count is %d", id.RestartCount)
		}
		if g := id.GracePeriod; g != nil && (*g < 0 || time.Duration(*g)*time.Second < 0) {
			t.Errorf("grace period is %d", *g)
		}
		if dir := cri.PodLogDir("/logs", id.Pod); filepath.Dir(dir) != "/logs" {
			t.Errorf("log directory is %q", dir)
		}
		pod := &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name:                       name,
				Namespace:                  namespace,
				UID:                        types.UID(uid),
				DeletionGracePeriodSeconds: id.DeletionGracePeriod,
			},
			Spec: v1.PodSpec{TerminationGracePeriodSeconds: id.GracePeriod},
		}
		spec := &v1.Container{
			Name:      container,
			Image:     hash,
			Lifecycle: &v1.Lifecycle{PreStop: id.PreStop},
			Ports:     id.Ports,
		}
		again, err := cri.ParseContainer(cri.ContainerLabels(pod, container),
			cri.ContainerAnnotations(pod, spec, id.RestartCount))
		if err != nil {
			t.Fatalf("read back: %v", err)
		}
		id.Hash = cri.ContainerHash(spec)
		if len(id.Ports) == 0 {
			id.Ports = nil
		}
		if diff := cmp.Diff(id, again); diff != "" {
			t.Errorf("read back (-first +again):\n%s", diff)
		}
	})
}
