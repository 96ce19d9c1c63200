package generate

import (
	"fmt"
	"regexp"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// maxSysctl is how long a sysctl's name may be (SysctlMaxLength of the API's validation); values have as little reason to be longer than a page.
const (
	maxSysctl      = 253
	maxSysctlValue = 4096
)

// sysctlGrammar matches names and values. Values are numbers, lists, ranges, addresses and words: nothing by which a value could pass for
// a further setting (CVE-2022-0811).
type sysctlGrammar struct{ name, value *regexp.Regexp }

func newSysctlGrammar() sysctlGrammar {
	const segment = `[a-z0-9](?:[-_a-z0-9]*[a-z0-9])?`
	return sysctlGrammar{
		name:  regexp.MustCompile(`^(?:` + segment + `[./])*` + segment + `$`),
		value: regexp.MustCompile(`^[A-Za-z0-9 \t._,:/-]*$`),
	}
}

// sysctls returns the pod's sysctls after checking that each is well-formed and belongs to a namespace that the pod does not share
// with the node. Whether the node allows it is decided at admission.
func sysctls(pod *v1.Pod) (map[string]string, error) {
	out := map[string]string{}
	if pod.Spec.SecurityContext == nil || len(pod.Spec.SecurityContext.Sysctls) == 0 {
		return out, nil
	}
	grammar := newSysctlGrammar()
	for _, s := range pod.Spec.SecurityContext.Sysctls {
		if err := grammar.check(s); err != nil {
			return nil, err
		}
		switch namespace := sysctlNamespace(dotted(s.Name)); {
		case namespace == "":
			return nil, fmt.Errorf("sysctl %q is not known to be namespaced", s.Name)
		case namespace == "Net" && pod.Spec.HostNetwork, namespace == "IPC" && pod.Spec.HostIPC:
			return nil, fmt.Errorf("sysctl %q not allowed with host %s enabled", s.Name, namespace)
		}
		out[s.Name] = s.Value
	}
	return out, nil
}

func (g sysctlGrammar) check(s v1.Sysctl) error {
	if len(s.Name) > maxSysctl || !g.name.MatchString(s.Name) {
		return fmt.Errorf("sysctl name %q is not valid", s.Name)
	}
	if len(s.Value) > maxSysctlValue || !g.value.MatchString(s.Value) {
		return fmt.Errorf("value of sysctl %q is not valid: only letters, digits, spaces and . _ , : / - are allowed", s.Name)
	}
	return nil
}

// dotted writes a name whose separator is / with dots instead, and its dots as slashes (sysctl.d(5)). The first separator decides.
func dotted(name string) string {
	i := strings.IndexAny(name, "./")
	if i < 0 || name[i] == '.' {
		return name
	}
	return strings.NewReplacer("/", ".", ".", "/").Replace(name)
}

// sysctlNamespace returns IPC, Net, or empty for a sysctl of the whole node (namespaces(7), ipc_namespaces(7)).
func sysctlNamespace(name string) string {
	switch {
	case strings.HasPrefix(name, "net."):
		return "Net"
	case name == "kernel.sem", strings.HasPrefix(name, "fs.mqueue."):
		return "IPC"
	}
	switch name {
	case "kernel.shmall", "kernel.shmmax", "kernel.shmmni", "kernel.shm_rmid_forced",
		"kernel.msgmax", "kernel.msgmnb", "kernel.msgmni":
		return "IPC"
	}
	return ""
}
