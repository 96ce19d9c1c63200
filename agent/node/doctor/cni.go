package doctor

import (
	"cmp"
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

// places are the directories of the network config and of the plugins.
type places struct {
	conf string
	bins []string
	// answers is false if the runtime does not answer, which may use other directories.
	answers bool
}

// cniPlaces returns the directories that the runtime uses, if it says which; else those of the
// agent's config.
func (h *Host) cniPlaces(ctx context.Context) places {
	p := places{conf: h.Config.Berth.CNI.ConfDir, bins: h.Config.Berth.CNI.BinDirs}
	if st, err := h.Runtime.Status(ctx, true); err == nil {
		p.answers = true
		p.take(st.GetInfo())
	}
	return p
}

// take takes the directories from the verbose status of a runtime: those of containerd's config, of
// 1.x and 2.x.
func (p *places) take(info map[string]string) {
	var config struct {
		CNI struct {
			ConfDir string   `json:"confDir"`
			BinDir  string   `json:"binDir"`
			BinDirs []string `json:"binDirs"`
		} `json:"cni"`
	}
	if json.Unmarshal([]byte(info["config"]), &config) != nil {
		return
	}
	p.conf = cmp.Or(config.CNI.ConfDir, p.conf)
	switch {
	case len(config.CNI.BinDirs) > 0:
		p.bins = config.CNI.BinDirs
	case config.CNI.BinDir != "":
		p.bins = []string{config.CNI.BinDir}
	}
}

// cni checks the network config that is in use, and whether its plugins exist.
func cni(ctx context.Context, h *Host) []Finding {
	at := h.cniPlaces(ctx)
	dir := at.conf
	if h.Files.denied(dir) {
		return []Finding{hint(asRoot, "this user may not read %s, which has the network config", dir)}
	}
	var files []string
	for _, name := range h.Files.names(dir) {
		if slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(name)) {
			files = append(files, name)
		}
	}
	if len(files) == 0 && !at.answers {
		return []Finding{hint("see the runtime check, and give --config if the agent has a config of its own",
			"there is no network config in %s, but the runtime, which does not answer, may use another directory", dir)}
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
		path := h.plugin(at.bins, name)
		if path == "" {
			setting := "bin_dir (bin_dirs in 2.x) of containerd's CNI config"
			if h.Native {
				setting = "cni.binDirs of the BerthConfiguration"
			}
			out = append(out,
				failure("install the CNI plugins (containernetworking-plugins), or set "+setting,
					"network %q needs the plugin %s, which is not in %s",
					n.Name, name, strings.Join(at.bins, " or ")))
			continue
		}
		if name == "portmap" {
			out = append(out, h.portmap(ctx, path)...)
		}
	}
	return out
}

// plugin returns the path of a CNI plugin in one of the directories; empty if there is none.
func (h *Host) plugin(dirs []string, name string) string {
	for _, dir := range dirs {
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
