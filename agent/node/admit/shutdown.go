package admit

// shuttingDown is the refusal of pods while the machine shuts down, with the words of the kubelet's
// shutdown manager.
func shuttingDown() *Rejection {
	return &Rejection{Reason: "NodeShutdown", Message: "Pod was rejected as the node is shutting down."}
}

// staticWaits makes a pod of a manifest wait while the machine shuts down: it has no other node. No
// other rule but pressure and the Pod Security Standard refuses the pod for good then, because the
// node may have other resources and labels after it has started again.
func staticWaits(in Input) *Rejection {
	if !in.Node.ShuttingDown || in.FromAPI {
		return nil
	}
	r := shuttingDown()
	r.Later, r.Detail = true, "waiting for the end of the shutdown"
	return r
}

// notShuttingDown refuses the other pods for good, so that the cluster runs them elsewhere. A
// kubelet, too, asks its shutdown manager last.
func notShuttingDown(in Input) *Rejection {
	if !in.Node.ShuttingDown || !in.FromAPI {
		return nil
	}
	return shuttingDown()
}
