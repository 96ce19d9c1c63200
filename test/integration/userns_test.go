//go:build integration

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/test/env"
)

// usersClass is a RuntimeClass whose handler has user namespaces. The host's runc may lack them.
const usersClass = "apiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: users}\nhandler: " +
	env.NewerHandler + "\n"

// TestUserNamespaces checks that pods with hostUsers: false have ids of their own, also for root,
// and files with these ids.
func TestUserNamespaces(t *testing.T) {
	t.Parallel()
	e := env.Containerd(t, env.Options{})
	a := e.StartAgent(t, env.AgentOptions{})
	a.WaitUp(t)
	a.WriteManifest(t, "class.yaml", usersClass)
	put(t, a, "one", apart("capabilities: {add: [NET_ADMIN]}"))
	put(t, a, "two", apart("procMount: Unmasked"))
	put(t, a, "user", apart("runAsUser: 1000"))
	a.WriteManifest(t, "config.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: config}\ndata: {key: value}\n")
	a.WaitReady(t, "one", "two", "user")
	taken := map[int]string{}
	for _, name := range []string{"one", "two", "user"} {
		first := mapped(t, a, name)
		if other := taken[first]; other != "" {
			t.Errorf("%s and %s have the same ids", name, other)
		}
		taken[first] = name
		wantFile(t, a, name, first)
	}
	wholeInside(t, a)
	// A restart of the agent, and of the container, keeps the ids, even if the file with the ids
	// was damaged meanwhile. No other pod gets them.
	before := mapped(t, a, "one")
	file := filepath.Join(a.RootDir, "pods", string(podOf(t, a, "one").UID), "userns")
	a.Kill9()
	writeFile(t, file, "{", 0o600)
	if err := a.Start(); err != nil {
		t.Fatal(err)
	}
	put(t, a, "three", apart("runAsUser: 1000"))
	a.WaitReady(t, "one", "two", "user", "three")
	if other := taken[mapped(t, a, "three")]; other != "" {
		t.Errorf("three has the ids of %s", other)
	}
	// the command ends while it answers
	_, _, _ = a.CLI("exec", "-q", "one", "-c", "main", "--", "sh", "-c", "kill 1")
	waitPod(t, a, "one", "restarted", func(p *corev1.Pod) error {
		if s := statusOf(p, "main"); s.RestartCount != 1 || s.State.Running == nil {
			return fmt.Errorf("%d restarts", s.RestartCount)
		}
		return nil
	})
	if after := mapped(t, a, "one"); after != before {
		t.Errorf("after restarts its ids begin at %d, before at %d", after, before)
	}
	wantFile(t, a, "one", before)
	for _, name := range []string{"one", "two", "user", "three"} {
		removed(t, e, a, name)
	}
	a.RemoveManifest(t, "config.yaml")
	a.RemoveManifest(t, "class.yaml")
	nothingLeft(t, e.Leaks)
}

// TestUserNamespacesRefused checks that on a runtime without user namespaces such a pod waits for
// its sandbox and reports the reason.
func TestUserNamespacesRefused(t *testing.T) {
	t.Parallel()
	e := env.Containerd(t, env.Options{Version: env.ContainerdDebian})
	a := e.StartAgent(t, env.AgentOptions{})
	a.WaitUp(t)
	a.WriteManifest(t, "class.yaml", strings.Replace(usersClass, env.NewerHandler, env.SecondHandler, 1))
	for name, c := range map[string]struct{ more, message string }{
		"apart": {"", "can't set `spec.hostUsers: false`, runtime does not support user namespaces"},
		"classed": {
			"\nruntimeClassName: users",
			"can't set `spec.hostUsers: false`, RuntimeClass handler \"second\" does not support user namespaces",
		},
	} {
		put(t, a, name, "hostUsers: false"+c.more+sleeper)
		waitEvent(t, a, "FailedCreatePodSandBox", c.message)
		env.Eventually(t, "why about the users", func() error {
			if s := why(t, a, name); s.Step != "sandbox" || !strings.Contains(s.WaitsFor, c.message) {
				return fmt.Errorf("step %q waits for %q", s.Step, s.WaitsFor)
			}
			return nil
		})
		if p := podOf(t, a, name); len(sandboxesOf(t, e, p)) != 0 || p.Status.Phase != corev1.PodPending {
			t.Errorf("%s is %s and has %v", name, p.Status.Phase, sandboxesOf(t, e, p))
		}
		removed(t, e, a, name)
	}
	a.RemoveManifest(t, "class.yaml")
	nothingLeft(t, e.Leaks)
}

