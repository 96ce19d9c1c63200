package generate

import (
	"fmt"
	"regexp"

	v1 "k8s.io/api/core/v1"
	utilsysctl "k8s.io/component-helpers/node/util/sysctl"
)

// maxSysctl is how long a sysctl's name may be (SysctlMaxLength of the API's validation). Values
// have no reason to be longer than a page.
const (
	maxSysctl      = 253
	maxSysctlValue = 4096
)

// sysctlGrammar matches names and values. Values are numbers, lists, ranges, addresses and words. A
// value cannot contain anything that could pass for another setting (CVE-2022-0811).
type sysctlGrammar struct{ name, value *regexp.Regexp }

func newSysctlGrammar() sysctlGrammar {
	const segment = `[a-z0-9](?:[-_a-z0-9]*[a-z0-9])?`
	return sysctlGrammar{
		name:  regexp.MustCompile(`^(?:` + segment + `[./])*` + segment + `$`),
		value: regexp.MustCompile(`^[A-Za-z0-9 \t._,:/-]*$`),
	}
}

// sysctls returns the pod's sysctls, with dots between the parts of their names. It checks that
// each is well-formed and belongs to a namespace that the pod does not share with the node.
// Admission decides whether the node allows it.
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
		namespace, name, _ := utilsysctl.GetNamespace(s.Name)
		switch {
		case namespace == utilsysctl.UnknownNamespace:
			return nil, fmt.Errorf("sysctl %q is not known to be namespaced", s.Name)
		case namespace == utilsysctl.NetNamespace && pod.Spec.HostNetwork,
			namespace == utilsysctl.IPCNamespace && pod.Spec.HostIPC:
			return nil, fmt.Errorf("sysctl %q not allowed with host %s enabled", s.Name, namespace)
		}
		out[name] = s.Value
	}
	return out, nil
}

func (g sysctlGrammar) check(s v1.Sysctl) error {
	if len(s.Name) > maxSysctl || !g.name.MatchString(s.Name) {
		return fmt.Errorf("sysctl name %q is not valid", s.Name)
	}
	if len(s.Value) > maxSysctlValue || !g.value.MatchString(s.Value) {
		return fmt.Errorf("value of sysctl %q is not valid: only letters, digits, spaces and . _ , : / - are allowed",
			s.Name)
	}
	return nil
}
