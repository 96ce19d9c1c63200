//go:build integration

package integration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/test/env"
	"github.com/berthd/berth/test/images"
)

// TestSecurity reads inside containers what effect their security contexts have.
func TestSecurity(t *testing.T) {
	t.Parallel()
	e := env.Containerd(t, env.Options{})
	userImages(t, e)
	a := e.StartAgent(t, env.AgentOptions{Kubelet: `{allowedUnsafeSysctls: ["kernel.msg*", "net.core.somaxconn"]}`})
	strict := e.StartAgent(t, env.AgentOptions{Name: "b", Kubelet: "{seccompDefault: true}"})
	held := e.StartAgent(t, env.AgentOptions{Name: "c", Berth: "{podSecurity: baseline}"})
	for _, agent := range []*env.Agent{a, strict, held} {
		agent.WaitUp(t)
	}
	t.Run("pods", func(t *testing.T) {
		onOneAgent(t, e, a, podTests{
			"users": usersAreThose, "image users": imageUsersCount, "groups": groupsAreThose,
			"privileges": privilegesAreThose,
			"seccomp":    seccompFilters, "sysctls": sysctlsAreSet, "host namespaces": hostNamespaces,
			"shared processes": sharedProcesses,
			"init containers":  initContainersToo, "refused": refusedPods, "hostile": hostileInput,
		})
		t.Run("seccompDefault", func(t *testing.T) {
			t.Parallel()
			seccompDefault(t, e, strict)
		})
		t.Run("podSecurity", func(t *testing.T) {
			t.Parallel()
			podSecurity(t, e, held)
		})
	})
	nothingLeft(t, e.Leaks)
}

// userImages imports images of busybox, each with another user.
func userImages(t *testing.T, e *env.Env) {
	t.Helper()
	busybox, err := os.ReadFile("/bin/busybox")
	if err != nil {
		t.Fatal(err)
	}
	files := []images.File{
		{Path: "/bin", Mode: os.ModeDir | 0o755},
		{Path: "/bin/busybox", Mode: 0o755, Body: busybox},
		{Path: "/etc", Mode: os.ModeDir | 0o755},
		{Path: "/etc/passwd", Mode: 0o644, Body: []byte("root:x:0:0:root:/:/bin/sh\napp:x:1000:1000:app:/:/bin/sh\n")},
		{Path: "/etc/group", Mode: 0o644, Body: []byte("root:x:0:\napp:x:1000:\nextra:x:2000:app\n")},
	}
	for _, applet := range []string{"sh", "cat", "sleep"} {
		files = append(files, images.File{Path: "/bin/" + applet, Link: "/bin/busybox"})
	}
	for name, user := range imageUsers() {
		archive := filepath.Join(t.TempDir(), name+".tar")
		image := images.Image{
			Name:   "berth.local/user-" + name + ":v1",
			Config: ocispec.ImageConfig{User: user, Env: []string{"PATH=/bin"}}, Files: files,
		}
		if err := images.Write(archive, image); err != nil {
			t.Fatal(err)
		}
		if err := e.Import(t.Context(), images.Archive{Name: image.Name, Path: archive}); err != nil {
			t.Fatal(err)
		}
	}
}

// imageUsers are the users of the images berth.local/user-NAME:v1.
func imageUsers() map[string]string {
	return map[string]string{
		"number": "1000", "both": "1000:2000", "name": "app", "none": "",
		"overflow": "4294967296", "negative": "-1", "large": "2147483648", "digits": "99999999999999999999",
		"path": "../../etc/passwd", "escape": "app\x1b[31m",
	}
}

// held is a container that keeps running, its security context in YAML, and what its process must
// then be, in the words of processOf.
type held struct{ name, image, context, want string }

// stay is a command that runs until its signal, and then ends at once.
const stay = `[sh, -c, 'trap "exit 0" TERM; while true; do sleep 1 & wait $!; done']`

