package node

import (
	"k8s.io/component-helpers/nodedeclaredfeatures"
	"k8s.io/component-helpers/nodedeclaredfeatures/features/inplacepodresize"
	"k8s.io/component-helpers/nodedeclaredfeatures/features/restartallcontainers"

	"github.com/berthd/berth/agent/node/admit"
	"github.com/berthd/berth/configs"
)

// gateDeclared is the feature gate for everything about declared features.
const gateDeclared = "NodeDeclaredFeatures"

// declaredFeatures are the features that the Node object declares (KEP-5328). If a pod needs a
// feature that is missing, the scheduler keeps the pod away from the node, and the API server
// refuses changes of the pod.
//
// ExtendWebSocketsToKubelet is not among them. The API server translates WebSockets for port
// forwarding itself, as it does for nodes of earlier versions.
func declaredFeatures(cfg *configs.Config) []string {
	if !cfg.GateEnabled(gateDeclared) {
		return nil
	}
	return nodedeclaredfeatures.DefaultFramework.DiscoverNodeFeatures(&nodedeclaredfeatures.NodeConfiguration{
		FeatureGates: provided{cfg},
	})
}

// declared returns the features in the form that admission uses; nil if the feature gate is off.
func declared(cfg *configs.Config) (*admit.Declared, error) {
	if !cfg.GateEnabled(gateDeclared) {
		return nil, nil
	}
	return admit.NewDeclared(declaredFeatures(cfg), KubernetesVersion())
}

// DeclaredFeatures returns the features that the Node object declares.
func (n *Node) DeclaredFeatures() []string { return declaredFeatures(n.cfg) }

// Declared returns the same features in the form that admission uses; nil if the feature gate is
// off.
func (n *Node) Declared() *admit.Declared { return n.declared }

// provided knows which features the agent has. The config may switch features off.
type provided struct{ cfg *configs.Config }

// Enabled reports whether the agent has a feature.
func (p provided) Enabled(gate string) bool {
	switch gate {
	case inplacepodresize.IPPRPodLevelResourcesFeatureGate, inplacepodresize.IPPRInitContainersFeatureGate,
		restartallcontainers.RestartAllContainersOnContainerExits:
		return p.cfg.GateEnabled(gate)
	}
	return false
}
