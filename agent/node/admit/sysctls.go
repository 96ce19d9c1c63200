package admit

import (
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/version"
	utilsysctl "k8s.io/component-helpers/node/util/sysctl"
)

// Sysctls say which sysctls pods may set: those that are known to be safe, and those that the
// node's config allows. The zero value allows no sysctl.
type Sysctls struct {
	// names are whole names; prefixes are what the config has before a *.
	names, prefixes map[string]utilsysctl.Namespace
}

// maxSysctl is the longest name of a sysctl (SysctlMaxLength of the API's validation).
const maxSysctl = 253

var sysctlPattern = regexp.MustCompile(`^(?:[a-z0-9](?:[-_a-z0-9]*[a-z0-9])?[./])*(?:[a-z0-9][-_a-z0-9]*)?[a-z0-9*]$`)

// safeSysctls are the sysctls that belong to a namespace of the pod and cannot harm other pods:
// those of the kubelet (pkg/kubelet/sysctl, SafeSysctlAllowlist). Each has the first kernel in
// which the sysctl belongs to a namespace; empty means every kernel.
func safeSysctls() map[string]string {
	return map[string]string{
		"kernel.shm_rmid_forced":              "",
		"net.ipv4.ip_local_port_range":        "",
		"net.ipv4.tcp_syncookies":             "",
		"net.ipv4.ping_group_range":           "",
		"net.ipv4.ip_unprivileged_port_start": "",
		"net.ipv4.ip_local_reserved_ports":    "3.16",
		"net.ipv4.tcp_keepalive_time":         "4.5",
		"net.ipv4.tcp_keepalive_intvl":        "4.5",
		"net.ipv4.tcp_keepalive_probes":       "4.5",
		"net.ipv4.tcp_fin_timeout":            "4.6",
		"net.ipv4.tcp_rmem":                   "4.15",
		"net.ipv4.tcp_wmem":                   "4.15",
	}
}

// NewSysctls returns the sysctls that a node with that kernel release ("6.1.0-18-amd64") allows.
// unsafe is the config's allowedUnsafeSysctls: names, or prefixes that end in *. If the release
// cannot be parsed, only the sysctls that every kernel has are safe. The error names a pattern that
// is not valid.
func NewSysctls(kernel string, unsafe []string) (Sysctls, error) {
	out := Sysctls{names: map[string]utilsysctl.Namespace{}, prefixes: map[string]utilsysctl.Namespace{}}
	running, err := version.ParseGeneric(kernel)
	if err != nil {
		running = version.MustParseGeneric("0.0")
	}
	for name, since := range safeSysctls() {
		if since == "" || running.AtLeast(version.MustParseGeneric(since)) {
			out.names[name], _, _ = utilsysctl.GetNamespace(name)
		}
	}
	for _, pattern := range unsafe {
		if len(pattern) > maxSysctl || !sysctlPattern.MatchString(pattern) {
			return Sysctls{}, fmt.Errorf("sysctl %q must have at most %d characters and match regex %s", pattern,
				maxSysctl, sysctlPattern)
		}
		namespace, name, prefix := utilsysctl.GetNamespace(pattern)
		switch {
		case namespace == utilsysctl.UnknownNamespace:
			return Sysctls{}, fmt.Errorf("the sysctls %q are not known to be namespaced", name)
		case prefix:
			out.prefixes[name] = namespace
		default:
			out.names[name] = namespace
		}
	}
	return out, nil
}

// namespace returns the namespace of a sysctl, and whether the sysctl is allowed.
func (s Sysctls) namespace(name string) (utilsysctl.Namespace, bool) {
	if ns, ok := s.names[name]; ok {
		return ns, true
	}
	for prefix, ns := range s.prefixes {
		if strings.HasPrefix(name, prefix) {
			return ns, true
		}
	}
	return utilsysctl.UnknownNamespace, false
}

// sysctlsAllowed refuses a pod with a sysctl that the node does not allow, or that would change the
// whole node because the pod uses the node's namespace.
func sysctlsAllowed(in Input) *Rejection {
	if in.Pod.Spec.SecurityContext == nil {
		return nil
	}
	for _, s := range in.Pod.Spec.SecurityContext.Sysctls {
		name := utilsysctl.NormalizeName(s.Name)
		namespace, allowed := in.Node.Sysctls.namespace(name)
		switch {
		case !allowed:
			return &Rejection{
				Reason: "SysctlForbidden", Message: fmt.Sprintf("forbidden sysctl: %q not allowlisted", name),
			}
		case namespace == utilsysctl.IPCNamespace && in.Pod.Spec.HostIPC,
			namespace == utilsysctl.NetNamespace && in.Pod.Spec.HostNetwork:
			return &Rejection{
				Reason:  "SysctlForbidden",
				Message: fmt.Sprintf("forbidden sysctl: %q not allowed with host %s enabled", name, namespace),
			}
		}
	}
	return nil
}
