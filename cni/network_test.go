package cni

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/containernetworking/cni/pkg/types"
)

func TestAddAndDel(t *testing.T) {
	for _, version := range []string{"0.3.1", "0.4.0", "1.0.0", "1.1.0"} {
		t.Run(version, func(t *testing.T) {
			h := newHost(t)
			h.list(version, "first", "second")
			h.plugin("first", map[string]string{"ADD": good})
			h.plugin("second", map[string]string{"ADD": good})
			n := h.network()
			result, err := n.Add(t.Context(), h.sandbox("a"))
			if err != nil {
				t.Fatal(err)
			}
			if len(result.IPs) != 1 || result.IPs[0].String() != "10.1.2.3" || result.Network != "pods" {
				t.Errorf("result is %v", result)
			}
			if h.got("second", "ADD")["prevResult"] == nil {
				t.Error("the second plugin did not get the result of the first")
			}
			if _, err := n.Add(t.Context(), h.sandbox("a")); !errdefs.IsAlreadyExists(err) {
				t.Errorf("attaching twice: got %v", err)
			}
			n = h.network() // a restart of the agent
			if err := n.Check(t.Context(), "a"); err != nil {
				t.Errorf("check: %v", err)
			}
			for range 2 {
				if err := n.Del(t.Context(), "a"); err != nil {
					t.Fatal(err)
				}
			}
			want := []string{"ADD", "CHECK", "DEL"}
			if version == "0.3.1" {
				want = []string{"ADD", "DEL"} // CHECK is newer
			}
			for _, p := range []string{"first", "second"} {
				if got := h.calls(p); !slices.Equal(got, want) {
					t.Errorf("plugin %s got %v, want %v", p, got, want)
				}
			}
			if left := h.left(); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
			if err := n.Check(t.Context(), "a"); !errdefs.IsNotFound(err) {
				t.Errorf("check of a sandbox that is not attached: got %v", err)
			}
		})
	}
}

func TestPluginsLearnThePodAndItsWishes(t *testing.T) {
	h := newHost(t)
	h.list("1.0.0", "all")
	h.plugin("all", map[string]string{"ADD": good})
	sandbox := h.sandbox("a")
	sandbox.Capabilities = Capabilities{
		PortMappings: []PortMapping{{HostPort: 8080, ContainerPort: 80, Protocol: "tcp", HostIP: "127.0.0.1"}},
		Bandwidth:    &Bandwidth{IngressRate: 1000, IngressBurst: 2000},
		DNS:          &DNS{Servers: []string{"10.0.0.10"}, Searches: []string{"svc"}, Options: []string{"ndots:5"}},
		IPs:          []string{"10.1.2.3/24"},
		Aliases:      []string{"web.local"},
		Annotations:  map[string]string{"example.com/network": "blue"},
		CgroupPath:   "/kubepods/pod1",
	}
	if _, err := h.network().Add(t.Context(), sandbox); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"portMappings": []any{map[string]any{
			"hostPort": 8080.0, "containerPort": 80.0, "protocol": "tcp", "hostIP": "127.0.0.1",
		}},
		"bandwidth": map[string]any{"ingressRate": 1000.0, "ingressBurst": 2000.0},
		"dns": map[string]any{
			"servers": []any{"10.0.0.10"}, "searches": []any{"svc"}, "options": []any{"ndots:5"},
		},
		"ips":     []any{"10.1.2.3/24"},
		"aliases": []any{"web.local"},

		"io.kubernetes.cri.pod-annotations": map[string]any{"example.com/network": "blue"},
		"cgroupPath":                        "/kubepods/pod1",
	}
	if got := h.got("all", "ADD")["runtimeConfig"]; !reflect.DeepEqual(got, want) {
		t.Errorf("the plugin got %v, want %v", got, want)
	}
	calls, err := os.ReadFile(filepath.Join(h.bin, "all.calls"))
	if err != nil {
		t.Fatal(err)
	}
	const args = "ADD a eth0 %s IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=web;" +
		"K8S_POD_INFRA_CONTAINER_ID=a;K8S_POD_UID=u1\n"
	if want := strings.Replace(args, "%s", h.state, 1); string(calls) != want {
		t.Errorf("the plugin was called with %q, want %q", calls, want)
	}
	// What undoes the mappings is told of them again, also after a restart.
	if err := h.network().Del(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if got := h.got("all", "DEL")["runtimeConfig"]; !reflect.DeepEqual(got, want) {
		t.Errorf("with DEL the plugin got %v, want %v", got, want)
	}
}

