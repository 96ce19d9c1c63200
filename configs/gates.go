package configs

import (
	"bufio"
	_ "embed"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// gatesText lists the feature gates of Kubernetes 1.36, one per line: name, default, stage (ALPHA,
// BETA, GA, DEPRECATED) and "locked" where the default cannot be changed. A test compares it with
// the gates of the linked Kubernetes release.
//
//go:embed gates.txt
var gatesText string

// knownGates are the gates by their names.
var knownGates = sync.OnceValue(func() map[string]gate { return parseGates(gatesText) })

// gate is a known feature gate.
type gate struct {
	byDefault bool
	stage     string
	locked    bool
}

func parseGates(text string) map[string]gate {
	gates := map[string]gate{}
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 3 {
			continue
		}
		gates[f[0]] = gate{byDefault: f[1] == "true", stage: f[2], locked: len(f) > 3}
	}
	return gates
}

// ownGates returns the gates that berth itself looks at.
func ownGates() []string {
	return []string{
		"ClusterTrustBundleProjection", "ComponentFlagz", "ComponentStatusz", "ContainerCheckpoint",
		"CustomCPUCFSQuotaPeriod", "DRAExtendedResource", "DisableCPUQuotaWithExclusiveCPUs", "GracefulNodeShutdown",
		"InPlacePodLevelResourcesVerticalScaling", "InPlacePodVerticalScalingInitContainers",
		"KubeletEnsureSecretPulledImages", "LoggingAlphaOptions", "LoggingBetaOptions", "MemoryQoS", "NodeDeclaredFeatures",
		"NodeLogQuery", "PodCertificateRequest", "PodLevelResourceManagers", "PodsAPI",
		"ReduceDefaultCrashLoopBackOffDecay", "ResourceHealthStatus", "ResourceHealthStatusMessage",
		"RestartAllContainersOnContainerExits", "RotateKubeletServerCertificate", "TaintTolerationComparisonOperators",
	}
}

// Gate is a feature gate that the agent looks at.
type Gate struct {
	// Name and Stage are upstream's. Stage is ALPHA, BETA, GA or DEPRECATED.
	Name, Stage string
	Enabled     bool
}

// Gates returns the feature gates that the agent looks at, by name.
func (c *Config) Gates() []Gate {
	known := knownGates()
	var out []Gate
	for _, name := range ownGates() {
		out = append(out, Gate{Name: name, Stage: known[name].stage, Enabled: c.GateEnabled(name)})
	}
	return out
}

// checkGates refuses gates that Kubernetes does not have, and values that it does not allow, as the
// kubelet does. It warns of gates that change nothing here.
func checkGates(set map[string]bool, r *report) {
	known := knownGates()
	for _, name := range slices.Sorted(maps.Keys(set)) {
		if name == "AllAlpha" || name == "AllBeta" {
			continue
		}
		path := "featureGates[" + name + "]"
		g, ok := known[name]
		switch {
		case !ok:
			r.fail(kubeletDoc, path, "unknown feature gate")
		case g.locked && set[name] != g.byDefault:
			r.fail(kubeletDoc, path, "the gate is locked to %s since the feature is %s",
				strconv.FormatBool(g.byDefault), g.stage)
		case set[name] != g.byDefault && !slices.Contains(ownGates(), name):
			r.warn(kubeletDoc, path, "no effect: nothing on this node depends on the gate")
		}
	}
}

// GateEnabled reports whether a feature gate of Kubernetes is on: as the user set it, or else as
// AllAlpha or AllBeta set it, or else by its default. A gate that Kubernetes 1.36 does not have is
// off.
func (c *Config) GateEnabled(name string) bool {
	set := c.Kubelet.FeatureGates
	if on, ok := set[name]; ok {
		return on
	}
	g, ok := knownGates()[name]
	if !ok {
		return false
	}
	if g.locked {
		return g.byDefault
	}
	if on, ok := set["AllAlpha"]; ok && g.stage == "ALPHA" {
		return on
	}
	if on, ok := set["AllBeta"]; ok && g.stage == "BETA" {
		return on
	}
	return g.byDefault
}
