package doctor

import (
	"context"
	"encoding/json"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// network is the part of a CNI config that is checked (cni.dev/docs/spec).
type network struct {
	Name    string `json:"name"`
	Type    string `json:"type"`
	Plugins []struct {
		Type string `json:"type"`
		IPAM struct {
			Type string `json:"type"`
		} `json:"ipam"`
	} `json:"plugins"`
	IPAM struct {
		Type string `json:"type"`
	} `json:"ipam"`
}

// types returns the plugins that the network needs.
func (n network) types() []string {
	list := []string{n.Type, n.IPAM.Type}
	for _, p := range n.Plugins {
		list = append(list, p.Type, p.IPAM.Type)
	}
	list = slices.DeleteFunc(list, func(s string) bool { return s == "" })
	slices.Sort(list)
	return slices.Compact(list)
}

// cni checks the network config that is in use, and whether its plugins exist.
func cni(ctx context.Context, h *Host) []Finding {
	dir := h.Config.Berth.CNI.ConfDir
	var files []string
	for _, name := range h.Files.names(dir) {
		if slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(name)) {
			files = append(files, name)
		}
	}
	if len(files) == 0 {
		return []Finding{failure("put a network config there; the package brings zz-berth.conflist, a bridge",
			"there is no network config in %s", dir)}
	}
	var n network
	if err := json.Unmarshal([]byte(h.Files.text(filepath.Join(dir, files[0]))), &n); err != nil {
		return []Finding{failure("correct or remove the file",
			"%s/%s, which is the first and so counts, is no JSON: %v", dir, files[0], err)}
	}
	out := []Finding{ok("network %q of %s/%s", n.Name, dir, files[0])}
	for _, name := range n.types() {
		path := h.plugin(name)
		if path == "" {
			out = append(out,
				failure("install the CNI plugins (containernetworking-plugins), or set cni.binDirs",
					"network %q needs the plugin %s, which is not in %s",
					n.Name, name, strings.Join(h.Config.Berth.CNI.BinDirs, " or ")))
			continue
		}
		if name == "portmap" {
			out = append(out, h.portmap(ctx, path)...)
		}
	}
	return out
}

// plugin returns the path of a CNI plugin; empty if there is none.
func (h *Host) plugin(name string) string {
	for _, dir := range h.Config.Berth.CNI.BinDirs {
		if path := filepath.Join(dir, name); h.Files.exists(path) {
			return path
		}
	}
	return ""
}

var pluginVersion = regexp.MustCompile(`v(\d+\.\d+\S*)`)

// portmap checks the plugin's version, which the plugin prints if it is called without a command.
func (h *Host) portmap(ctx context.Context, path string) []Finding {
	text, _ := h.Command(ctx, path)
	m := pluginVersion.FindStringSubmatch(text)
	if m == nil {
		return nil // some distributions build the plugin without a version
	}
	return []Finding{judge("portmap", m[1])}
}