// A pod without wishes asks for nothing.
func TestNoWishes(t *testing.T) {
	h := newHost(t)
	h.list("1.0.0", "all")
	h.plugin("all", map[string]string{"ADD": good})
	if _, err := h.network().Add(t.Context(), h.sandbox("a")); err != nil {
		t.Fatal(err)
	}
	if got, ok := h.got("all", "ADD")["runtimeConfig"]; ok {
		t.Errorf("the plugin got %v", got)
	}
}

// The second plugin of a list fails in every way. The error names the plugin, the first plugin's
// work is undone, and nothing is left.
func TestAddFails(t *testing.T) {
	for name, c := range map[string]struct {
		script string // of the second plugin's ADD
		want   []string
	}{
		"says why": {
			`echo '{"cniVersion":"1.0.0","code":7,"msg":"no bridge","details":"br0"}'; exit 1`,
			[]string{`"second"`, "ADD", "no bridge"},
		},
		"dies":         {`kill -9 $$`, []string{`"second"`, "killed"}},
		"only stderr":  {`echo went wrong >&2; exit 3`, []string{`"second"`, "exit status 3", "went wrong"}},
		"rubbish":      {`echo hello`, []string{`"second"`, "hello", "JSON"}},
		"nothing":      {`true`, []string{`"second"`, "nothing"}},
		"null":         {`echo null`, []string{`"second"`, "null"}},
		"rubbish fail": {`echo hello; exit 1`, []string{`"second"`, "hello"}},
		"too much":     {`head -c 2000000 /dev/zero`, []string{`"second"`, "1048576 bytes"}},
		"no address":   {`echo '{"cniVersion":"1.0.0"}'`, []string{`"second"`, "no address"}},
		"wrong version": {
			`echo '{"cniVersion":"9.0.0"}'`, []string{"second", "9.0.0"},
		},
		"host's address": {
			`echo '{"cniVersion":"1.0.0","interfaces":[{"name":"br0"}],"ips":[{"interface":0,"address":"10.1.2.1/24"}]}'`,
			[]string{`"second"`, "no address"},
		},
		"an interface that is not there": {
			`echo '{"cniVersion":"1.0.0","ips":[{"interface":7,"address":"10.1.2.1/24"}]}'`,
			[]string{`"second"`, "no address"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.list("1.0.0", "first", "second")
			h.plugin("first", map[string]string{"ADD": good})
			h.plugin("second", map[string]string{"ADD": c.script})
			_, err := h.network().Add(t.Context(), h.sandbox("a"))
			if err == nil {
				t.Fatal("it succeeded")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error is %q, want %q in it", err, want)
				}
			}
			if got := h.calls("first"); !slices.Equal(got, []string{"ADD", "DEL"}) {
				t.Errorf("the first plugin got %v, want its work undone", got)
			}
			if left := h.left(); len(left) > 0 {
				t.Errorf("left: %v", left)
			}
		})
	}
}

