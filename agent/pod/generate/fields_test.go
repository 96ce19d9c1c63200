package generate

import (
	"reflect"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// Where a field of the API takes effect: here, by a refusal here, elsewhere in the agent, or
// nowhere on a Linux node.
const (
	here      = "here"
	elsewhere = "elsewhere"
	control   = "control plane or Windows"
)

// TestEveryFieldHasAnOwner fails when a release of the API brings a field that is not in its table.
// A field that changes what runs must be translated or refused, not dropped.
func TestEveryFieldHasAnOwner(t *testing.T) {
	tests := map[reflect.Type]map[string]string{
		reflect.TypeFor[v1.PodSpec](): {
			"Volumes":                       elsewhere,
			"InitContainers":                here,
			"Containers":                    here,
			"EphemeralContainers":           here,
			"RestartPolicy":                 elsewhere,
			"TerminationGracePeriodSeconds": elsewhere,
			"ActiveDeadlineSeconds":         elsewhere,
			"DNSPolicy":                     here,
			"NodeSelector":                  elsewhere,
			"ServiceAccountName":            here,
			"DeprecatedServiceAccount":      control,
			"AutomountServiceAccountToken":  control,
			"NodeName":                      here,
			"HostNetwork":                   here,
			"HostPID":                       here,
			"HostIPC":                       here,
			"ShareProcessNamespace":         here,
			"SecurityContext":               here,
			"ImagePullSecrets":              elsewhere,
			"Hostname":                      here,
			"Subdomain":                     here,
			"Affinity":                      elsewhere,
			"SchedulerName":                 control,
			"Tolerations":                   elsewhere,
			"HostAliases":                   here,
			"PriorityClassName":             control,
			"Priority":                      elsewhere,
			"DNSConfig":                     here,
			"ReadinessGates":                elsewhere,
			"RuntimeClassName":              elsewhere,
			"EnableServiceLinks":            here,
			"PreemptionPolicy":              control,
			"Overhead":                      elsewhere,
			"TopologySpreadConstraints":     control,
			"SetHostnameAsFQDN":             here,
			"OS":                            elsewhere,
			"HostUsers":                     here,
			"SchedulingGates":               control,
			"ResourceClaims":                elsewhere,
			"Resources":                     here,
			"HostnameOverride":              here,
			"SchedulingGroup":               control,
			"WorkloadRef":                   control,
		},
		reflect.TypeFor[v1.Container](): {
			"Name":                     here,
			"Image":                    here,
			"Command":                  here,
			"Args":                     here,
			"WorkingDir":               here,
			"Ports":                    here,
			"EnvFrom":                  here,
			"Env":                      here,
			"Resources":                here,
			"ResizePolicy":             elsewhere,
			"RestartPolicy":            here,
			"RestartPolicyRules":       elsewhere,
			"VolumeMounts":             here,
			"VolumeDevices":            here,
			"LivenessProbe":            elsewhere,
			"ReadinessProbe":           elsewhere,
			"StartupProbe":             elsewhere,
			"Lifecycle":                here,
			"TerminationMessagePath":   here,
			"TerminationMessagePolicy": here,
			"ImagePullPolicy":          elsewhere,
			"SecurityContext":          here,
			"Stdin":                    here,
			"StdinOnce":                here,
			"TTY":                      here,
		},
		reflect.TypeFor[v1.PodSecurityContext](): {
			"SELinuxOptions":           here,
			"WindowsOptions":           control,
			"RunAsUser":                here,
			"RunAsGroup":               here,
			"RunAsNonRoot":             here,
			"SupplementalGroups":       here,
			"SupplementalGroupsPolicy": here,
			"FSGroup":                  here,
			"Sysctls":                  here,
			"FSGroupChangePolicy":      elsewhere,
			"SeccompProfile":           here,
			"AppArmorProfile":          here,
			"SELinuxChangePolicy":      elsewhere,
		},
		reflect.TypeFor[v1.SecurityContext](): {
			"Capabilities":             here,
			"Privileged":               here,
			"SELinuxOptions":           here,
			"WindowsOptions":           control,
			"RunAsUser":                here,
			"RunAsGroup":               here,
			"RunAsNonRoot":             here,
			"ReadOnlyRootFilesystem":   here,
			"AllowPrivilegeEscalation": here,
			"ProcMount":                here,
			"SeccompProfile":           here,
			"AppArmorProfile":          here,
		},
		reflect.TypeFor[v1.VolumeMount](): {
			"Name":              here,
			"ReadOnly":          here,
			"RecursiveReadOnly": here,
			"MountPath":         here,
			"SubPath":           here,
			"MountPropagation":  here,
			"SubPathExpr":       here,
		},
		reflect.TypeFor[v1.EnvVarSource](): {
			"FieldRef":         here,
			"ResourceFieldRef": here,
			"ConfigMapKeyRef":  here,
			"SecretKeyRef":     here,
			"FileKeyRef":       here,
		},
		reflect.TypeFor[v1.EnvFromSource](): {"Prefix": here, "ConfigMapRef": here, "SecretRef": here},
		reflect.TypeFor[v1.PodDNSConfig]():  {"Nameservers": here, "Searches": here, "Options": here},
	}
	for kind, owners := range tests {
		for i := range kind.NumField() {
			if name := kind.Field(i).Name; owners[name] == "" {
				t.Errorf("%s.%s is new: translate it, refuse it, or say here who honours it", kind.Name(), name)
			}
		}
	}
}
