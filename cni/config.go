package cni

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/containernetworking/cni/libcni"
	"github.com/containernetworking/cni/pkg/utils"
)

// listExtension is that of a configuration with a list of plugins; the other extensions are those
// of a single plugin, which older versions of CNI had.
const listExtension = ".conflist"

// versions are the versions of CNI that a configuration may have. Results of earlier ones do not
// say which address belongs to which interface.
func versions() []string { return []string{"0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"} }

// load reads the configuration that is valid now. Its errors have the class
// errdefs.ErrUnavailable.
func (n *Network) load() (*libcni.NetworkConfigList, error) {
	path, err := n.first()
	if err != nil {
		return nil, fmt.Errorf("look for network configurations: %w: %w", err, errdefs.ErrUnavailable)
	}
	if path == "" {
		return nil, fmt.Errorf("no network configuration (*.conflist, *.conf or *.json) in %s: "+
			"install a CNI network there: %w", n.cfg.ConfDir, errdefs.ErrUnavailable)
	}
	list, err := parse(path)
	if err != nil {
		return nil, fmt.Errorf("network configuration %s: %w: %w", path, err, errdefs.ErrUnavailable)
	}
	return list, nil
}

// first returns the path of the configuration that comes first by name, or "" if there is none.
func (n *Network) first() (string, error) {
	entries, err := os.ReadDir(n.cfg.ConfDir) // sorted by name
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	for _, e := range entries {
		if !e.IsDir() && slices.Contains([]string{listExtension, ".conf", ".json"}, filepath.Ext(e.Name())) {
			return filepath.Join(n.cfg.ConfDir, e.Name()), nil
		}
	}
	return "", nil
}

// parse reads a configuration. The plugins of a list may also be in files of their own, in a folder
// with the name of the network (CNI 1.1); they are part of the result's Bytes.
func parse(path string) (*libcni.NetworkConfigList, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var list *libcni.NetworkConfigList
	if filepath.Ext(path) == listExtension {
		list, err = parseList(path, data)
	} else {
		list, err = parseSingle(data)
	}
	if err != nil {
		return nil, err
	}
	if err := utils.ValidateNetworkName(list.Name); err != nil {
		return nil, fmt.Errorf("name %q: %w", list.Name, err)
	}
	if !slices.Contains(versions(), list.CNIVersion) {
		return nil, fmt.Errorf("cniVersion is %q, want one of %s", list.CNIVersion, strings.Join(versions(), ", "))
	}
	if len(list.Plugins) == 0 {
		return nil, errors.New("it has no plugins")
	}
	return list, nil
}

func parseList(path string, data []byte) (*libcni.NetworkConfigList, error) {
	list, err := libcni.NetworkConfFromBytes(data)
	if err != nil || list.LoadOnlyInlinedPlugins {
		return list, err
	}
	// The name leads to a folder, so it is checked before.
	if err := utils.ValidateNetworkName(list.Name); err != nil {
		return nil, fmt.Errorf("name %q: %w", list.Name, err)
	}
	more, err := libcni.NetworkPluginConfsFromFiles(filepath.Dir(path), list.Name)
	if err != nil || len(more) == 0 {
		return list, err
	}
	return inline(list, more)
}

// inline returns the list with more plugins, all of them in its Bytes.
func inline(list *libcni.NetworkConfigList, more []*libcni.PluginConfig) (*libcni.NetworkConfigList, error) {
	var raw map[string]any
	if err := json.Unmarshal(list.Bytes, &raw); err != nil {
		return nil, err
	}
	plugins, _ := raw["plugins"].([]any)
	for _, p := range more {
		plugins = append(plugins, json.RawMessage(p.Bytes))
	}
	raw["plugins"], raw["loadOnlyInlinedPlugins"] = plugins, true
	data, err := json.Marshal(raw)
	if err != nil {
		return nil, err
	}
	return libcni.NetworkConfFromBytes(data)
}

// parseSingle reads a configuration that is one plugin's alone.
func parseSingle(data []byte) (*libcni.NetworkConfigList, error) {
	var head struct {
		Name    string          `json:"name"`
		Version string          `json:"cniVersion"`
		Type    string          `json:"type"`
		Plugins json.RawMessage `json:"plugins"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, err
	}
	if head.Type == "" {
		if head.Plugins != nil {
			return nil, fmt.Errorf("it is a list of plugins: its name must end in %s", listExtension)
		}
		return nil, errors.New(`it has no "type"`)
	}
	whole, err := json.Marshal(map[string]any{
		"name": head.Name, "cniVersion": head.Version, "plugins": []json.RawMessage{data},
	})
	if err != nil {
		return nil, err
	}
	return libcni.NetworkConfFromBytes(whole)
}
