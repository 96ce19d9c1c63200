package configs

// fieldFlags returns the flags that set a field of the config file. A flag overrides the file.
func fieldFlags() []flagSpec {
	return []flagSpec{
		// Berth's own.
		{"socket", kindString, "berth:socket", "Path of the agent's local API socket."},
		{"socket-group", kindString, "berth:socketGroup", "Group that may open the local API socket."},
		{"runtime", kindString, "berth:runtime", "How containers are run: auto, remote (a CRI socket) or native."},
		{"cni-conf-dir", kindString, "berth:cni.confDir", "Directory of CNI network configs."},
		{"cni-bin-dir", kindStrings, "berth:cni.binDirs", "Directories of CNI plugins, searched in order."},
		{"images-dir", kindString, "berth:imagesDir", "Directory of image archives imported when they come."},

		// Pod sources.
		{"pod-manifest-path", kindString, "staticPodPath", "Directory of pod manifests, or one manifest file."},
		{
			"file-check-frequency", kindDuration, "fileCheckFrequency",
			"How often the manifest directory is read in full.",
		},
		{"manifest-url", kindString, "staticPodURL", "URL of pod manifests."},
		{
			"manifest-url-header", kindHeaders, "staticPodURLHeader",
			"HTTP headers for --manifest-url, as NAME:VALUE,NAME:VALUE.",
		},
		{"http-check-frequency", kindDuration, "httpCheckFrequency", "How often --manifest-url is read."},
		{"sync-frequency", kindDuration, "syncFrequency", "Longest time between two passes over a pod."},

		// Runtime and images.
		{
			"container-runtime-endpoint", kindString, "containerRuntimeEndpoint",
			"The runtime's CRI socket, as unix:///PATH.",
		},
		{
			"image-service-endpoint", kindString, "imageServiceEndpoint",
			"The CRI image service's socket, where it is another one.",
		},
		{
			"runtime-request-timeout", kindDuration, "runtimeRequestTimeout",
			"Longest time a call to the runtime may take.",
		},
		{"registry-qps", kindInt, "registryPullQPS", "Image pulls per second; 0 means no bound."},
		{"registry-burst", kindInt, "registryBurst", "Image pulls that may start at once."},
		{"serialize-image-pulls", kindBool, "serializeImagePulls", "Pull one image at a time."},
		{"minimum-image-ttl-duration", kindDuration, "imageMinimumGCAge", "Age below which an unused image is kept."},
		{
			"image-gc-high-threshold", kindInt, "imageGCHighThresholdPercent",
			"Disk usage in percent above which unused images are removed.",
		},
		{
			"image-gc-low-threshold", kindInt, "imageGCLowThresholdPercent",
			"Disk usage in percent that removing images aims at.",
		},

		// The HTTP server.
		{"enable-server", kindBool, "enableServer", "Serve the kubelet's HTTP API."},
		{"address", kindIP, "address", "Address the HTTP API is served on."},
		{"port", kindInt, "port", "Port of the HTTP API."},
		{"read-only-port", kindInt, "readOnlyPort", "Port of the unauthenticated read-only API; 0 turns it off."},
		{"healthz-port", kindInt, "healthzPort", "Port of /healthz; 0 turns it off."},
		{"healthz-bind-address", kindIP, "healthzBindAddress", "Address of /healthz."},
		{
			"anonymous-auth", kindBool, "authentication.anonymous.enabled",
			"Let requests without credentials in as system:anonymous.",
		},
		{
			"authentication-token-webhook", kindBool, "authentication.webhook.enabled",
			"Let the API server check bearer tokens.",
		},
		{
			"authentication-token-webhook-cache-ttl", kindDuration, "authentication.webhook.cacheTTL",
			"How long a token check is remembered.",
		},
		{
			"client-ca-file", kindString, "authentication.x509.clientCAFile",
			"CA file against which client certificates are checked.",
		},
		{"authorization-mode", kindString, "authorization.mode", "AlwaysAllow or Webhook."},
		{
			"authorization-webhook-cache-authorized-ttl", kindDuration, "authorization.webhook.cacheAuthorizedTTL",
			"How long a yes is remembered.",
		},
		{
			"authorization-webhook-cache-unauthorized-ttl", kindDuration, "authorization.webhook.cacheUnauthorizedTTL",
			"How long a no is remembered.",
		},
		{"tls-cert-file", kindString, "tlsCertFile", "Serving certificate."},
		{"tls-private-key-file", kindString, "tlsPrivateKeyFile", "Key of the serving certificate."},
		{"tls-cipher-suites", kindStrings, "tlsCipherSuites", "Cipher suites of the server."},
		{"tls-min-version", kindString, "tlsMinVersion", "Lowest TLS version: VersionTLS12 or VersionTLS13."},
		{"rotate-certificates", kindBool, "rotateCertificates", "Renew the client certificate through the API server."},
		{
			"rotate-server-certificates", kindBool, "serverTLSBootstrap",
			"Get and renew the serving certificate through the API server.",
		},
		{
			"streaming-connection-idle-timeout", kindDuration, "streamingConnectionIdleTimeout",
			"Idle time after which exec, attach and port-forward streams are closed.",
		},
		{
			"enable-debugging-handlers", kindBool, "enableDebuggingHandlers",
			"Serve logs, exec, attach and port-forward.",
		},
		{"contention-profiling", kindBool, "enableContentionProfiling", "Profile blocking."},

		// The node.
		{"register-node", kindBool, "registerNode", "Make the node object."},
		{
			"register-with-taints", kindTaints, "registerWithTaints",
			"Taints of a new node object, as KEY=VALUE:EFFECT,…",
		},
		{"provider-id", kindString, "providerID", "The machine's identifier at its provider."},
		{
			"node-status-update-frequency", kindDuration, "nodeStatusUpdateFrequency",
			"How often the node's status is computed.",
		},
		{"node-status-max-images", kindInt, "nodeStatusMaxImages", "Most images in the node's status; -1 means all."},
		{"event-qps", kindInt, "eventRecordQPS", "Events per second."},
		{"event-burst", kindInt, "eventBurst", "Events that may be sent at once."},
		{"kube-api-qps", kindInt, "kubeAPIQPS", "Requests per second to the API server."},
		{"kube-api-burst", kindInt, "kubeAPIBurst", "Requests that may be sent to the API server at once."},
		{"kube-api-content-type", kindString, "contentType", "Content type of requests to the API server."},
		{"max-pods", kindInt, "maxPods", "Most pods on this node."},
		{"pods-per-core", kindInt, "podsPerCore", "Most pods per core; 0 means no bound of this kind."},
		{"max-open-files", kindInt, "maxOpenFiles", "Files the agent may open."},
		{"oom-score-adj", kindInt, "oomScoreAdj", "The agent's oom_score_adj."},
		{"fail-swap-on", kindBool, "failSwapOn", "Do not start on a node with swap."},
		{"fail-cgroupv1", kindBool, "failCgroupV1", "Do not start on a node with cgroup v1."},
		{
			"protect-kernel-defaults", kindBool, "protectKernelDefaults",
			"Do not start where a kernel setting differs from what the agent would set.",
		},
		{"feature-gates", kindBoolMap, "featureGates", "Feature gates, as NAME=true,NAME=false."},

		// Pods.
		{"resolv-conf", kindString, "resolvConf", "The resolver file that pods' DNS settings start from."},
		{"cluster-dns", kindStrings, "clusterDNS", "DNS servers of pods with dnsPolicy ClusterFirst."},
		{"cluster-domain", kindString, "clusterDomain", "DNS domain of the cluster."},
		{"seccomp-default", kindBool, "seccompDefault", "RuntimeDefault for pods without a seccomp profile."},
		{
			"allowed-unsafe-sysctls", kindStrings, "allowedUnsafeSysctls",
			"Unsafe sysctls, or patterns ending in *, that pods may set.",
		},
		{"pod-cidr", kindString, "podCIDR", "Range of pod addresses of a node without a cluster."},
		{"hairpin-mode", kindString, "hairpinMode", "How a pod reaches itself through a service."},
		{
			"local-storage-capacity-isolation", kindBool, "localStorageCapacityIsolation",
			"Watch over the local storage pods use.",
		},
		{"volume-plugin-dir", kindString, "volumePluginDir", "Directory of FlexVolume plugins."},
		{"volume-stats-agg-period", kindDuration, "volumeStatsAggPeriod", "How often volumes are measured."},
		{
			"enable-controller-attach-detach", kindBool, "enableControllerAttachDetach",
			"Leave attaching volumes to the controller.",
		},
		{"make-iptables-util-chains", kindBool, "makeIPTablesUtilChains", "Keep the kubelet's iptables chains."},
		{"container-log-max-size", kindString, "containerLogMaxSize", "Size at which a container's log is rotated."},
		{"container-log-max-files", kindInt, "containerLogMaxFiles", "Log files kept per container."},

		// Cgroups and resources.
		{"cgroup-driver", kindString, "cgroupDriver", "cgroupfs or systemd."},
		{"cgroup-root", kindString, "cgroupRoot", "Cgroup under which all pods live."},
		{"cgroups-per-qos", kindBool, "cgroupsPerQOS", "Make cgroups per quality-of-service class and pod."},
		{"kubelet-cgroups", kindString, "kubeletCgroups", "Cgroup the agent moves itself to."},
		{"system-cgroups", kindString, "systemCgroups", "Cgroup for processes that are in none."},
		{"cpu-cfs-quota", kindBool, "cpuCFSQuota", "Enforce CPU limits."},
		{"cpu-cfs-quota-period", kindDuration, "cpuCFSQuotaPeriod", "Period over which CPU limits are enforced."},
		{"pod-max-pids", kindInt, "podPidsLimit", "Most processes per pod; -1 means the node's bound."},
		{"cpu-manager-policy", kindString, "cpuManagerPolicy", "CPU manager policy."},
		{"cpu-manager-policy-options", kindMap, "cpuManagerPolicyOptions", "Options of the CPU manager policy."},
		{"cpu-manager-reconcile-period", kindDuration, "cpuManagerReconcilePeriod", "Period of the CPU manager."},
		{"memory-manager-policy", kindString, "memoryManagerPolicy", "Memory manager policy."},
		{"reserved-memory", kindReserved, "reservedMemory", "Memory reserved per NUMA node, as NODE:memory=1Gi."},
		{"topology-manager-policy", kindString, "topologyManagerPolicy", "Topology manager policy."},
		{
			"topology-manager-policy-options", kindMap, "topologyManagerPolicyOptions",
			"Options of the topology manager policy.",
		},
		{"topology-manager-scope", kindString, "topologyManagerScope", "Scope of the topology manager."},
		{"qos-reserved", kindMap, "qosReserved", "Requests reserved per quality-of-service class."},
		{"system-reserved", kindMap, "systemReserved", "Resources kept for the system, as cpu=200m,memory=500Mi."},
		{"kube-reserved", kindMap, "kubeReserved", "Resources kept for the agent and the runtime."},
		{"reserved-cpus", kindString, "reservedSystemCPUs", "CPUs kept for the system, as 0-1,4."},
		{"system-reserved-cgroup", kindString, "systemReservedCgroup", "Cgroup on which system-reserved is enforced."},
		{"kube-reserved-cgroup", kindString, "kubeReservedCgroup", "Cgroup on which kube-reserved is enforced."},
		{
			"enforce-node-allocatable", kindStrings, "enforceNodeAllocatable",
			"What is enforced: none, pods, system-reserved, kube-reserved, …",
		},

		// Eviction.
		{"eviction-hard", kindLessMap, "evictionHard", "Thresholds of eviction at once, as memory.available<1Gi."},
		{"eviction-soft", kindLessMap, "evictionSoft", "Thresholds of eviction after a grace period."},
		{"eviction-soft-grace-period", kindMap, "evictionSoftGracePeriod", "Grace periods, as memory.available=1m30s."},
		{
			"eviction-minimum-reclaim", kindMap, "evictionMinimumReclaim",
			"Least amount reclaimed, as imagefs.available=2Gi.",
		},
		{
			"eviction-pressure-transition-period", kindDuration, "evictionPressureTransitionPeriod",
			"How long a pressure condition stays after the pressure is gone.",
		},
		{
			"eviction-max-pod-grace-period", kindInt, "evictionMaxPodGracePeriod",
			"Longest grace, in seconds, of a soft eviction.",
		},
		{"kernel-memcg-notification", kindBool, "kernelMemcgNotification", "Let the kernel report memory thresholds."},

		// Logging of the agent.
		{"v", kindInt, "logging.verbosity", "Level of the agent's log: 0 to 10."},
		{"vmodule", kindVModule, "logging.vmodule", "Log levels per source file, as PATTERN=LEVEL,…"},
		{"logging-format", kindString, "logging.format", "Format of the agent's log: text or json."},
		{"log-flush-frequency", kindDuration, "logging.flushFrequency", "How often the log is flushed."},
		{
			"log-text-split-stream", kindBool, "logging.options.text.splitStream",
			"Errors to stderr, the rest to stdout.",
		},
		{"log-text-info-buffer-size", kindString, "logging.options.text.infoBufferSize", "Buffer of the split stream."},
		{
			"log-json-split-stream", kindBool, "logging.options.json.splitStream",
			"Errors to stderr, the rest to stdout.",
		},
		{"log-json-info-buffer-size", kindString, "logging.options.json.infoBufferSize", "Buffer of the split stream."},

		{"runonce", kindBool, "runOnce", "Not supported; see berth run --once."},
	}
}

