package configs

import (
	"fmt"
	"maps"
	"net/netip"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	tracingapi "k8s.io/component-base/tracing/api/v1"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// The values of enforceNodeAllocatable.
const (
	enforcePods               = "pods"
	enforceNone               = "none"
	enforceSystem             = "system-reserved"
	enforceSystemCompressible = "system-reserved-compressible"
	enforceKube               = "kube-reserved"
	enforceKubeCompressible   = "kube-reserved-compressible"
)

// checker reports wrong values of one document.
type checker struct {
	kind   docKind
	report *report
}

func (c checker) fail(path, format string, args ...any) { c.report.fail(c.kind, path, format, args...) }

// that fails with the message if ok is false.
func (c checker) that(ok bool, path, format string, args ...any) {
	if !ok {
		c.fail(path, format, args...)
	}
}

// oneOf checks an enumeration.
func oneOf[T ~string](c checker, path string, value T, allowed ...T) {
	if slices.Contains(allowed, value) {
		return
	}
	names := make([]string, len(allowed))
	for i, a := range allowed {
		names[i] = fmt.Sprintf("%q", string(a))
	}
	c.fail(path, "%q is not supported: must be one of %s", string(value), strings.Join(names, ", "))
}

// atLeast checks a lower limit. It does not check a nil pointer.
func atLeast[T int32 | int64](c checker, path string, value *T, least T) {
	if value != nil && *value < least {
		c.fail(path, "%d must be %d or more", *value, least)
	}
}

func between[T int32 | int64](c checker, path string, value *T, least, most T) {
	if value != nil && (*value < least || *value > most) {
		c.fail(path, "%d must be between %d and %d", *value, least, most)
	}
}

func (c checker) positive(path string, d metav1.Duration) {
	c.that(d.Duration > 0, path, "%v must be greater than zero", d.Duration)
}

func (c checker) notNegative(path string, d metav1.Duration) {
	c.that(d.Duration >= 0, path, "%v must not be negative", d.Duration)
}

func (c checker) absolute(path, value string) {
	c.that(filepath.IsAbs(value), path, "%q must be an absolute path", value)
}

func (c checker) ip(path, value string) {
	_, err := netip.ParseAddr(value)
	c.that(err == nil, path, "%q is not an IP address", value)
}

// validateKubelet checks a KubeletConfiguration with its defaults.
func validateKubelet(k *kubeletconfigv1beta1.KubeletConfiguration, r *report) {
	c := checker{kubeletDoc, r}
	checkGates(k.FeatureGates, r)
	c.that(!k.RunOnce, "runOnce",
		"the kubelet no longer has this mode, and neither has the agent: use berth run --once POD.yaml")
	c.sources(k)
	c.server(k)
	c.node(k)
	c.images(k)
	c.cgroups(k)
	c.reserved(k)
	c.pods(k)
	c.logs(k)
	c.ownLog(k)
	c.shutdown(k)
	c.eviction(k)
	c.withoutEffect(k)
}

func (c checker) sources(k *kubeletconfigv1beta1.KubeletConfiguration) {
	c.positive("syncFrequency", k.SyncFrequency)
	c.positive("fileCheckFrequency", k.FileCheckFrequency)
	c.positive("httpCheckFrequency", k.HTTPCheckFrequency)
	if k.StaticPodURL != "" {
		c.httpURL("staticPodURL", k.StaticPodURL)
	}
	c.endpoint("containerRuntimeEndpoint", k.ContainerRuntimeEndpoint)
	if k.ImageServiceEndpoint != "" {
		c.endpoint("imageServiceEndpoint", k.ImageServiceEndpoint)
	}
	c.positive("runtimeRequestTimeout", k.RuntimeRequestTimeout)
	oneOf(c, "configMapAndSecretChangeDetectionStrategy", k.ConfigMapAndSecretChangeDetectionStrategy,
		kubeletconfigv1beta1.GetChangeDetectionStrategy, kubeletconfigv1beta1.TTLCacheChangeDetectionStrategy,
		kubeletconfigv1beta1.WatchChangeDetectionStrategy)
}

func (c checker) server(k *kubeletconfigv1beta1.KubeletConfiguration) {
	c.ip("address", k.Address)
	between(c, "port", &k.Port, 1, 65535)
	between(c, "readOnlyPort", &k.ReadOnlyPort, 0, 65535)
	between(c, "healthzPort", k.HealthzPort, 0, 65535)
	c.ip("healthzBindAddress", k.HealthzBindAddress)
	c.that(k.ReadOnlyPort == 0 || k.ReadOnlyPort != k.Port, "readOnlyPort",
		"%d is also the port of the authenticated API", k.ReadOnlyPort)
	c.notNegative("streamingConnectionIdleTimeout", k.StreamingConnectionIdleTimeout)
	oneOf(c, "authorization.mode", k.Authorization.Mode,
		kubeletconfigv1beta1.KubeletAuthorizationModeAlwaysAllow, kubeletconfigv1beta1.KubeletAuthorizationModeWebhook)
	c.notNegative("authentication.webhook.cacheTTL", k.Authentication.Webhook.CacheTTL)
	c.notNegative("authorization.webhook.cacheAuthorizedTTL", k.Authorization.Webhook.CacheAuthorizedTTL)
	c.notNegative("authorization.webhook.cacheUnauthorizedTTL", k.Authorization.Webhook.CacheUnauthorizedTTL)
	c.that((k.TLSCertFile == "") == (k.TLSPrivateKeyFile == ""), "tlsCertFile",
		"must be set together with tlsPrivateKeyFile")
	oneOf(c, "tlsMinVersion", k.TLSMinVersion, "", "VersionTLS10", "VersionTLS11", "VersionTLS12", "VersionTLS13")
	c.that(!k.ServerTLSBootstrap || c.gate(k, "RotateKubeletServerCertificate"), "serverTLSBootstrap",
		"needs the feature gate RotateKubeletServerCertificate")
	query := k.EnableSystemLogQuery != nil && *k.EnableSystemLogQuery
	c.that(!query || c.gate(k, "NodeLogQuery"), "enableSystemLogQuery", "needs the feature gate NodeLogQuery")
	c.that(!query || *k.EnableSystemLogHandler, "enableSystemLogQuery", "needs enableSystemLogHandler")
}

func (c checker) gate(k *kubeletconfigv1beta1.KubeletConfiguration, name string) bool {
	return (&Config{Kubelet: *k}).GateEnabled(name)
}

func (c checker) node(k *kubeletconfigv1beta1.KubeletConfiguration) {
	c.positive("nodeStatusUpdateFrequency", k.NodeStatusUpdateFrequency)
	c.positive("nodeStatusReportFrequency", k.NodeStatusReportFrequency)
	atLeast(c, "nodeLeaseDurationSeconds", &k.NodeLeaseDurationSeconds, 1)
	atLeast(c, "eventRecordQPS", k.EventRecordQPS, 0)
	atLeast(c, "eventBurst", &k.EventBurst, 0)
	atLeast(c, "kubeAPIQPS", k.KubeAPIQPS, 0)
	atLeast(c, "kubeAPIBurst", &k.KubeAPIBurst, 0)
	between(c, "oomScoreAdj", k.OOMScoreAdj, -1000, 1000)
	atLeast(c, "maxOpenFiles", &k.MaxOpenFiles, 0)
	atLeast(c, "maxPods", &k.MaxPods, 0)
	atLeast(c, "podsPerCore", &k.PodsPerCore, 0)
	c.taints("registerWithTaints", k.RegisterWithTaints)
}

func (c checker) images(k *kubeletconfigv1beta1.KubeletConfiguration) {
	atLeast(c, "registryPullQPS", k.RegistryPullQPS, 0)
	atLeast(c, "registryBurst", &k.RegistryBurst, 0)
	atLeast(c, "maxParallelImagePulls", k.MaxParallelImagePulls, 1)
	c.that(!*k.SerializeImagePulls || k.MaxParallelImagePulls == nil || *k.MaxParallelImagePulls <= 1,
		"maxParallelImagePulls",
		"cannot be larger than 1 unless serializeImagePulls is false")
	between(c, "imageGCHighThresholdPercent", k.ImageGCHighThresholdPercent, 0, 100)
	between(c, "imageGCLowThresholdPercent", k.ImageGCLowThresholdPercent, 0, 100)
	c.that(*k.ImageGCLowThresholdPercent < *k.ImageGCHighThresholdPercent, "imageGCLowThresholdPercent",
		"%d must be less than imageGCHighThresholdPercent (%d)",
		*k.ImageGCLowThresholdPercent, *k.ImageGCHighThresholdPercent)
	c.notNegative("imageMinimumGCAge", k.ImageMinimumGCAge)
	c.notNegative("imageMaximumGCAge", k.ImageMaximumGCAge)
	c.that(k.ImageMaximumGCAge.Duration <= 0 || k.ImageMaximumGCAge.Duration > k.ImageMinimumGCAge.Duration,
		"imageMaximumGCAge",
		"%v must be greater than imageMinimumGCAge (%v)", k.ImageMaximumGCAge.Duration, k.ImageMinimumGCAge.Duration)
	oneOf(c, "imagePullCredentialsVerificationPolicy", k.ImagePullCredentialsVerificationPolicy,
		kubeletconfigv1beta1.NeverVerify, kubeletconfigv1beta1.NeverVerifyPreloadedImages,
		kubeletconfigv1beta1.NeverVerifyAllowlistedImages, kubeletconfigv1beta1.AlwaysVerify)
	c.that(len(k.PreloadedImagesVerificationAllowlist) == 0 ||
		k.ImagePullCredentialsVerificationPolicy == kubeletconfigv1beta1.NeverVerifyAllowlistedImages,
		"preloadedImagesVerificationAllowlist", "needs imagePullCredentialsVerificationPolicy %q",
		kubeletconfigv1beta1.NeverVerifyAllowlistedImages)
}

func (c checker) logs(k *kubeletconfigv1beta1.KubeletConfiguration) {
	c.absolute("podLogsDir", k.PodLogsDir)
	c.that(filepath.Clean(k.PodLogsDir) == k.PodLogsDir, "podLogsDir",
		"%q must be written without . and .. and doubled slashes", k.PodLogsDir)
	c.size("containerLogMaxSize", k.ContainerLogMaxSize)
	atLeast(c, "containerLogMaxFiles", k.ContainerLogMaxFiles, 2)
	atLeast(c, "containerLogMaxWorkers", k.ContainerLogMaxWorkers, 1)
	c.that(k.ContainerLogMonitorInterval.Duration >= 3*time.Second, "containerLogMonitorInterval",
		"%v must be 3s or more", k.ContainerLogMonitorInterval.Duration)
	for _, err := range tracingapi.ValidateTracingConfiguration(k.Tracing, nil, field.NewPath("tracing")) {
		c.that(false, err.Field, "%s", err.ErrorBody())
	}
}

func (c checker) shutdown(k *kubeletconfigv1beta1.KubeletConfiguration) {
	for path, d := range map[string]time.Duration{
		"shutdownGracePeriod":             k.ShutdownGracePeriod.Duration,
		"shutdownGracePeriodCriticalPods": k.ShutdownGracePeriodCriticalPods.Duration,
	} {
		c.that(d == 0 || d >= time.Second, path, "%v must be zero, or 1s or more", d)
	}
	c.that(k.ShutdownGracePeriodCriticalPods.Duration <= k.ShutdownGracePeriod.Duration,
		"shutdownGracePeriodCriticalPods",
		"%v must not be longer than shutdownGracePeriod (%v)", k.ShutdownGracePeriodCriticalPods.Duration,
		k.ShutdownGracePeriod.Duration)
	c.that(len(k.ShutdownGracePeriodByPodPriority) == 0 || k.ShutdownGracePeriod.Duration <= 0,
		"shutdownGracePeriodByPodPriority",
		"cannot be combined with shutdownGracePeriod")
	for i, s := range k.ShutdownGracePeriodByPodPriority {
		c.that(s.ShutdownGracePeriodSeconds >= 0,
			fmt.Sprintf("shutdownGracePeriodByPodPriority[%d].shutdownGracePeriodSeconds", i),
			"%d must not be negative", s.ShutdownGracePeriodSeconds)
	}
}

// size checks a number of bytes. A negative number is the user's way to say "none".
func (c checker) size(path, value string) {
	q, err := resource.ParseQuantity(value)
	if c.that(err == nil, path, "%q is not a quantity such as 10Mi", value); err == nil {
		_, whole := q.AsInt64()
		c.that(whole, path, "%q is not a whole number of bytes", value)
	}
}

// leastLogBound is the least limit for all logs of a container or of the node, in bytes. It leaves
// room for a few files.
const leastLogBound = 64 << 10

// logBounds checks the limits of container logs.
func (c checker) logBounds(l LogsConfiguration) {
	c.quantity("logs.maxContainerSize", l.MaxContainerSize)
	c.amountOrPercentage("logs.maxNodeSize", l.MaxNodeSize)
	for path, value := range map[string]string{
		"logs.maxContainerSize": l.MaxContainerSize, "logs.maxNodeSize": l.MaxNodeSize,
	} {
		if q, err := resource.ParseQuantity(value); err == nil && q.Sign() >= 0 {
			c.that(q.Value() >= leastLogBound, path, "%q must be 64Ki or more", value)
		}
	}
}

// containerdNamespace matches what containerd takes as the name of a namespace.
var containerdNamespace = regexp.MustCompile(`^[A-Za-z0-9]+(?:[-._][A-Za-z0-9]+)*$`)

// maxContainerdNamespace is the longest name of a namespace that containerd takes.
const maxContainerdNamespace = 76

// containerd checks what the native runtime needs.
func (c checker) containerd(d ContainerdConfiguration) {
	if d.Address != "" {
		c.endpoint("containerd.address", d.Address)
	}
	c.that(d.Namespace == "" || len(d.Namespace) <= maxContainerdNamespace && containerdNamespace.MatchString(d.Namespace),
		"containerd.namespace", "%q is not a name that containerd takes", d.Namespace)
	c.that(d.Namespace != "k8s.io" && d.Namespace != "moby", "containerd.namespace",
		"%q is the namespace of another program, which would lose its containers", d.Namespace)
	c.absolute("containerd.registryConfigDir", d.RegistryConfigDir)
	_, known := d.Runtimes[d.DefaultRuntime]
	c.that(known, "containerd.defaultRuntime", "%q is not one of containerd.runtimes", d.DefaultRuntime)
	for _, name := range slices.Sorted(maps.Keys(d.Runtimes)) {
		path := "containerd.runtimes." + name
		c.that(len(validation.IsDNS1123Label(name)) == 0, path, "%q is not a name that a RuntimeClass can have", name)
		if root := d.Runtimes[name].Root; root != "" {
			c.absolute(path+".root", root)
		}
	}
}

// socket checks the path of a unix socket that the agent makes.
func (c checker) socket(path, value string) {
	c.absolute(path, value)
	// sun_path of a unix socket address has 108 bytes with the closing zero.
	c.that(len(value) < 108, path, "%q is longer than the 107 bytes of a socket's path", value)
}

// validateBerth checks a BerthConfiguration with its defaults.
func validateBerth(b *BerthConfiguration, r *report) {
	c := checker{berthDoc, r}
	c.socket("socket", b.Socket)
	if b.CRISocket != "" {
		c.socket("criSocket", b.CRISocket)
	}
	oneOf(c, "runtime", b.Runtime, RuntimeAuto, RuntimeRemote, RuntimeNative)
	c.containerd(b.Containerd)
	oneOf(c, "podSecurity", b.PodSecurity, PodSecurityPrivileged, PodSecurityBaseline, PodSecurityRestricted)
	oneOf(c, "sandbox.pause", b.Sandbox.Pause, PauseAuto, PauseAlways, PauseNever)
	between(c, "maxParallelPodStarts", &b.MaxParallelPodStarts, 1, 1000)
	c.socket("nri.socket", b.NRI.Socket)
	c.absolute("nri.pluginDir", b.NRI.PluginDir)
	c.absolute("nri.configDir", b.NRI.ConfigDir)
	c.absolute("imagesDir", b.ImagesDir)
	c.absolute("containerLogsDir", b.ContainerLogsDir)
	c.logBounds(b.Logs)
	c.crashLoopBackOff(b.CrashLoopBackOff)
	c.absolute("cni.confDir", b.CNI.ConfDir)
	for i, pattern := range b.RuntimeAnnotations {
		_, err := path.Match(pattern, "")
		c.that(err == nil, fmt.Sprintf("runtimeAnnotations[%d]", i), "%q: %v", pattern, err)
	}
	for i, dir := range b.CNI.BinDirs {
		c.absolute(fmt.Sprintf("cni.binDirs[%d]", i), dir)
	}
	c.that(b.ImagePullStallTimeout.Duration >= time.Second, "imagePullStallTimeout", "%v must be 1s or more",
		b.ImagePullStallTimeout.Duration)
	c.that(b.RelistPeriod.Duration >= time.Second, "relistPeriod", "%v must be 1s or more", b.RelistPeriod.Duration)
	size, err := resource.ParseQuantity(b.History.MaxSize)
	c.that(err == nil && size.Value() >= 1<<20, "history.maxSize", "%q must be a quantity of 1Mi or more",
		b.History.MaxSize)
	c.that(b.History.MaxAge.Duration >= time.Minute, "history.maxAge", "%v must be 1m or more", b.History.MaxAge.Duration)
}
