package configs

import (
	"time"

	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// defaultEviction applies the kubelet's hard thresholds for Linux: to a configuration without
// thresholds, and with mergeDefaultEvictionSettings also to missing signals.
func defaultEviction(k *kubeletconfigv1beta1.KubeletConfiguration) {
	orDuration(&k.EvictionPressureTransitionPeriod, 5*time.Minute)
	orPointer(&k.MergeDefaultEvictionSettings, false)
	if k.EvictionHard != nil && !*k.MergeDefaultEvictionSettings {
		return
	}
	if k.EvictionHard == nil {
		k.EvictionHard = map[string]string{}
	}
	for signal, threshold := range map[string]string{
		"memory.available":   "100Mi",
		"nodefs.available":   "10%",
		"nodefs.inodesFree":  "5%",
		"imagefs.available":  "15%",
		"imagefs.inodesFree": "5%",
	} {
		if _, set := k.EvictionHard[signal]; !set {
			k.EvictionHard[signal] = threshold
		}
	}
}
