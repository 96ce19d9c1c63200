package node

import (
	"k8s.io/component-helpers/nodedeclaredfeatures"
	"k8s.io/component-helpers/nodedeclaredfeatures/features/inplacepodresize"
	"k8s.io/component-helpers/nodedeclaredfeatures/features/restartallcontainers"

	"github.com/berthd/berth/agent/admit"
	"github.com/berthd/berth/configs"
)

// gateDeclared is the feature gate of all that is about declared features.
const gateDeclared = "NodeDeclaredFeatures"

// declaredFeatures are what the Node says that its agent can do (KEP-5328). A cluster's scheduler and API server ask for them where a pod needs one, and keep such pods
// away, or refuse their change, where one is not there.
//
// ExtendWebSocketsToKubelet is not among them: forwarding of ports through a WebSocket is left to the API server, as for nodes of earlier versions.
func declaredFeatures(cfg *configs.Config) []string {
	if !cfg.GateEnabled(gateDeclared) {
		return nil
	}
	return nodedeclaredfeatures.DefaultFramework.DiscoverNodeFeatures(&nodedeclaredfeatures.NodeConfiguration{FeatureGates: provided{cfg}})
}

// declared returns what admission asks for features; nil where the config says that nobody does.
func declared(cfg *configs.Config) (*admit.Declared, error) {
	if !cfg.GateEnabled(gateDeclared) {
		return nil, nil
	}
	return admit.NewDeclared(declaredFeatures(cfg), KubernetesVersion())
}

// DeclaredFeatures are what the Node object says that the node can do.
func (n *Node) DeclaredFeatures() []string { return declaredFeatures(n.cfg) }

// Declared returns those features as admission asks for them; nil where the config says that nobody does.
func (n *Node) Declared() *admit.Declared { return n.declared }

// provided are the features that the agent has, unless the config takes them away.
type provided struct{ cfg *configs.Config }

// Enabled reports whether the agent has a feature.
func (p provided) Enabled(gate string) bool {
	switch gate {
	case inplacepodresize.IPPRPodLevelResourcesFeatureGate, inplacepodresize.IPPRInitContainersFeatureGate, restartallcontainers.RestartAllContainersOnContainerExits:
		return p.cfg.GateEnabled(gate)
	}
	return false
}
