package source

import (
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// podFrom decodes a manifest of one pod.
func podFrom(t *testing.T, text string) *v1.Pod {
	t.Helper()
	items := Decoder{NodeName: "n"}.Decode("/m/x.yaml", []byte(text))
	if len(items) != 1 || items[0].Pod == nil {
		t.Fatalf("%+v", items)
	}
	return items[0].Pod
}

func TestResizable(t *testing.T) {
	const base = `
apiVersion: v1
kind: Pod
metadata: {name: a, labels: {app: web}, annotations: {note: one}}
spec:
  initContainers:
  - {name: setup, image: i, resources: {requests: {cpu: 100m}}}
  - {name: mesh, image: i, restartPolicy: Always, resources: {requests: {cpu: 100m}}}
  containers:
  - name: app
    image: i
    securityContext: {privileged: true}
    resources: {requests: {cpu: 200m, memory: 64Mi, ephemeral-storage: 1Gi}, limits: {memory: 128Mi}}
  - {name: other, image: i}
`
	edit := func(pairs ...string) string {
		text := base
		for i := 0; i < len(pairs); i += 2 {
			if !strings.Contains(text, pairs[i]) {
				t.Fatalf("no %q", pairs[i])
			}
			text = strings.Replace(text, pairs[i], pairs[i+1], 1)
		}
		return text
	}
	from := podFrom(t, base)
	for name, c := range map[string]struct{ to, want string }{
		"nothing":              {base, ""},
		"cpu":                  {edit("cpu: 200m", "cpu: 300m"), ""},
		"memory and its limit": {edit("memory: 64Mi", "memory: 32Mi", "memory: 128Mi", "memory: 256Mi"), ""},
		"a sidecar": {
			edit("restartPolicy: Always, resources: {requests: {cpu: 100m}}",
				"restartPolicy: Always, resources: {requests: {cpu: 1}}"), "",
		},
		"a limit comes":     {edit("limits: {memory: 128Mi}", "limits: {memory: 128Mi, cpu: 1}"), ""},
		"a limit goes":      {edit(", limits: {memory: 128Mi}", ""), "resource limits cannot be removed"},
		"a request goes":    {edit("cpu: 200m, ", ""), "resource requests cannot be removed"},
		"storage":           {edit("1Gi", "2Gi"), "only cpu and memory resources are mutable"},
		"an init container": {edit("cpu: 100m", "cpu: 200m"), ""},
		"an image": {
			edit("name: other, image: i", "name: other, image: j"), "only cpu and memory resources are mutable",
		},
		"a policy": {
			edit("name: other,", "name: other, resizePolicy: [{resourceName: cpu, restartPolicy: RestartContainer}],"),
			"only cpu and memory resources are mutable",
		},
		"another name": {edit("name: other", "name: another"), "only cpu and memory resources are mutable"},
		"one container less": {
			edit("  - {name: other, image: i}\n", ""), "only cpu and memory resources are mutable",
		},
		"the pod as a whole comes": {edit("spec:\n", "spec:\n  resources: {limits: {memory: 1Gi}}\n"), ""},
		"privileges": {
			edit("privileged: true", "privileged: false"), "only cpu and memory resources are mutable",
		},
		"a label":       {edit("app: web", "app: db"), "labels or annotations differ"},
		"an annotation": {edit("note: one", "note: two"), "labels or annotations differ"},
		"the termination's grace": {
			edit("spec:\n", "spec:\n  terminationGracePeriodSeconds: 5\n"), "only cpu and memory resources are mutable",
		},
	} {
		t.Run(name, func(t *testing.T) {
			err := Resizable(from, podFrom(t, c.to))
			if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestResizableKeepsTheClass(t *testing.T) {
	const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec: {containers: [{name: app, image: i, " +
		"resources: " +
		"RES}]}\n"
	with := func(resources string) *v1.Pod { return podFrom(t, strings.Replace(pod, "RES", resources, 1)) }
	// What stands before it closes the container and its list.
	const whole = "{}}], resources: {limits: {cpu: LIMIT, memory: 1Gi}}, hostAliases: [{ip: 1.2.3.4, hostnames: [a]"
	for name, c := range map[string]struct {
		from, to string
		same     bool
	}{
		"Guaranteed stays": {"{limits: {cpu: 1, memory: 1Gi}}", "{limits: {cpu: 2, memory: 2Gi}}", true},
		"Guaranteed becomes less": {
			"{limits: {cpu: 1, memory: 1Gi}}", "{limits: {cpu: 2, memory: 2Gi}, requests: {cpu: 1}}", false,
		},
		"BestEffort becomes more": {"{}", "{requests: {cpu: 1}}", false},
		"Burstable stays":         {"{requests: {cpu: 1}}", "{requests: {cpu: 2}, limits: {cpu: 3}}", true},
		"the pod as a whole resizes": {
			strings.Replace(whole, "LIMIT", "1", 1), strings.Replace(whole, "LIMIT", "2", 1), true,
		},
	} {
		err := Resizable(with(c.from), with(c.to))
		if (err == nil) != c.same {
			t.Errorf("%s: %v", name, err)
		}
	}
}