// holding is the spec of a pod with those containers. more is YAML of the pod's spec.
func holding(more string, containers []held) string {
	var b strings.Builder
	fmt.Fprintf(&b, "terminationGracePeriodSeconds: 2\n%s\ncontainers:\n", strings.TrimSpace(more))
	for _, c := range containers {
		if c.image == "" {
			c.image = images.Busybox
		}
		if c.context == "" {
			c.context = "{}"
		}
		fmt.Fprintf(&b, "  - {name: %s, image: %q, imagePullPolicy: Never, command: %s, securityContext: %s}\n", c.name,
			c.image, stay, c.context)
	}
	return b.String()
}

// hold runs a pod and checks what its processes are.
func hold(t *testing.T, a *env.Agent, name, more string, containers []held) {
	t.Helper()
	put(t, a, name, holding(more, containers))
	a.WaitReady(t, name)
	for _, c := range containers {
		checkProcess(t, a, name, c)
	}
}

func checkProcess(t *testing.T, a *env.Agent, pod string, c held) {
	t.Helper()
	got := processOf(t, a, pod, c.name)
	for _, want := range strings.Fields(c.want) {
		if key, value, _ := strings.Cut(want, "="); got[key] != value {
			t.Errorf("%s/%s: %s is %s, want %s", pod, c.name, key, got[key], value)
		}
	}
}

// processOf returns what the kernel reports about a container's first process: effective user and
// group, all groups, capabilities as numbers, and more.
func processOf(t *testing.T, a *env.Agent, pod, container string) map[string]string {
	t.Helper()
	var text string
	// runc reports that the program runs a moment before it starts the program
	env.Eventually(t, container+" to be the program that it is to run", func() error {
		if text = inside(t, a, pod, container, "cat", "/proc/1/status"); strings.HasPrefix(text, "Name:\trunc") {
			return errors.New("it is runc")
		}
		return nil
	})
	out := map[string]string{}
	for line := range strings.Lines(text) {
		key, value, _ := strings.Cut(line, ":")
		fields := strings.Fields(value)
		switch {
		case key == "Uid" || key == "Gid":
			out[key] = fields[1]
		case key == "Groups":
			out[key] = strings.Join(fields, ",")
		case strings.HasPrefix(key, "Cap"):
			out[key] = strings.TrimLeft(fields[0], "0")
		case len(fields) > 0:
			out[key] = fields[0]
		}
	}
	return out
}

// usersAreThose checks that the user and group are the container's, or else the pod's.
func usersAreThose(t *testing.T, e *env.Env, a *env.Agent) {
	hold(t, a, "users", "securityContext: {runAsUser: 1001, runAsGroup: 2001}", []held{
		{"pods", "", "", "Uid=1001 Gid=2001 CapEff= NoNewPrivs=0"},
		{"own", "", "{runAsUser: 5, runAsGroup: 6}", "Uid=5 Gid=6"},
		{"group", "", "{runAsGroup: 6}", "Uid=1001 Gid=6"},
		{"root", "", "{runAsUser: 0, runAsGroup: 0}", "Uid=0 Gid=0 CapEff=a80425fb"},
		{"largest", "", "{runAsUser: 2147483647, runAsNonRoot: true}", "Uid=2147483647 Gid=2001"},
		{"over-image", "berth.local/user-name:v1", "{runAsNonRoot: true}", "Uid=1001 Gid=2001"},
	})
	removed(t, e, a, "users")
}