// A plugin of a list is not installed. No plugin is run, so there is nothing to undo: the sandbox
// could not be detached without the plugin, maybe for ever.
func TestAddWithoutAPlugin(t *testing.T) {
	h := newHost(t)
	h.list("1.0.0", "first", "absent")
	h.plugin("first", map[string]string{"ADD": good})
	n := h.network()
	if _, err := n.Add(t.Context(), h.sandbox("a")); !errdefs.IsUnavailable(err) ||
		!strings.Contains(err.Error(), `"absent" is not in `+h.bin) {
		t.Errorf("got %v", err)
	}
	if got := h.calls("first"); len(got) > 0 {
		t.Errorf("the first plugin got %v", got)
	}
	if left := h.left(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if err := n.Del(t.Context(), "a"); err != nil {
		t.Error(err)
	}
}

// A plugin's own error code reaches the caller.
func TestPluginsErrorCode(t *testing.T) {
	h := newHost(t)
	h.list("1.0.0", "only")
	h.plugin("only", map[string]string{"ADD": `echo '{"code":11,"msg":"later"}'; exit 1`})
	_, err := h.network().Add(t.Context(), h.sandbox("a"))
	var plugin *types.Error
	if !errors.As(err, &plugin) || plugin.Code != types.ErrTryAgainLater {
		t.Errorf("error is %v, want the plugin's code in it", err)
	}
}

func TestPluginHangs(t *testing.T) {
	for name, script := range map[string]string{
		"itself":             `exec sleep 1000`,
		"by a child":         `sleep 1000`,
		"deaf":               `trap "" TERM INT; while :; do sleep 1000; done`,
		"a child in silence": `sleep 1000 & wait`,
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t)
			h.timeout = 500 * time.Millisecond
			h.list("1.0.0", "slow")
			h.plugin("slow", map[string]string{"ADD": script})
			_, err := h.network().Add(t.Context(), h.sandbox("a"))
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), `"slow"`) {
				t.Errorf("got %v, want the plugin's time limit", err)
			}
		})
	}
}

