package cni

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// good is what the plugins of these tests answer to ADD if nothing else is asked of them.
const good = `echo '{"cniVersion":"1.0.0","interfaces":[{"name":"eth0","sandbox":"/ns"}],` +
	`"ips":[{"interface":0,"address":"10.1.2.3/24"}]}'`

// host is a directory of configurations and one of plugins, for one test.
type host struct {
	*testing.T
	conf, bin, state string
	timeout          time.Duration
}

func newHost(t *testing.T) *host {
	return &host{T: t, conf: t.TempDir(), bin: t.TempDir(), state: t.TempDir(), timeout: time.Minute}
}

// network returns a Network of the host, as after a start of the agent.
func (h *host) network() *Network {
	h.Helper()
	n, err := New(Config{ConfDir: h.conf, BinDirs: []string{h.bin}, StateDir: h.state, PluginTimeout: h.timeout})
	if err != nil {
		h.Fatal(err)
	}
	return n
}

// config writes a configuration.
func (h *host) config(name, content string) {
	h.Helper()
	if err := os.WriteFile(filepath.Join(h.conf, name), []byte(content), 0o644); err != nil {
		h.Fatal(err)
	}
}

// list writes a configuration of a version with plugins that have every capability.
func (h *host) list(version string, plugins ...string) {
	h.Helper()
	var all []string
	for _, p := range plugins {
		all = append(all, fmt.Sprintf(`{"type":%q,"capabilities":{"portMappings":true,"bandwidth":true,"dns":true,`+
			`"ips":true,"aliases":true,"io.kubernetes.cri.pod-annotations":true,"cgroupPath":true}}`, p))
	}
	h.config("10-test.conflist", fmt.Sprintf(`{"cniVersion":%q,"name":"pods","plugins":[%s]}`, version,
		strings.Join(all, ",")))
}

// plugin writes a plugin that notes its calls and then runs the lines for its command. A command
// without lines succeeds.
func (h *host) plugin(name string, lines map[string]string) {
	h.Helper()
	var cases strings.Builder
	for command, line := range lines {
		fmt.Fprintf(&cases, "%s) %s ;;\n", command, line)
	}
	path := filepath.Join(h.bin, name)
	script := fmt.Sprintf("#!/bin/sh\ncat >'%[1]s.'$CNI_COMMAND\n"+
		"echo \"$CNI_COMMAND $CNI_CONTAINERID $CNI_IFNAME $CNI_NETNS $CNI_ARGS\" >>'%[1]s.calls'\n"+
		"case $CNI_COMMAND in\n%[2]sesac\n", path, cases.String())
	// A rename, so that nobody runs the file while it is being written.
	if err := os.WriteFile(path+".new", []byte(script), 0o755); err != nil {
		h.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		h.Fatal(err)
	}
}

// calls returns the commands that a plugin got, in order.
func (h *host) calls(name string) []string {
	h.Helper()
	data, err := os.ReadFile(filepath.Join(h.bin, name+".calls"))
	if err != nil && !os.IsNotExist(err) {
		h.Fatal(err)
	}
	var commands []string
	for line := range strings.Lines(string(data)) {
		commands = append(commands, strings.Fields(line)[0])
	}
	return commands
}

// waitCall waits until a plugin is called, by a call that writes its end to ended.
func (h *host) waitCall(plugin string, ended <-chan error) {
	h.Helper()
	for len(h.calls(plugin)) == 0 {
		select {
		case err := <-ended:
			h.Fatalf("plugin %s was not called: the call ended with %v", plugin, err)
		case <-time.After(time.Millisecond):
		}
	}
}

// got returns what a plugin last read on its standard input with a command.
func (h *host) got(name, command string) map[string]any {
	h.Helper()
	data, err := os.ReadFile(filepath.Join(h.bin, name+"."+command))
	if err != nil {
		h.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(data, &out); err != nil {
		h.Fatal(err)
	}
	return out
}

// left returns the names of the files that attachments have left in the state directory.
func (h *host) left() []string {
	h.Helper()
	var names []string
	for _, dir := range []string{recordsDir, "results"} {
		entries, err := os.ReadDir(filepath.Join(h.state, dir))
		if err != nil && !os.IsNotExist(err) {
			h.Fatal(err)
		}
		for _, e := range entries {
			names = append(names, e.Name())
		}
	}
	return names
}

// sandbox returns a sandbox whose network namespace exists as far as these tests care.
func (h *host) sandbox(id string) Sandbox {
	return Sandbox{ID: id, NetNS: h.state, Namespace: "default", Name: "web", UID: "u1"}
}
