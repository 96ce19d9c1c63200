//go:build integration

package integration

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/test/env"
)

// imageVolumes checks that an image and a part of an image are mounted read-only. A volume whose
// image cannot be pulled keeps its container waiting with the image's reason, and no other
// container.
func imageVolumes(t *testing.T, e *env.Env, a *env.Agent) {
	put(t, a, "images", "terminationGracePeriodSeconds: 1\ncontainers:\n"+
		shell("main", "volumeMounts: [{name: web, mountPath: /web}, {name: web, mountPath: /part, subPath: www}]")+
		shell("lacks", "volumeMounts: [{name: absent, mountPath: /x}]")+
		shell("never", "volumeMounts: [{name: local, mountPath: /x}]")+
		shell("other", "stdin: false")+
		`volumes:
  - {name: web, image: {reference: 'berth.local/web:v1', pullPolicy: IfNotPresent}}
  - {name: absent, image: {reference: '127.0.0.1:1/absent:v1', pullPolicy: IfNotPresent}}
  - {name: local, image: {reference: 'berth.local/none:v1', pullPolicy: Never}}
`)
	waitPod(t, a, "images", "running in part", func(p *corev1.Pod) error {
		for _, name := range []string{"main", "other"} {
			if statusOf(p, name).State.Running == nil {
				return fmt.Errorf("%s does not run: %+v", name, statusOf(p, name).State)
			}
		}
		if w := statusOf(p, "lacks").State.Waiting; w == nil ||
			w.Reason != "ErrImagePull" && w.Reason != "ImagePullBackOff" {
			return fmt.Errorf("lacks waits because of %+v", w)
		}
		if w := statusOf(p, "never").State.Waiting; w == nil || w.Reason != "ErrImageNeverPull" {
			return fmt.Errorf("never waits because of %+v", w)
		}
		return nil
	})
	seen(t, a, "images", "main",
		"cat /web/www/index.html /part/index.html", "hello from the image\nhello from the image",
		"test -x /web/testapp && echo yes", "yes",
		"echo x >/web/x; echo $?", "sh: can't create /web/x: Read-only file system\n1",
	)
	removed(t, e, a, "images")
}

// oldRuntimeLacks checks that a container waits if containerd 1.6 would ignore something that it
// asks for, and that the container reports what is needed.
func oldRuntimeLacks(t *testing.T, e *env.Env, a *env.Agent) {
	put(t, a, "lacking",
		"terminationGracePeriodSeconds: 1\ncontainers:\n"+
			shell("image", "volumeMounts: [{name: web, mountPath: /web}]")+
			shell("recursive", "volumeMounts: [{name: h, mountPath: /h, readOnly: true, recursiveReadOnly: Enabled}]")+
			shell("possible",
				"volumeMounts: [{name: h, mountPath: /h, readOnly: true, recursiveReadOnly: IfPossible}]")+
			"volumes: [{name: web, image: {reference: 'berth.local/web:v1'}}, {name: h, emptyDir: {}}]\n")
	p := waitPod(t, a, "lacking", "running in part", func(p *corev1.Pod) error {
		if statusOf(p, "possible").State.Running == nil {
			return errors.New("the container that can does not run")
		}
		for container, want := range map[string]string{
			"image": `volume "web": image volumes need containerd 2.1 or later, and this is 1.`,
			"recursive": `failed to resolve recursive read-only mode: volume "h" requested recursive read-only mode, ` +
				`but it is not supported by the runtime`,
		} {
			if w := statusOf(p, container).State.Waiting; w == nil || w.Reason != "CreateContainerConfigError" ||
				!strings.HasPrefix(w.Message, want) {
				return fmt.Errorf("%s waits because of %+v", container, w)
			}
		}
		return nil
	})
	for _, m := range statusOf(p, "possible").VolumeMounts {
		if m.RecursiveReadOnly == nil || *m.RecursiveReadOnly != corev1.RecursiveReadOnlyDisabled {
			t.Errorf("the status of IfPossible is %+v", m)
		}
	}
	removed(t, e, a, "lacking")
}

