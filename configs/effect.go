package configs

import (
	"encoding/json"
	"maps"
	"reflect"
	"slices"
)

// warnWithoutEffect warns about every field that the user set to something other than its default and that berth does
// not act on.
func warnWithoutEffect(c *Config, r *report) {
	standard := &Config{}
	setKubeletDefaults(&standard.Kubelet)
	have, want := asJSON(c.Kubelet), asJSON(standard.Kubelet)
	for _, path := range slices.Sorted(maps.Keys(fieldsWithoutEffect())) {
		if !c.IsSet(path) {
			continue
		}
		value, _ := lookup(have, path)
		def, _ := lookup(want, path)
		if !reflect.DeepEqual(value, def) {
			r.warn(kubeletDoc, path, "no effect: %s", fieldsWithoutEffect()[path])
		}
	}
}

// warnWithoutRuntime warns about the settings of berth's own document that only the native runtime acts on, where a CRI runtime is used.
func warnWithoutRuntime(c *Config, r *report) {
	var standard BerthConfiguration
	standard.setDefaults()
	have, want := asJSON(c.Berth), asJSON(standard)
	for path, reason := range map[string]string{
		"sandbox.pause": "the CRI runtime decides how it makes sandboxes",
		"cni.confDir":   "the CRI runtime attaches networks by its own configuration",
		"cni.binDirs":   "the CRI runtime attaches networks by its own configuration",
	} {
		value, _ := lookup(have, path)
		def, _ := lookup(want, path)
		if c.IsSet(berthPrefix+path) && !reflect.DeepEqual(value, def) {
			r.warn(berthDoc, path, "no effect: %s", reason)
		}
	}
}

// asJSON returns a struct as JSON values. Configuration structs always marshal.
func asJSON(v any) map[string]any {
	data, _ := json.Marshal(v)
	var out map[string]any
	_ = json.Unmarshal(data, &out)
	return out
}

// fieldsWithoutEffect are the accepted fields that berth does not act on, with what happens instead. A field leaves this
// list with the change that makes it work.
func fieldsWithoutEffect() map[string]string {
	fields := map[string]string{}
	for _, group := range []struct {
		reason string
		paths  []string
	}{
		{"every container may run on every CPU", []string{"cpuManagerPolicy", "cpuManagerPolicyOptions", "cpuManagerReconcilePeriod"}},
		{"memory is not assigned per NUMA node", []string{"memoryManagerPolicy", "reservedMemory"}},
		{"resources are not aligned to NUMA nodes", []string{"topologyManagerPolicy", "topologyManagerPolicyOptions", "topologyManagerScope"}},
		{"requests are not reserved per quality-of-service class", []string{"qosReserved"}},
		{"containers are not throttled before their memory limit", []string{"memoryThrottlingFactor", "memoryReservationPolicy"}},
		{"hairpin traffic is set up by the CNI plugin", []string{"hairpinMode"}},
		{"pods get their addresses from the CNI plugin's own range", []string{"podCIDR"}},
		{"no iptables chains are made", []string{"iptablesMasqueradeBit", "iptablesDropBit", "makeIPTablesUtilChains"}},
		{"memory thresholds are watched through the kernel's pressure information", []string{"kernelMemcgNotification"}},
		{"FlexVolume plugins are not run", []string{"volumePluginDir"}},
		{"volumes are always attached by the controller", []string{"enableControllerAttachDetach"}},
		{"there is no node object without a cluster", []string{
			"providerID", "nodeStatusMaxImages", "registerNode", "registerWithTaints", "nodeStatusUpdateFrequency", "nodeStatusReportFrequency",
			"nodeLeaseDurationSeconds",
		}},
		{"this version talks to no API server", []string{
			"contentType", "kubeAPIQPS", "kubeAPIBurst", "rotateCertificates", "serverTLSBootstrap", "eventRecordQPS", "eventBurst",
		}},
		{"no metrics are hidden", []string{"showHiddenMetricsForVersion"}},
		{"this version does not evict pods", []string{
			"evictionHard", "evictionSoft", "evictionSoftGracePeriod", "evictionPressureTransitionPeriod", "evictionMaxPodGracePeriod",
			"evictionMinimumReclaim", "mergeDefaultEvictionSettings",
		}},
		{"this version does not remove unused images", []string{
			"imageMinimumGCAge", "imageMaximumGCAge", "imageGCHighThresholdPercent", "imageGCLowThresholdPercent",
		}},
		{"this version uses no registry credentials", []string{
			"imagePullCredentialsVerificationPolicy", "preloadedImagesVerificationAllowlist",
		}},
		{"the reserved amounts are kept from the pods, and no other cgroup is limited", []string{
			"systemReservedCgroup", "kubeReservedCgroup", "reservedSystemCPUs",
		}},
		{"pulls are limited in number (maxParallelImagePulls), not in rate", []string{"registryPullQPS", "registryBurst"}},
		{"a pod is looked at when something happens; relistPeriod of the BerthConfiguration is the safety net", []string{"syncFrequency"}},
		{"the local socket is always served", []string{"enableServer"}},
		{"this version runs sysctls of a namespace of the pod, allowed or not, and refuses all others", []string{"allowedUnsafeSysctls"}},
		{"local storage is not limited by this version", []string{"localStorageCapacityIsolation"}},
		{"ConfigMaps and Secrets are local files, which are watched", []string{"configMapAndSecretChangeDetectionStrategy"}},
		{"this version serves the local socket and, with readOnlyPort, the read-only API, but no TLS port", []string{
			"address", "port", "tlsCertFile", "tlsPrivateKeyFile", "tlsCipherSuites", "tlsCurvePreferences", "tlsMinVersion", "authentication", "authorization",
		}},
		{"this version does not order pods at node shutdown", []string{
			"shutdownGracePeriod", "shutdownGracePeriodCriticalPods", "shutdownGracePeriodByPodPriority",
		}},
		{"this version reads manifests from the directory only", []string{"staticPodURL", "staticPodURLHeader", "httpCheckFrequency"}},
		{"this version exports no traces", []string{"tracing"}},
		{"containers get no swap", []string{"memorySwap.swapBehavior"}},
		{"the agent stays in the cgroup it was started in", []string{"kubeletCgroups", "systemCgroups"}},
		{"kernel settings are left as they are", []string{"protectKernelDefaults"}},
		{"the service manager sets the agent's limits", []string{"oomScoreAdj", "maxOpenFiles"}},
		{"volumes are measured when somebody asks", []string{"volumeStatsAggPeriod"}},
		{"the log goes unbuffered to one stream", []string{"logging.flushFrequency", "logging.options"}},
		{"levels per source file are not supported, use logging.verbosity", []string{"logging.vmodule"}},
		{"the host's log is not served", []string{"enableSystemLogHandler", "enableSystemLogQuery"}},
		{"this version does not rotate container logs", []string{
			"containerLogMaxSize", "containerLogMaxFiles", "containerLogMaxWorkers", "containerLogMonitorInterval",
		}},
		{"user namespaces are not set up by this version", []string{"userNamespaces"}},
	} {
		for _, path := range group.paths {
			fields[path] = group.reason
		}
	}
	return fields
}

// plainFlagsWithoutEffect are the flags without a field that this version does not act on.
func plainFlagsWithoutEffect() map[string]string {
	return map[string]string{
		"node-labels":                       "there is no node object without a cluster",
		"cloud-provider":                    "there is no node object without a cluster",
		"runtime-cgroups":                   "the runtime's cgroup is not measured",
		"image-credential-provider-config":  "this version uses no registry credentials",
		"image-credential-provider-bin-dir": "this version uses no registry credentials",
	}
}