// plainFlags are the flags without a field in any file.
func plainFlags() []flagSpec {
	return []flagSpec{
		{"config", kindString, "", "The config file, where it exists."},
		{"config-dir", kindString, "", "Directory of drop-ins *.conf, where it exists."},
		{"kubeconfig", kindString, "", "How to reach the API server of a cluster, which this node joins."},
		{
			"bootstrap-kubeconfig", kindString, "",
			"Kubeconfig to ask for a first client certificate with, where --kubeconfig has no valid one.",
		},
		{"root-dir", kindString, "", "Directory of everything the agent keeps about pods."},
		{"cert-dir", kindString, "", "Directory of certificates; pki in --root-dir unless given."},
		{"hostname-override", kindString, "", "Name of this node (default: the host's name)."},
		{"node-ip", kindString, "", "Addresses of this node: one, or one of each family."},
		{"node-labels", kindMap, "", "Labels of the node object, as KEY=VALUE,…"},
		{"cloud-provider", kindString, "", "Empty or external."},
		{"lock-file", kindString, "", "File that is locked while the agent runs."},
		{"exit-on-lock-contention", kindBool, "", "End when somebody else opens --lock-file."},
		{"runtime-cgroups", kindString, "", "Cgroup the runtime runs in."},
		{"image-credential-provider-config", kindString, "", "Config of the image credential provider plugins."},
		{"image-credential-provider-bin-dir", kindString, "", "Directory of the image credential provider plugins."},
		{"minimum-container-ttl-duration", kindDuration, "", "Age below which a dead container is kept."},
		{"maximum-dead-containers-per-container", kindInt, "", "Dead instances kept per container, 1 or more; -1 keeps all."},
		{"maximum-dead-containers", kindInt, "", "Dead containers kept on the node; below 0 means no bound."},
	}
}

// ignoredFlags returns the kubelet's flags that berth accepts and ignores, each with what happens
// instead.
func ignoredFlags() map[string]string {
	const cadvisor = "it belongs to cAdvisor, which berth does not contain"
	flags := map[string]string{
		"pod-infra-container-image":                "the runtime owns the pause image",
		"experimental-mounter-path":                "volumes are mounted with the host's mount helpers",
		"experimental-allocatable-ignore-eviction": "hard eviction thresholds are always subtracted from allocatable",
		"container-runtime":                        "the runtime is always a CRI runtime or berth's own",
		"housekeeping-interval":                    cadvisor,
	}
	for _, name := range []string{
		"application-metrics-count-limit", "boot-id-file", "container-hints", "containerd", "containerd-namespace",
		"enable-load-reader",
		"event-storage-age-limit", "event-storage-event-limit", "global-housekeeping-interval", "log-cadvisor-usage",
		"machine-id-file",
		"storage-driver-buffer-duration", "storage-driver-db", "storage-driver-host", "storage-driver-password",
		"storage-driver-secure",
		"storage-driver-table", "storage-driver-user",
	} {
		flags[name] = cadvisor
	}
	return flags
}