// The caller gives up. The plugin is killed, but its work is undone.
func TestCallerGivesUp(t *testing.T) {
	h := newHost(t)
	h.list("1.0.0", "slow")
	h.plugin("slow", map[string]string{"ADD": `exec sleep 1000`})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	n := h.network()
	done := make(chan error, 1)
	go func() {
		_, err := n.Add(ctx, h.sandbox("a"))
		done <- err
	}()
	h.waitCall("slow", done)
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if got := h.calls("slow"); !slices.Equal(got, []string{"ADD", "DEL"}) {
		t.Errorf("the plugin got %v", got)
	}
	if left := h.left(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// A plugin starts a daemon that keeps its pipes. The plugin itself succeeded.
func TestPluginLeavesADaemon(t *testing.T) {
	h := newHost(t)
	h.list("1.0.0", "daemon")
	h.plugin("daemon", map[string]string{"ADD": "sleep 5 & " + good})
	if _, err := h.network().Add(t.Context(), h.sandbox("a")); err != nil {
		t.Error(err)
	}
}

// DEL fails at first. Nothing is forgotten, and a later try goes on.
func TestDelFails(t *testing.T) {
	h := newHost(t)
	h.list("1.0.0", "first", "second")
	h.plugin("first", map[string]string{"ADD": good, "DEL": `echo '{"msg":"busy"}'; exit 1`})
	h.plugin("second", map[string]string{"ADD": good})
	if _, err := h.network().Add(t.Context(), h.sandbox("a")); err != nil {
		t.Fatal(err)
	}
	err := h.network().Del(t.Context(), "a")
	if err == nil || !strings.Contains(err.Error(), `"first" failed its DEL: busy`) {
		t.Errorf("got %v", err)
	}
	if len(h.left()) == 0 {
		t.Error("the attachment is forgotten")
	}
	if h.got("first", "DEL")["prevResult"] == nil {
		t.Error("DEL did not get the result of ADD")
	}
	h.plugin("first", map[string]string{"ADD": good})
	if err := h.network().Del(t.Context(), "a"); err != nil {
		t.Errorf("the second try: %v", err)
	}
	if left := h.left(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// ADD fails, and so does its undo. Both are in the error, and the attachment can be deleted later.
func TestUndoFails(t *testing.T) {
	h := newHost(t)
	h.list("1.0.0", "first", "second")
	h.plugin("first", map[string]string{"ADD": good, "DEL": `echo '{"msg":"stuck"}'; exit 1`})
	h.plugin("second", map[string]string{"ADD": `echo '{"msg":"no"}'; exit 1`})
	_, err := h.network().Add(t.Context(), h.sandbox("a"))
	if err == nil || !strings.Contains(err.Error(), "stuck") || !strings.Contains(err.Error(), "ADD: no") {
		t.Errorf("got %v", err)
	}
	h.plugin("first", nil)
	if err := h.network().Del(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if got := h.calls("first"); !slices.Equal(got, []string{"ADD", "DEL", "DEL"}) {
		t.Errorf("the first plugin got %v", got)
	}
}

// The agent is killed while ADD runs: the record is there, and DEL undoes what was done. By then
// the configuration is another one.
func TestDelAfterACrashAndAnotherConfiguration(t *testing.T) {
	h := newHost(t)
	h.list("1.0.0", "old")
	h.plugin("old", nil)
	n := h.network()
	list, err := n.load()
	if err != nil {
		t.Fatal(err)
	}
	if err := n.records.add(newRecord(h.sandbox("a"), list)); err != nil {
		t.Fatal(err)
	}
	h.list("1.0.0", "new")
	h.plugin("new", nil)
	if err := h.network().Del(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if got := h.calls("old"); !slices.Equal(got, []string{"DEL"}) {
		t.Errorf("the old plugin got %v", got)
	}
	if got := h.calls("new"); len(got) > 0 {
		t.Errorf("the new plugin got %v", got)
	}
}

// The network namespace is gone, as after a restart of the machine. Plugins learn that from an
// empty CNI_NETNS.
func TestDelWithoutANamespace(t *testing.T) {
	h := newHost(t)
	h.list("1.0.0", "only")
	h.plugin("only", map[string]string{"ADD": good, "DEL": `test -z "$CNI_NETNS" || exit 1`})
	sandbox := h.sandbox("a")
	sandbox.NetNS = filepath.Join(h.state, "gone")
	if _, err := h.network().Add(t.Context(), sandbox); err != nil {
		t.Fatal(err)
	}
	if err := h.network().Del(t.Context(), "a"); err != nil {
		t.Error(err)
	}
}

func TestCheckFails(t *testing.T) {
	h := newHost(t)
	h.list("1.0.0", "only")
	h.plugin("only", map[string]string{"ADD": good, "CHECK": `echo '{"msg":"eth0 is gone"}'; exit 1`})
	n := h.network()
	if _, err := n.Add(t.Context(), h.sandbox("a")); err != nil {
		t.Fatal(err)
	}
	if err := n.Check(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), "eth0 is gone") {
		t.Errorf("got %v", err)
	}
}

func TestBadIDs(t *testing.T) {
	h := newHost(t)
	h.list("1.0.0", "only")
	h.plugin("only", map[string]string{"ADD": good})
	n := h.network()
	for _, id := range []string{"", "../x", "a/b", ".."} {
		if _, err := n.Add(t.Context(), h.sandbox(id)); !errdefs.IsInvalidArgument(err) {
			t.Errorf("attach %q: got %v", id, err)
		}
		if err := n.Del(t.Context(), id); err != nil {
			t.Errorf("detach %q: got %v", id, err)
		}
	}
	if got := h.calls("only"); len(got) > 0 {
		t.Errorf("the plugin got %v", got)
	}
}

// A record that nobody can read is an error that names the file.
func TestBrokenRecord(t *testing.T) {
	h := newHost(t)
	n := h.network()
	path := filepath.Join(h.state, recordsDir, "a.json")
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := n.Del(t.Context(), "a"); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("got %v", err)
	}
}
