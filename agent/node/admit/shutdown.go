package admit

// notShuttingDown refuses pods while the machine shuts down, with the words of the kubelet's
// shutdown manager, so that the cluster runs them elsewhere. A pod of a manifest has no other node:
// it waits.
func notShuttingDown(in Input) *Rejection {
	if !in.Node.ShuttingDown {
		return nil
	}
	return &Rejection{
		Reason: "NodeShutdown", Message: "Pod was rejected as the node is shutting down.", Later: !in.FromAPI,
	}
}
