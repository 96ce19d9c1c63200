package doctor

import "context"

// hostPorts checks whether programs of the node listen on the host ports of pods. What those
// programs are sent goes to the pods.
func hostPorts(ctx context.Context, h *Host) []Finding {
	taken, err := h.HostPortsTaken(ctx)
	if err != nil {
		return []Finding{hint("mend what the message names", "the host ports of the pods are not known: %v", err)}
	}
	var out []Finding
	for _, text := range taken {
		out = append(out, warning("stop the program, or choose another hostPort in the manifest", "%s", text))
	}
	if len(out) == 0 {
		return []Finding{ok("no program of the node listens on a hostPort of a pod")}
	}
	return out
}
