package configs

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// orValue sets *v to the default if it is the zero value.
func orValue[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// orPointer sets *p to the default if it is nil.
func orPointer[T any](p **T, def T) {
	if *p == nil {
		*p = &def
	}
}

// orDuration is orValue for the API's durations: zero means "not set", as in the kubelet.
func orDuration(d *metav1.Duration, def time.Duration) { orValue(&d.Duration, def) }

// setKubeletDefaults applies the defaults of kubelet 1.36, with two differences. failCgroupV1 is
// false, because berth runs on cgroup v1 and v2. The manifest directory of a node without a config
// is kubeadm's (see [Load]).
//
// The kubelet has weaker defaults if it starts without any config file (anonymous access, read-only
// port). berth does not have them.
func setKubeletDefaults(k *kubeletconfigv1beta1.KubeletConfiguration) {
	k.APIVersion, k.Kind = kubeletAPIVersion, string(kubeletDoc)
	defaultSources(k)
	defaultServer(k)
	defaultNode(k)
	defaultImages(k)
	defaultCgroups(k)
	defaultEviction(k)
	defaultLogs(k)
	defaultWithoutEffect(k)
}

func defaultSources(k *kubeletconfigv1beta1.KubeletConfiguration) {
	orDuration(&k.SyncFrequency, time.Minute)
	orDuration(&k.FileCheckFrequency, 20*time.Second)
	orDuration(&k.HTTPCheckFrequency, 20*time.Second)
	orValue(&k.ContainerRuntimeEndpoint, "unix:///run/containerd/containerd.sock")
	orDuration(&k.RuntimeRequestTimeout, 2*time.Minute)
	orPointer(&k.ResolverConfig, "/etc/resolv.conf")
	orPointer(&k.SeccompDefault, false)
	orPointer(&k.LocalStorageCapacityIsolation, true)
	orValue(&k.ConfigMapAndSecretChangeDetectionStrategy, kubeletconfigv1beta1.WatchChangeDetectionStrategy)
	orPointer(&k.CrashLoopBackOff.MaxContainerRestartPeriod, metav1.Duration{Duration: 300 * time.Second})
}

func defaultServer(k *kubeletconfigv1beta1.KubeletConfiguration) {
	orPointer(&k.EnableServer, true)
	orValue(&k.Address, "0.0.0.0")
	orValue(&k.Port, 10250)
	orPointer(&k.Authentication.Anonymous.Enabled, false)
	orPointer(&k.Authentication.Webhook.Enabled, true)
	orDuration(&k.Authentication.Webhook.CacheTTL, 2*time.Minute)
	orValue(&k.Authorization.Mode, kubeletconfigv1beta1.KubeletAuthorizationModeWebhook)
	orDuration(&k.Authorization.Webhook.CacheAuthorizedTTL, 5*time.Minute)
	orDuration(&k.Authorization.Webhook.CacheUnauthorizedTTL, 30*time.Second)
	orPointer(&k.EnableDebuggingHandlers, true)
	orPointer(&k.EnableProfilingHandler, true)
	orPointer(&k.EnableDebugFlagsHandler, true)
	orPointer(&k.EnableSystemLogHandler, true)
	orPointer(&k.EnableSystemLogQuery, false)
	orPointer(&k.HealthzPort, 10248)
	orValue(&k.HealthzBindAddress, "127.0.0.1")
	orDuration(&k.StreamingConnectionIdleTimeout, 4*time.Hour)
}

func defaultNode(k *kubeletconfigv1beta1.KubeletConfiguration) {
	orPointer(&k.RegisterNode, true)
	// If the user sets the interval of status reports, unchanged status is reported in the same
	// interval.
	if k.NodeStatusUpdateFrequency.Duration != 0 {
		orDuration(&k.NodeStatusReportFrequency, k.NodeStatusUpdateFrequency.Duration)
	}
	orDuration(&k.NodeStatusReportFrequency, 5*time.Minute)
	orDuration(&k.NodeStatusUpdateFrequency, 10*time.Second)
	orValue(&k.NodeLeaseDurationSeconds, 40)
	orPointer(&k.EventRecordQPS, 50)
	orValue(&k.EventBurst, 100)
	orPointer(&k.KubeAPIQPS, 50)
	orValue(&k.KubeAPIBurst, 100)
	orValue(&k.ContentType, "application/vnd.kubernetes.protobuf")
	orPointer(&k.OOMScoreAdj, -999)
	orValue(&k.MaxOpenFiles, 1000000)
	orValue(&k.MaxPods, 110)
	orPointer(&k.FailSwapOn, true)
	orPointer(&k.FailCgroupV1, false)
}

func defaultImages(k *kubeletconfigv1beta1.KubeletConfiguration) {
	orPointer(&k.RegistryPullQPS, 5)
	orValue(&k.RegistryBurst, 10)
	orPointer(&k.SerializeImagePulls, k.MaxParallelImagePulls == nil || *k.MaxParallelImagePulls < 2)
	orDuration(&k.ImageMinimumGCAge, 2*time.Minute)
	orPointer(&k.ImageGCHighThresholdPercent, 85)
	orPointer(&k.ImageGCLowThresholdPercent, 80)
	orValue(&k.ImagePullCredentialsVerificationPolicy, kubeletconfigv1beta1.NeverVerifyPreloadedImages)
}

func defaultCgroups(k *kubeletconfigv1beta1.KubeletConfiguration) {
	orPointer(&k.CgroupsPerQOS, true)
	orValue(&k.CgroupDriver, "cgroupfs")
	if k.EnforceNodeAllocatable == nil {
		k.EnforceNodeAllocatable = []string{enforcePods}
	}
	// Any negative limit means the node's limit, which is written as -1.
	if k.PodPidsLimit == nil || *k.PodPidsLimit < 0 {
		unlimited := int64(-1)
		k.PodPidsLimit = &unlimited
	}
	orPointer(&k.CPUCFSQuota, true)
	orPointer(&k.CPUCFSQuotaPeriod, metav1.Duration{Duration: 100 * time.Millisecond})
}

func defaultLogs(k *kubeletconfigv1beta1.KubeletConfiguration) {
	orValue(&k.PodLogsDir, "/var/log/pods")
	orValue(&k.ContainerLogMaxSize, "10Mi")
	orPointer(&k.ContainerLogMaxFiles, 5)
	orPointer(&k.ContainerLogMaxWorkers, 1)
	orPointer(&k.ContainerLogMonitorInterval, metav1.Duration{Duration: 10 * time.Second})
	logsapi.SetRecommendedLoggingConfiguration(&k.Logging)
}

// defaultWithoutEffect sets the kubelet's defaults in fields that berth ignores. So the
// configuration looks like a kubelet's, and a field that the user sets to its default gives no
// warning.
func defaultWithoutEffect(k *kubeletconfigv1beta1.KubeletConfiguration) {
	orDuration(&k.VolumeStatsAggPeriod, time.Minute)
	orValue(&k.CPUManagerPolicy, "none")
	orDuration(&k.CPUManagerReconcilePeriod, 10*time.Second)
	orValue(&k.MemoryManagerPolicy, kubeletconfigv1beta1.NoneMemoryManagerPolicy)
	orValue(&k.TopologyManagerPolicy, kubeletconfigv1beta1.NoneTopologyManagerPolicy)
	orValue(&k.TopologyManagerScope, kubeletconfigv1beta1.ContainerTopologyManagerScope)
	orPointer(&k.MemoryThrottlingFactor, 0.9)
	orValue(&k.MemoryReservationPolicy, kubeletconfigv1beta1.NoneMemoryReservationPolicy)
	orValue(&k.HairpinMode, kubeletconfigv1beta1.PromiscuousBridge)
	orPointer(&k.NodeStatusMaxImages, 50)
	orPointer(&k.EnableControllerAttachDetach, true)
	orPointer(&k.MakeIPTablesUtilChains, true)
	orPointer(&k.IPTablesMasqueradeBit, 14)
	orPointer(&k.IPTablesDropBit, 15)
	orValue(&k.VolumePluginDir, "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/")
}
