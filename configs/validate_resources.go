package configs

import (
	"fmt"
	"maps"
	"math"
	"net/url"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
	kubeletapis "k8s.io/kubelet/pkg/apis"
	"k8s.io/utils/cpuset"
)

// userNamespaceUnit is the least number of ids in a pod's user namespace. The number must be a
// multiple of it.
const userNamespaceUnit = 65536

func (c checker) cgroups(k *kubeletconfigv1beta1.KubeletConfiguration) {
	oneOf(c, "cgroupDriver", k.CgroupDriver, "cgroupfs", "systemd")
	for field, value := range map[string]string{
		"cgroupRoot": k.CgroupRoot, "systemCgroups": k.SystemCgroups, "kubeletCgroups": k.KubeletCgroups,
		"systemReservedCgroup": k.SystemReservedCgroup, "kubeReservedCgroup": k.KubeReservedCgroup,
	} {
		clean := path.Clean("/" + value)
		c.that(value == "" || clean == "/"+strings.Trim(value, "/") || value == "/", field,
			"%q must be a cgroup's path without . and ..", value)
	}
	c.that(k.SystemCgroups == "" || k.CgroupRoot != "", "systemCgroups", "needs cgroupRoot")
	period := k.CPUCFSQuotaPeriod.Duration
	c.that(period >= time.Millisecond && period <= time.Second, "cpuCFSQuotaPeriod", "%v must be between 1ms and 1s",
		period)
	c.that(period == 100*time.Millisecond || c.gate(k, "CustomCPUCFSQuotaPeriod"), "cpuCFSQuotaPeriod",
		"%v needs the feature gate CustomCPUCFSQuotaPeriod", period)
	seen := map[string]bool{}
	for i, what := range k.EnforceNodeAllocatable {
		p := fmt.Sprintf("enforceNodeAllocatable[%d]", i)
		c.that(!seen[what], p, "%q is listed twice", what)
		seen[what] = true
		oneOf(c, p, what, enforcePods, enforceNone, enforceSystem, enforceSystemCompressible, enforceKube,
			enforceKubeCompressible)
		c.that(what == enforceNone || *k.CgroupsPerQOS, p, "%q needs cgroupsPerQOS", what)
	}
	c.that(!seen[enforceNone] || len(k.EnforceNodeAllocatable) == 1, "enforceNodeAllocatable", "%q must stand alone",
		enforceNone)
	c.that(!seen[enforceSystem] || !seen[enforceSystemCompressible], "enforceNodeAllocatable",
		"cannot contain both %q and %q", enforceSystem, enforceSystemCompressible)
	c.that(!seen[enforceKube] || !seen[enforceKubeCompressible], "enforceNodeAllocatable",
		"cannot contain both %q and %q", enforceKube, enforceKubeCompressible)
	c.that(k.SystemReservedCgroup != "" || !seen[enforceSystem] && !seen[enforceSystemCompressible],
		"systemReservedCgroup", "must be set to enforce system-reserved")
	c.that(k.KubeReservedCgroup != "" || !seen[enforceKube] && !seen[enforceKubeCompressible], "kubeReservedCgroup",
		"must be set to enforce kube-reserved")
}

func (c checker) reserved(k *kubeletconfigv1beta1.KubeletConfiguration) {
	oneOf(c, "cpuManagerPolicy", k.CPUManagerPolicy, "none", "static")
	c.that(k.CPUManagerPolicy != "none" || len(k.CPUManagerPolicyOptions) == 0, "cpuManagerPolicyOptions",
		`the policy "none" has no options: set cpuManagerPolicy`)
	oneOf(c, "memoryManagerPolicy", k.MemoryManagerPolicy, kubeletconfigv1beta1.NoneMemoryManagerPolicy,
		kubeletconfigv1beta1.StaticMemoryManagerPolicy)
	oneOf(c, "topologyManagerPolicy", k.TopologyManagerPolicy,
		kubeletconfigv1beta1.NoneTopologyManagerPolicy, kubeletconfigv1beta1.BestEffortTopologyManagerPolicy,
		kubeletconfigv1beta1.RestrictedTopologyManagerPolicy, kubeletconfigv1beta1.SingleNumaNodeTopologyManagerPolicy)
	oneOf(c, "topologyManagerScope", k.TopologyManagerScope, kubeletconfigv1beta1.ContainerTopologyManagerScope,
		kubeletconfigv1beta1.PodTopologyManagerScope)
	c.that(*k.MemoryThrottlingFactor > 0 && *k.MemoryThrottlingFactor <= 1, "memoryThrottlingFactor",
		"%v must be greater than 0 and at most 1", *k.MemoryThrottlingFactor)
	for field, amounts := range map[string]map[string]string{
		"systemReserved": k.SystemReserved, "kubeReserved": k.KubeReserved,
	} {
		for name, amount := range amounts {
			p := field + "[" + name + "]"
			oneOf(c, p, name, "cpu", "memory", "ephemeral-storage", "pid")
			c.quantity(p, amount)
		}
	}
	c.reservedMemory(k.ReservedMemory)
	if k.ReservedSystemCPUs != "" {
		_, err := cpuset.Parse(k.ReservedSystemCPUs)
		c.that(err == nil, "reservedSystemCPUs", "%q is not a list of CPUs: %v", k.ReservedSystemCPUs, err)
		c.that(k.SystemReservedCgroup == "" && k.KubeReservedCgroup == "", "reservedSystemCPUs",
			"cannot be combined with systemReservedCgroup or kubeReservedCgroup")
	}
}

