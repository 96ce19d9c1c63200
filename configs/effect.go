package configs

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
)

// warnWithoutEffect warns about every field that berth ignores and that the user set to another
// value than the default.
func warnWithoutEffect(c *Config, r *report) {
	standard := &Config{}
	setKubeletDefaults(&standard.Kubelet)
	have, want := asJSON(c.Kubelet), asJSON(standard.Kubelet)
	without := fieldsWithoutEffect()
	if c.Kubeconfig == "" {
		maps.Copy(without, clusterFields())
	}
	if why := c.whyNoAPI(); why != "" {
		for _, path := range apiFields() {
			without[path] = why
		}
		if c.Kubelet.ReadOnlyPort > 0 {
			delete(without, "address")
		}
	}
	for _, path := range slices.Sorted(maps.Keys(without)) {
		if !c.IsSet(path) {
			continue
		}
		value, _ := lookup(have, path)
		def, _ := lookup(want, path)
		if !reflect.DeepEqual(value, def) {
			r.warn(kubeletDoc, path, "no effect: %s", without[path])
		}
	}
}

// warnWithoutRuntime warns about berth's own settings that only the native runtime uses, if the
// config asks for a CRI runtime.
func warnWithoutRuntime(c *Config, r *report) {
	if c.Berth.Runtime != RuntimeRemote {
		return
	}
	var standard BerthConfiguration
	standard.setDefaults()
	have, want := asJSON(c.Berth), asJSON(standard)
	for path, reason := range nativeFields() {
		value, _ := lookup(have, path)
		def, _ := lookup(want, path)
		if c.IsSet(berthPrefix+path) && !reflect.DeepEqual(value, def) {
			r.warn(berthDoc, path, "no effect: %s", reason)
		}
	}
}

// nativeFields returns berth's own fields that only the native runtime uses, each with what happens
// instead.
func nativeFields() map[string]string {
	return map[string]string{
		"containerd.address":           "containerRuntimeEndpoint is the CRI runtime's socket",
		"containerd.namespace":         "the CRI runtime has a namespace of its own",
		"containerd.registryConfigDir": "the CRI runtime has its own configuration of registries",
		"containerd.defaultRuntime":    "the CRI runtime has its own handlers",
		"containerd.runtimes":          "the CRI runtime has its own handlers",
		"sandbox.image":                "the CRI runtime decides how it makes sandboxes",
		"sandbox.pause":                "the CRI runtime decides how it makes sandboxes",
		"nri.enabled":                  "the CRI runtime has its own configuration of NRI plugins",
		"nri.socket":                   "the CRI runtime has its own configuration of NRI plugins",
		"nri.pluginDir":                "the CRI runtime has its own configuration of NRI plugins",
		"nri.configDir":                "the CRI runtime has its own configuration of NRI plugins",
		"cni.confDir":                  "the CRI runtime attaches networks by its own configuration",
		"cni.binDirs":                  "the CRI runtime attaches networks by its own configuration",
	}
}

// asJSON returns a struct as JSON values. Configuration structs can always be marshalled.
func asJSON(v any) map[string]any {
	data, _ := json.Marshal(v)
	var out map[string]any
	_ = json.Unmarshal(data, &out)
	return out
}

// fieldsWithoutEffect returns the accepted fields that berth ignores, each with what happens
// instead. The change that makes a field work removes it from this list.
func fieldsWithoutEffect() map[string]string {
	fields := map[string]string{}
	for _, group := range []struct {
		reason string
		paths  []string
	}{
		{"requests are not reserved per quality-of-service class", []string{"qosReserved"}},
		{"no memory of pods is kept from being reclaimed", []string{"memoryReservationPolicy"}},
		{"hairpin traffic is set up by the CNI plugin", []string{"hairpinMode"}},
		{"no iptables chain marks packets", []string{"iptablesMasqueradeBit", "iptablesDropBit"}},
		{
			"memory thresholds are watched through the kernel's pressure information",
			[]string{"kernelMemcgNotification"},
		},
		{"FlexVolume plugins are not run", []string{"volumePluginDir"}},
		{"volumes are always attached by the controller", []string{"enableControllerAttachDetach"}},
		{"no metrics are hidden", []string{"showHiddenMetricsForVersion"}},
		{
			"a pod is looked at when something happens; relistPeriod of the BerthConfiguration is the safety net",
			[]string{"syncFrequency"},
		},
		{"ConfigMaps and Secrets are always watched", []string{"configMapAndSecretChangeDetectionStrategy"}},
		{"the agent stays in the cgroup it was started in", []string{"kubeletCgroups", "systemCgroups"}},
		{"volumes are measured when somebody asks", []string{"volumeStatsAggPeriod"}},
	} {
		for _, path := range group.paths {
			fields[path] = group.reason
		}
	}
	return fields
}

// clusterFields returns the fields that have an effect only on a node of a cluster, each with what
// happens without a cluster.
func clusterFields() map[string]string {
	fields := map[string]string{}
	for _, path := range []string{
		"providerID", "nodeStatusMaxImages", "registerNode", "registerWithTaints", "nodeStatusUpdateFrequency",
		"nodeStatusReportFrequency",
		"nodeLeaseDurationSeconds",
	} {
		fields[path] = "there is no node object"
	}
	for _, path := range []string{
		"contentType", "kubeAPIQPS", "kubeAPIBurst", "eventRecordQPS", "eventBurst", "rotateCertificates",
		"serverTLSBootstrap",
	} {
		fields[path] = "there is no API server to talk to"
	}
	return fields
}

// plainFlagsWithoutEffect returns the flags without a field that are ignored.
func plainFlagsWithoutEffect(f Flags) map[string]string {
	flags := map[string]string{
		"runtime-cgroups": "the runtime's cgroup is not measured",
	}
	if f.Kubeconfig == "" {
		flags["cloud-provider"] = "there is no node object without a cluster"
	}
	return flags
}