// imageUsersCount: without a user of the pod it is the image's, also after a restart; runAsNonRoot
// wants a number that is not 0.
func imageUsersCount(t *testing.T, e *env.Env, a *env.Agent) {
	list := []held{
		{"number", "berth.local/user-number:v1", "{runAsNonRoot: true}", "Uid=1000 Gid=1000"},
		// Kubernetes uses the number only: the group is the group of the user in the image
		{"both", "berth.local/user-both:v1", "", "Uid=1000 Gid=1000"},
		{"name", "berth.local/user-name:v1", "", "Uid=1000 Gid=1000 Groups=1000,2000"},
		{"none", "berth.local/user-none:v1", "", "Uid=0 Gid=0"},
		{"large-but-own", "berth.local/user-large:v1", "{runAsUser: 7}", "Uid=7"},
	}
	hold(t, a, "image-users", "", list)
	// the command ends while it answers
	_, _, _ = a.CLI("exec", "-q", "image-users", "-c", "number", "--", "/bin/busybox", "kill", "1")
	waitPod(t, a, "image-users", "restarted", func(p *corev1.Pod) error {
		if s := statusOf(p, "number"); s.RestartCount != 1 || s.State.Running == nil {
			return errors.New("not restarted")
		}
		return nil
	})
	checkProcess(t, a, "image-users", list[0])
	removed(t, e, a, "image-users")
}

// groupsAreThose checks that the pod's groups are added to the image's, or replace them with
// Strict, and that fsGroup owns the pod's volumes.
func groupsAreThose(t *testing.T, e *env.Env, a *env.Agent) {
	const volume = "\nvolumes: [{name: v, emptyDir: {}}]"
	more := "securityContext: {runAsUser: 1000, runAsGroup: 1000, supplementalGroups: [3000, 3001], fsGroup: 4000, " +
		"supplementalGroupsPolicy: %s}" + volume
	for policy, groups := range map[string]string{
		"Merge": "1000,2000,3000,3001,4000", "Strict": "1000,3000,3001,4000",
	} {
		name := "groups-" + strings.ToLower(policy)
		spec := holding(fmt.Sprintf(more, policy), []held{{"main", "", "", ""}})
		put(t, a, name,
			strings.Replace(spec, "imagePullPolicy: Never,", "volumeMounts: [{name: v, mountPath: /v}],", 1))
		a.WaitReady(t, name)
		checkProcess(t, a, name, held{name: "main", want: "Uid=1000 Gid=1000 Groups=" + groups})
		if got := strings.TrimSpace(inside(t, a, name, "main", "sh", "-c",
			"echo x > /v/file && stat -c %g /v /v/file")); got != "4000\n4000" {
			t.Errorf("%s: the volume's groups are %q", name, got)
		}
		removed(t, e, a, name)
	}
}

// privilegesAreThose checks capabilities, no_new_privs, the root filesystem, and all of them
// together.
func privilegesAreThose(t *testing.T, e *env.Env, a *env.Agent) {
	const usual = 0xa80425fb
	caps := func(n uint64) string { return "CapEff=" + strconv.FormatUint(n, 16) }
	hold(t, a, "privileges", "", []held{
		{"usual", "", "", caps(usual) + " NoNewPrivs=0"},
		{"none", "", "{capabilities: {drop: [ALL]}}", "CapEff= CapBnd="},
		{"one", "", "{capabilities: {drop: [ALL], add: [NET_BIND_SERVICE]}}", caps(1 << 10)},
		{"more", "", "{capabilities: {add: [NET_ADMIN]}}", caps(usual | 1<<12)},
		{"less", "", "{capabilities: {drop: [CHOWN, NET_RAW]}}", caps(usual &^ (1 | 1<<13))},
		{"stuck", "", "{allowPrivilegeEscalation: false}", "NoNewPrivs=1 " + caps(usual)},
		{
			"user", "", "{runAsUser: 1000, capabilities: {add: [NET_ADMIN]}}",
			"CapEff= CapBnd=" + strconv.FormatUint(usual|1<<12, 16),
		},
		{"readonly", "", "{readOnlyRootFilesystem: true}", ""},
		{"privileged", "", "{privileged: true}", "Seccomp=0 NoNewPrivs=0"},
	})
	all := processOf(t, a, "privileges", "privileged")
	if all["CapEff"] != all["CapBnd"] || all["CapEff"] == caps(usual) {
		t.Errorf("the privileged container has %s of %s", all["CapEff"], all["CapBnd"])
	}
	for container, want := range map[string]string{
		"usual": "file\nro sys\nhidden\n", "readonly": "no file\nro sys\nhidden\n",
		"privileged": "file\nrw sys\nshown\n",
	} {
		got := inside(t, a, "privileges", container, "sh", "-c", `
touch /file 2>/dev/null && echo file || echo no file
grep -q ' /proc/sys .* ro,' /proc/mounts && echo ro sys || echo rw sys
grep -q ' /proc/interrupts ' /proc/mounts && echo hidden || echo shown`)
		if got != want {
			t.Errorf("%s sees %q, want %q", container, got, want)
		}
	}
	removed(t, e, a, "privileges")
}