// environmentReaches checks variables from all sources in their order, variables from files that an
// init container wrote, and errors in them.
func environmentReaches(t *testing.T, e *env.Env, a *env.Agent) {
	a.WriteManifest(t, "env-objects.yaml",
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: env}\ndata: {A: from-a, B: from-b, odd.name: odd}\n---\n"+
			"apiVersion: v1\nkind: Secret\nmetadata: {name: env}\nstringData: {S: hush}\n")
	writer := "initContainers:\n  - name: write\n    image: berth.local/busybox:v1\n" +
		"    volumeMounts: [{name: v, mountPath: /v}]\n    command: [sh, -c]\n    args:\n      - |\n" +
		"        printf \"# made here\\nONE='first'\\nMANY='a\\nb' # two lines\\nQUOTED='\\$HOME \\\"x\\\"'\\n\" " +
		">/v/good.env; echo 'X = broken' >/v/bad.env; ln -s /etc/passwd /v/out.env; mkfifo /v/pipe.env\n"
	file := func(name, path, key, more string) string {
		return fmt.Sprintf("  - {name: %s, valueFrom: {fileKeyRef: {volumeName: v, path: %s, key: %s%s}}}", name, path,
			key, more)
	}
	put(t, a, "env",
		"terminationGracePeriodSeconds: 1\nenableServiceLinks: false\nserviceAccountName: ''\n"+writer+"containers:\n"+
			shell("main", "resources: {limits: {cpu: 250m, memory: 32Mi}, requests: {cpu: 100m, memory: 16Mi}}",
				"envFrom:",
				"  - {configMapRef: {name: env}}", "  - {prefix: P_, secretRef: {name: env}}",
				"  - {configMapRef: {name: none, optional: true}}", "env:",
				"  - {name: B, value: mine}", "  - {name: EXPANDED, value: '$(A) $(P_S) $$(A) $(NONE)'}",
				"  - {name: OPTIONAL, valueFrom: {configMapKeyRef: {name: env, key: none, optional: true}}}",
				"  - {name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}",
				"  - {name: SPACE, valueFrom: {fieldRef: {fieldPath: metadata.namespace}}}",
				"  - {name: ID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}",
				"  - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}",
				"  - {name: IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}",
				"  - {name: HOST, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}",
				"  - {name: CPU, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}",
				"  - {name: MILLI, valueFrom: {resourceFieldRef: {resource: requests.cpu, divisor: 1m}}}",
				"  - {name: MEMORY, valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: 1Mi}}}",
				"  - {name: DEFAULT, valueFrom: {resourceFieldRef: {containerName: other, resource: limits.cpu}}}",
				file("ONE", "good.env", "ONE", ""), file("MANY", "good.env", "MANY", ""),
				file("QUOTED", "good.env", "QUOTED", ""),
				file("NONE", "good.env", "NONE", ", optional: true"),
				file("FILE", "none.env", "X", ", optional: true"))+
			shell("other", "stdin: false")+
			shell("bad", "env:", file("X", "bad.env", "X", ""))+shell("out", "env:", file("X", "out.env", "root", ""))+
			shell("pipe", "env:", file("X", "pipe.env", "X", ""))+
			shell("absent", "env:", file("X", "good.env", "ABSENT", ""))+
			shell("key", "env:", "  - {name: X, valueFrom: {configMapKeyRef: {name: env, key: absent}}}")+
			"volumes: [{name: v, emptyDir: {}}]\n")
	p := waitPod(t, a, "env", "running in part", func(p *corev1.Pod) error {
		if statusOf(p, "main").State.Running == nil || statusOf(p, "other").State.Running == nil {
			return fmt.Errorf("the good containers do not run: %+v", statusOf(p, "main").State)
		}
		for container, want := range map[string]string{
			"bad": `couldn't parse env file "bad.env" of volume "v": invalid environment variable format at line 1: ` +
				`whitespace before '=' is not allowed`, "out": `couldn't parse env file "out.env" of volume "v"`,
			"pipe":   `couldn't parse env file "pipe.env" of volume "v"`,
			"absent": `environment variable key "ABSENT" not found in file "good.env" of volume "v"`,
			"key":    "couldn't find key absent in ConfigMap default/env",
		} {
			if w := statusOf(p, container).State.Waiting; w == nil || w.Reason != "CreateContainerConfigError" ||
				w.Message != want {
				return fmt.Errorf("%s waits because of %+v", container, w)
			}
		}
		return nil
	})
	environment := "\n" + inside(t, a, "env", "main", "env")
	for _, want := range []string{
		"A=from-a", "B=mine", "odd.name=odd", "P_S=hush", "EXPANDED=from-a hush $(A) $(NONE)", "POD=env-node",
		"SPACE=default", "ID=" + string(p.UID), "NODE=" + env.NodeName,
		"IP=" + p.Status.PodIP, "HOST=" + p.Status.HostIP, "CPU=1", "MILLI=100", "MEMORY=32", "ONE=first", "MANY=a\nb",
		`QUOTED=$HOME "x"`,
	} {
		if !strings.Contains(environment, "\n"+want+"\n") {
			t.Errorf("the environment has no %q:%s", want, environment)
		}
	}
	for _, not := range []string{"OPTIONAL=", "NONE=", "FILE=", "KUBERNETES_"} {
		if strings.Contains(environment, "\n"+not) {
			t.Errorf("the environment has %s:%s", not, environment)
		}
	}
	if cpus := strings.TrimSpace(inside(t, a, "env", "main", "sh", "-c", "echo $DEFAULT")); cpus == "0" || cpus == "" {
		t.Errorf("a missing limit is told as %q, and not as what the node has", cpus)
	}
	removed(t, e, a, "env")
	a.RemoveManifest(t, "env-objects.yaml")
	a.WriteManifest(t, "env-path.yaml",
		manifest("env-path",
			"containers:\n"+shell("main", "env:", file("X", "../x", "X", ""))+"volumes: [{name: v, emptyDir: {}}]\n"))
	refused(t, a, filepath.Join(a.Manifests, "env-path.yaml"),
		says("must not contain '..'", "spec.containers[0].env[0].valueFrom.fileKeyRef.path", true))
	a.RemoveManifest(t, "env-path.yaml")
}