// reservedMemory checks what the NUMA nodes keep. That they keep together what the node keeps is
// checked where the node's capacity is known.
func (c checker) reservedMemory(list []kubeletconfigv1beta1.MemoryReservation) {
	type kind struct {
		node int32
		name corev1.ResourceName
	}
	seen := map[kind]bool{}
	for i, r := range list {
		for name, amount := range r.Limits {
			p := fmt.Sprintf("reservedMemory[%d].limits[%s]", i, name)
			c.that(name == corev1.ResourceMemory || strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix), p,
				`must be "memory" or "hugepages-SIZE"`)
			c.that(amount.Sign() > 0, p, "%s must be greater than 0", amount.String())
			c.that(!seen[kind{r.NumaNode, name}], p, "NUMA node %d has two amounts", r.NumaNode)
			seen[kind{r.NumaNode, name}] = true
		}
	}
}

func (c checker) pods(k *kubeletconfigv1beta1.KubeletConfiguration) {
	for i, server := range k.ClusterDNS {
		c.ip(fmt.Sprintf("clusterDNS[%d]", i), server)
	}
	if k.ClusterDomain != "" {
		msgs := validation.IsDNS1123Subdomain(strings.ToLower(strings.TrimSuffix(k.ClusterDomain, ".")))
		c.that(len(msgs) == 0, "clusterDomain", "%q is not a DNS domain: %s", k.ClusterDomain, strings.Join(msgs, "; "))
	}
	c.that(*k.ResolverConfig == "" || filepath.IsAbs(*k.ResolverConfig), "resolvConf", "%q must be an absolute path",
		*k.ResolverConfig)
	oneOf(c, "memorySwap.swapBehavior", k.MemorySwap.SwapBehavior, "", "NoSwap", "LimitedSwap")
	restart := k.CrashLoopBackOff.MaxContainerRestartPeriod.Duration
	c.that(restart >= time.Second && restart <= 300*time.Second, "crashLoopBackOff.maxContainerRestartPeriod",
		"%v must be between 1s and 300s", restart)
	if k.UserNamespaces != nil && k.UserNamespaces.IDsPerPod != nil {
		ids := *k.UserNamespaces.IDsPerPod
		c.that(ids >= userNamespaceUnit && ids <= math.MaxUint32 && ids%userNamespaceUnit == 0,
			"userNamespaces.idsPerPod",
			"%d must be a multiple of %d that fits 32 bits", ids, userNamespaceUnit)
	}
}

// eviction checks the thresholds by the kubelet's rules (pkg/kubelet/eviction,
// ParseThresholdConfig).
func (c checker) eviction(k *kubeletconfigv1beta1.KubeletConfiguration) {
	for field, thresholds := range map[string]map[string]string{
		"evictionHard": k.EvictionHard,
		"evictionSoft": k.EvictionSoft,
	} {
		for signal, amount := range thresholds {
			p := field + "[" + signal + "]"
			c.evictionSignal(p, signal)
			c.amountOrPercentage(p, amount)
			q, err := resource.ParseQuantity(amount)
			c.that(err != nil || !q.IsZero(), p, "%q must be greater than zero; 0%% switches the threshold off", amount)
		}
	}
	for signal, amount := range k.EvictionMinimumReclaim {
		p := "evictionMinimumReclaim[" + signal + "]"
		c.evictionSignal(p, signal)
		c.amountOrPercentage(p, amount)
		percent, isPercentage := strings.CutSuffix(amount, "%")
		share, err := strconv.ParseFloat(percent, 32)
		c.that(!isPercentage || err != nil || share != 0, p, "%q must be greater than zero", amount)
	}
	for signal, period := range k.EvictionSoftGracePeriod {
		p := "evictionSoftGracePeriod[" + signal + "]"
		c.evictionSignal(p, signal)
		d, err := time.ParseDuration(period)
		c.that(err == nil && d >= 0, p, "%q is not a duration of zero or more", period)
	}
	for signal := range k.EvictionSoft {
		_, ok := k.EvictionSoftGracePeriod[signal]
		c.that(ok, "evictionSoft["+signal+"]", "needs a grace period in evictionSoftGracePeriod")
	}
	c.notNegative("evictionPressureTransitionPeriod", k.EvictionPressureTransitionPeriod)
	atLeast(c, "evictionMaxPodGracePeriod", &k.EvictionMaxPodGracePeriod, 0)
}