// seccompFilters checks that the seccomp profile is the container's, else the pod's, else none. A
// Localhost profile is a file beneath the agent's folder.
func seccompFilters(t *testing.T, e *env.Env, a *env.Agent) {
	addProfile(t, a, "profiles/mkdir.json")
	hold(t, a, "seccomp-none", "", []held{
		{"plain", "", "", "Seccomp=0"},
		{"runtimes", "", "{seccompProfile: {type: RuntimeDefault}}", "Seccomp=2"},
	})
	hold(t, a, "seccomp", "securityContext: {seccompProfile: {type: RuntimeDefault}}", []held{
		{"pods", "", "", "Seccomp=2"},
		{"unconfined", "", "{seccompProfile: {type: Unconfined}}", "Seccomp=0"},
		{"localhost", "", "{seccompProfile: {type: Localhost, localhostProfile: profiles/mkdir.json}}", "Seccomp=2"},
	})
	for container, want := range map[string]string{"pods": "made\n", "localhost": "not made\n"} {
		if got := inside(t, a, "seccomp", container, "sh", "-c",
			"mkdir /made 2>/dev/null && echo made || echo not made"); got != want {
			t.Errorf("in %s a directory is %s", container, got)
		}
	}
	put(t, a, "seccomp-lost",
		holding("", []held{
			{"main", "", "{seccompProfile: {type: Localhost, localhostProfile: profiles/lost.json}}", ""},
		}))
	waitPod(t, a, "seccomp-lost", "refused by the runtime", waitingFor("CreateContainerError"))
	for _, name := range []string{"seccomp-none", "seccomp", "seccomp-lost"} {
		removed(t, e, a, name)
	}
}

// seccompDefault checks that with the node's setting, containers without a profile have the
// runtime's, and containers with a profile have their own.
func seccompDefault(t *testing.T, e *env.Env, a *env.Agent) {
	hold(t, a, "seccomp-default", "", []held{
		{"plain", "", "", "Seccomp=2"},
		{"unconfined", "", "{seccompProfile: {type: Unconfined}}", "Seccomp=0"},
	})
	removed(t, e, a, "seccomp-default")
}

// sysctlsAreSet checks safe sysctls, and those that the node allows. All containers of the pod see
// them, and the host does not.
func sysctlsAreSet(t *testing.T, e *env.Env, a *env.Agent) {
	sysctls := map[string]string{
		"net.ipv4.ip_local_port_range": "20000 30000", "net.ipv4.tcp_syncookies": "0",
		"net/ipv4/ip_unprivileged_port_start": "1",
		"kernel.shm_rmid_forced":              "1", "kernel.msgmax": "9000", "net.core.somaxconn": "77",
		"net.ipv4.tcp_rmem": "4096 90000 6291456",
	}
	var list []string
	for name, value := range sysctls {
		list = append(list, fmt.Sprintf("{name: %s, value: %q}", name, value))
	}
	hold(t, a, "sysctls", "securityContext: {sysctls: ["+strings.Join(list, ", ")+"]}", []held{
		{"one", "", "", ""}, {"two", "", "", ""},
	})
	for name, want := range sysctls {
		file := "/proc/sys/" + strings.ReplaceAll(name, ".", "/")
		for _, container := range []string{"one", "two"} {
			if got := strings.Join(strings.Fields(inside(t, a, "sysctls", container, "cat", file)), " "); got != want {
				t.Errorf("%s in %s is %q, want %q", name, container, got, want)
			}
		}
		if host, err := os.ReadFile(file); err == nil && strings.Join(strings.Fields(string(host)), " ") == want {
			t.Logf("the host has %s = %s, too", name, want)
		}
	}
	removed(t, e, a, "sysctls")
}