// apart is the spec of a pod with ids of its own and a volume of each kind that the agent makes.
// context is the security context of its container.
func apart(context string) string {
	return `
hostUsers: false
runtimeClassName: users
terminationGracePeriodSeconds: 2
containers:
  - name: main
    image: berth.local/busybox:v1
    command: ` + stay + `
    securityContext: {` + context + `}
    volumeMounts:
      - {name: disk, mountPath: /disk}
      - {name: memory, mountPath: /memory}
      - {name: config, mountPath: /config}
volumes:
  - {name: disk, emptyDir: {}}
  - {name: memory, emptyDir: {medium: Memory, sizeLimit: 1Mi}}
  - {name: config, configMap: {name: config, defaultMode: 0444}}
`
}

// mapped returns where a pod's ids begin on the host. It checks first that the pod's processes have
// them.
func mapped(t *testing.T, a *env.Agent, name string) int {
	t.Helper()
	words := strings.Fields(inside(t, a, name, "main", "cat", "/proc/1/uid_map", "/proc/1/gid_map"))
	if len(words) != 6 || words[0] != "0" || words[2] != "65536" || words[1] != words[4] {
		t.Fatalf("the maps of %s are %v", name, words)
	}
	first, err := strconv.Atoi(words[1])
	if err != nil || first < 65536 || first%65536 != 0 {
		t.Fatalf("the ids of %s begin at %s", name, words[1])
	}
	return first
}

// wantFile checks that the pod's file says what the kernel does.
func wantFile(t *testing.T, a *env.Agent, name string, first int) {
	t.Helper()
	p := podOf(t, a, name)
	text, err := os.ReadFile(filepath.Join(a.RootDir, "pods", string(p.UID), "userns"))
	if err != nil ||
		!strings.Contains(string(text),
			fmt.Sprintf(`"uidMappings":[{"hostId":%d,"containerId":0,"length":65536}]`, first)) {
		t.Errorf("%s has the file %s, %v", name, text, err)
	}
}

// wholeInside checks that the pod's root is root in the pod's volumes and image and has
// capabilities in the pod's namespaces, and that this root has no rights on the host.
func wholeInside(t *testing.T, a *env.Agent) {
	t.Helper()
	got := inside(t, a, "one", "main", "sh", "-c", `
echo x > /disk/file && echo x > /memory/file && stat -c '%u:%g' /disk/file /memory/file /bin/busybox /etc/hosts /dev/termination-log
cat /config/key; echo; ip link set lo down && echo configured
cat /proc/sys/kernel/core_pattern > /dev/null && (echo x > /proc/sys/kernel/core_pattern) 2>/dev/null && echo escaped
true`)
	if want := "0:0\n0:0\n0:0\n0:0\n0:0\nvalue\nconfigured\n"; got != want {
		t.Errorf("inside of the pod it is\n%s, want\n%s", got, want)
	}
	p := podOf(t, a, "one")
	info, err := os.ReadFile(filepath.Join(a.RootDir, "pods", string(p.UID), "volumes", "kubernetes.io~empty-dir",
		"disk", "file"))
	if err != nil || string(info) != "x\n" {
		t.Errorf("the host sees %q, %v", info, err)
	}
	if out := inside(t, a, "two", "main", "sh", "-c",
		"grep -c ' /proc/' /proc/mounts || true"); strings.TrimSpace(out) != "0" {
		t.Errorf("an unmasked /proc has %s mounts over it", strings.TrimSpace(out))
	}
	checkProcess(t, a, "user", held{name: "main", want: "Uid=1000 CapEff="})
	checkProcess(t, a, "one", held{name: "main", want: "Uid=0 Gid=0"})
}