// evictionSignal checks the name of a signal.
func (c checker) evictionSignal(field, signal string) {
	oneOf(c, field, signal, "memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available",
		"imagefs.inodesFree", "containerfs.available", "containerfs.inodesFree", "allocatableMemory.available",
		"pid.available")
}

// withoutEffect checks the values of fields that berth accepts and ignores, so that the kubelet
// accepts every file that berth accepts.
func (c checker) withoutEffect(k *kubeletconfigv1beta1.KubeletConfiguration) {
	oneOf(c, "hairpinMode", k.HairpinMode, kubeletconfigv1beta1.HairpinNone, kubeletconfigv1beta1.HairpinVeth,
		kubeletconfigv1beta1.PromiscuousBridge)
	oneOf(c, "memoryReservationPolicy", k.MemoryReservationPolicy,
		kubeletconfigv1beta1.NoneMemoryReservationPolicy, kubeletconfigv1beta1.TieredReservationMemoryReservationPolicy)
	between(c, "iptablesDropBit", k.IPTablesDropBit, 0, 31)
	between(c, "iptablesMasqueradeBit", k.IPTablesMasqueradeBit, 0, 31)
	atLeast(c, "nodeStatusMaxImages", k.NodeStatusMaxImages, -1)
}

// endpoint checks the address of a CRI socket: unix:///PATH or an absolute path.
func (c checker) endpoint(field, value string) {
	socket := strings.TrimPrefix(value, "unix://")
	c.that(filepath.IsAbs(socket), field, "%q is not a socket: must be of the form unix:///PATH", value)
}

func (c checker) httpURL(field, value string) {
	u, err := url.Parse(value)
	c.that(err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "", field,
		"%q is not an http or https URL", value)
}

func (c checker) quantity(field, value string) {
	q, err := resource.ParseQuantity(value)
	c.that(err == nil, field, "%q is not a quantity such as 500Mi", value)
	c.that(err != nil || q.Sign() >= 0, field, "%q must not be negative", value)
}

func (c checker) amountOrPercentage(field, value string) {
	percent, isPercentage := strings.CutSuffix(value, "%")
	if !isPercentage {
		c.quantity(field, value)
		return
	}
	p, err := strconv.ParseFloat(percent, 32)
	c.that(err == nil && p >= 0 && p <= 100, field, "%q is not a percentage between 0%% and 100%%", value)
}

// taints checks the taints of a Node. The API server refuses two taints with the same key and
// effect.
func (c checker) taints(field string, list []corev1.Taint) {
	for i, t := range list {
		c.taint(fmt.Sprintf("%s[%d]", field, i), t)
		c.that(!slices.ContainsFunc(list[:i], func(before corev1.Taint) bool { return before.MatchTaint(&t) }),
			fmt.Sprintf("%s[%d]", field, i),
			"there is another taint with key %q and effect %q", t.Key, t.Effect)
	}
}

func (c checker) taint(field string, t corev1.Taint) {
	c.that(len(validation.IsQualifiedName(t.Key)) == 0, field+".key", "%q is not a valid taint key", t.Key)
	c.that(t.Value == "" || len(validation.IsValidLabelValue(t.Value)) == 0, field+".value",
		"%q is not a valid taint value", t.Value)
	oneOf(c, field+".effect", t.Effect, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule,
		corev1.TaintEffectNoExecute)
	c.that(t.TimeAdded == nil, field+".timeAdded", "must not be set")
}

// checkNodeLabels applies the API's rules and the kubelet's: of the labels under kubernetes.io and
// k8s.io, a node may set only certain ones on itself.
func checkNodeLabels(labels map[string]string, r *report) {
	fail := func(format string, args ...any) {
		r.errs = append(r.errs, &FieldError{Origin: "--node-labels", Message: fmt.Sprintf(format, args...)})
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		if msgs := validation.IsQualifiedName(key); len(msgs) > 0 {
			fail("%q is not a valid label key: %s", key, strings.Join(msgs, "; "))
		}
		if msgs := validation.IsValidLabelValue(labels[key]); len(msgs) > 0 {
			fail("%q is not a valid value of label %q: %s", labels[key], key, strings.Join(msgs, "; "))
		}
		domain, _, _ := strings.Cut(key, "/")
		reserved := strings.HasSuffix("."+domain, ".kubernetes.io") || strings.HasSuffix("."+domain, ".k8s.io")
		if strings.Contains(key, "/") && reserved && !kubeletapis.IsKubeletLabel(key) {
			fail("a node may not set the label %q on itself", key)
		}
	}
}