// namespaceOf returns a namespace of a container's processes.
func namespaceOf(t *testing.T, a *env.Agent, pod, container, kind string) string {
	t.Helper()
	return strings.TrimSpace(inside(t, a, pod, container, "readlink", "/proc/self/ns/"+kind))
}

// hostNamespaces checks that each namespace is the host's if the pod says so, and otherwise the
// pod's own.
func hostNamespaces(t *testing.T, e *env.Env, a *env.Agent) {
	for field, kind := range map[string]string{"hostNetwork": "net", "hostPID": "pid", "hostIPC": "ipc"} {
		name := strings.ToLower(field)
		hold(t, a, name, field+": true", []held{{"main", "", "", ""}})
		for _, other := range []string{"net", "pid", "ipc"} {
			host, err := os.Readlink("/proc/self/ns/" + other)
			if err != nil {
				t.Fatal(err)
			}
			if got := namespaceOf(t, a, name, "main", other); (got == host) != (other == kind) {
				t.Errorf("with %s the namespace %s is %s and the host's %s", field, other, got, host)
			}
		}
		removed(t, e, a, name)
	}
}

// sharedProcesses checks that with shareProcessNamespace containers see each other's processes,
// below the sandbox's. Without it they do not.
func sharedProcesses(t *testing.T, e *env.Env, a *env.Agent) {
	for name, field := range map[string]string{"shared": "true", "apart": "false"} {
		hold(t, a, name, "shareProcessNamespace: "+field, []held{{"one", "", "", ""}, {"two", "", "", ""}})
		one, two := namespaceOf(t, a, name, "one", "pid"), namespaceOf(t, a, name, "two", "pid")
		first := strings.TrimSpace(inside(t, a, name, "one", "cat", "/proc/1/comm"))
		if shared := field == "true"; (one == two) != shared || (first == "pause") != shared {
			t.Errorf("%s: the namespaces are %s and %s, the first process is %s", name, one, two, first)
		}
		removed(t, e, a, name)
	}
}

// initContainersToo checks that init containers have security contexts like all others.
func initContainersToo(t *testing.T, e *env.Env, a *env.Agent) {
	put(t, a, "init-security", `
securityContext: {runAsUser: 1000}
initContainers:
  - {name: pods, image: berth.local/busybox:v1, command: [sh, -c, 'grep -E "^(Uid|Seccomp):" /proc/1/status']}
  - name: own
    image: berth.local/busybox:v1
    command: [sh, -c, 'grep -E "^(Uid|CapEff|Seccomp|NoNewPrivs):" /proc/1/status']
    securityContext: {runAsUser: 0, allowPrivilegeEscalation: false, capabilities: {drop: [ALL]},
      seccompProfile: {type: RuntimeDefault}}
`+strings.TrimSpace(sleeper)+"\n")
	a.WaitReady(t, "init-security")
	for container, want := range map[string]string{
		"pods": "Uid: 1000 1000 1000 1000 Seccomp: 0",
		"own":  "Uid: 0 0 0 0 CapEff: 0000000000000000 NoNewPrivs: 1 Seccomp: 2",
	} {
		out, _, _ := a.CLI("logs", "init-security", "-c", container)
		if got := strings.Join(regexp.MustCompile(`\s+`).Split(strings.TrimSpace(out), -1), " "); got != want {
			t.Errorf("%s was %q, want %q", container, got, want)
		}
	}
	removed(t, e, a, "init-security")
}

// appArmor reports whether this kernel enforces AppArmor.
func appArmor() bool {
	return slices.Equal(lines("/sys/module/apparmor/parameters/enabled"), []string{"Y"})
}
