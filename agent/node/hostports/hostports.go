// Package hostports finds programs of the node that listen on a pod's host ports.
//
// Purpose: the plugin portmap leads the packets of a host port to the pod before a socket of the
// node sees them. A program of the node that listens on the port gets none any more, and nobody
// learns of that. The agent refuses no such pod, as a kubelet does not, but warns.
//
// Truth owned: none; it is the kernel's. Concurrency: the functions share nothing.
package hostports

import (
	"cmp"
	"fmt"
	"net/netip"
	"os"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/berthd/berth/internal/pods"
	"github.com/berthd/berth/internal/sockets"
)

// ReasonTaken is the reason of the event of a pod whose host port a program listens on.
const ReasonTaken = "HostPortTaken"

// Remedy says what to do about a host port that [Taken] names.
const Remedy = "stop it, or choose another hostPort"

// crio is CRI-O, which itself opens the host ports of its pods, in some versions.
const crio = "crio"

// Taken says of each host port of a pod on which a program of the node listens, too, which program
// that is. The ports of a pod on the host's network are its own.
func Taken(pod *v1.Pod) (out []string) {
	if pod.Spec.HostNetwork {
		return nil
	}
	for c, ends := range pods.Starting(pod) {
		for _, port := range c.Ports {
			if port.HostPort == 0 || ends {
				continue
			}
			protocol := cmp.Or(port.Protocol, v1.ProtocolTCP)
			addr, _ := netip.ParseAddr(port.HostIP) // empty stands for all addresses
			links := sockets.Listening(strings.ToLower(string(protocol)), addr, uint16(port.HostPort))
			if len(links) == 0 {
				continue
			}
			process := "a process"
			if pid, name := owner(links); name == crio {
				continue
			} else if pid != 0 {
				process = fmt.Sprintf("the process %d (%s)", pid, name)
			}
			out = append(out, fmt.Sprintf("%s of the node listens on hostPort %d/%s of container %s, too: the packets go to "+
				"the pod, and past that process",
				process, port.HostPort, protocol, c.Name))
		}
	}
	return out
}

// owner returns a process that has one of the sockets, and the name of its program; 0 if none is
// seen.
func owner(links []string) (pid int, name string) {
	for pid := range sockets.Owners(links) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if err == nil {
			return pid, strings.TrimSpace(string(text))
		}
	}
	return 0, ""
}
