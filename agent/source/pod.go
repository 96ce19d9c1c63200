package source

import (
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"io"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/utils/dump"

	"github.com/berthd/berth/agent/pod/fields"
	"github.com/berthd/berth/cri"
	"github.com/berthd/berth/internal/pods"
)

// decodePod decodes a static pod from a manifest. It works in the kubelet's order: API defaults,
// UID over the result, static pod defaults, validation, references. The order matters, because the
// UIDs must be the same as the kubelet's.
func (d Decoder) decodePod(v Result, e element) Item {
	var in v1.Pod
	warnings, p := e.unmarshal(&in)
	v.Warnings = warnings
	if p != nil {
		return rejected(v, *p)
	}
	if in.Name == "" {
		return rejected(v, problem{
			line:    e.line("metadata"),
			field:   "metadata.name",
			message: "metadata.name: Required value",
		})
	}
	found := fields.Check(&in) // before the defaults, which the author did not write
	corev1.SetObjectDefaults_Pod(&in)
	hints := d.hints(&in, e)
	var pod core.Pod
	if err := corev1.Convert_v1_Pod_To_core_Pod(&in, &pod, nil); err != nil {
		return rejected(v, problem{message: err.Error()})
	}
	d.staticDefaults(&pod, v.File)
	v.Namespace, v.Name = pod.Namespace, pod.Name
	faults := e.fieldFaults(slices.Concat(validateUID(pod.UID), validateLogDir(&pod),
		aboutGates(&pod, validatePod(&pod))))
	out := &v1.Pod{}
	if err := corev1.Convert_core_Pod_To_v1_Pod(&pod, out, nil); err != nil {
		return rejected(v, problem{message: err.Error()})
	}
	// A manifest that exists wants its pod.
	out.DeletionTimestamp, out.DeletionGracePeriodSeconds = nil, nil
	for ref := range References(&out.Spec) {
		if !ref.Local() {
			faults = append(faults, e.fault(ref.Path, "static pods may not reference "+ref.Resource()))
		}
	}
	if p := several(append(faults, e.refused(found, faults)...)); p != nil && len(faults) > 0 {
		return rejected(v, *p)
	}
	v.UID, v.Accepted = out.UID, true
	v, refused := e.tell(v, found)
	v.Warnings = append(v.Warnings, hints...)
	return Item{Result: v, Pod: out, Refused: refused, Lines: e.portLines(out)}
}

// staticDefaults sets what the static pods of files get.
func (d Decoder) staticDefaults(pod *core.Pod, file string) {
	content := ""
	switch {
	case pod.UID == "":
		pod.UID = staticUID(pod, d.origin(file)...)
	case pod.Annotations[pods.AnnotationStart] == "true":
		unnamed := *pod
		unnamed.UID = ""
		content = string(staticUID(&unnamed))
	}
	pod.Name += "-" + strings.ToLower(d.NodeName)
	if pod.Namespace == "" {
		pod.Namespace = metav1.NamespaceDefault
	}
	pod.Spec.NodeName = d.NodeName
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[pods.AnnotationHash] = string(pod.UID)
	if content != "" {
		pod.Annotations[pods.AnnotationContent] = content
	}
	if !d.URL {
		tolerateNoExecute(pod)
	}
	pod.Status.Phase = core.PodPending
}

// origin returns the part of a static pod's UID that names where the pod comes from. It belongs to
// the contract of staticUID.
func (d Decoder) origin(file string) []string {
	if d.URL {
		return []string{"url:" + file}
	}
	return []string{"host:" + d.NodeName, "file:" + file}
}

// staticUID returns a hash over everything in a defaulted pod, and over its origin. The hash is a
// contract: a kubelet computes the same UID from the same manifest, with the same dump of the same
// internal type.
func staticUID(pod *core.Pod, origin ...string) types.UID {
	hash := fnv.New128a()
	_, _ = io.WriteString(hash, dump.ForHash(pod))
	for _, o := range origin {
		_, _ = io.WriteString(hash, o)
	}
	return types.UID(hex.EncodeToString(hash.Sum(nil)))
}

// tolerateNoExecute makes the pod tolerate every NoExecute taint for ever.
func tolerateNoExecute(pod *core.Pod) {
	found := false
	for i := range pod.Spec.Tolerations {
		t := &pod.Spec.Tolerations[i]
		if t.Key == "" && t.Value == "" && t.Operator == core.TolerationOpExists &&
			t.Effect == core.TaintEffectNoExecute {
			t.TolerationSeconds, found = nil, true
		}
	}
	if !found {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations,
			core.Toleration{Operator: core.TolerationOpExists, Effect: core.TaintEffectNoExecute})
	}
}

// uidLength is the longest UID in bytes that still fits, with the text around it, into one name of
// a file, a cgroup and a systemd slice.
const uidLength = 128

// validateUID refuses a UID that cannot name the pod's directories and cgroups. The API server
// makes UIDs itself, and so it has no rule for them. A manifest may set a UID, and so the agent
// needs a rule.
func validateUID(uid types.UID) field.ErrorList {
	plain := strings.IndexFunc(string(uid), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '.'
	}) < 0
	if plain && len(uid) <= uidLength && !strings.HasPrefix(string(uid), ".") && !strings.Contains(string(uid), "..") {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata", "uid"), string(uid),
		fmt.Sprintf("must be at most %d letters, digits, '-' and '.', without '.' at its beginning and without '..'",
			uidLength))}
}

// maxElement is the longest name of a file or directory in bytes. It is the same on all file
// systems of Linux that are in use (NAME_MAX of limits.h).
const maxElement = 255

// validateLogDir refuses a pod whose log directory, NAMESPACE_NAME_UID, has a longer name than a
// file system takes.
func validateLogDir(pod *core.Pod) field.ErrorList {
	dir := cri.PodLogDir("", cri.PodID{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID})
	over := len(dir) - maxElement
	if over <= 0 || len(pod.Name) > utilvalidation.DNS1123SubdomainMaxLength {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata", "name"), pod.Name,
		fmt.Sprintf("is too long by %d: the pod's log directory, NAMESPACE_NAME_UID, has at most %d characters", over,
			maxElement))}
}

// validatePod validates a pod as the API server does on creation, with the feature gates of release
// 1.36.
func validatePod(pod *core.Pod) field.ErrorList {
	return withoutPrivileged(validation.ValidatePodCreate(pod, validationOptions()))
}

// aboutGates moves an error about the node's name of a pod with scheduling gates to the gates,
// where the author understands it. A static pod gets its node's name from its source, not from its
// manifest.
func aboutGates(pod *core.Pod, errs field.ErrorList) field.ErrorList {
	node := field.NewPath("spec", "nodeName").String()
	for i, err := range errs {
		if len(pod.Spec.SchedulingGates) > 0 && err.Field == node && err.Type == field.ErrorTypeForbidden {
			errs[i] = field.Forbidden(field.NewPath("spec", "schedulingGates").Index(0),
				"a pod from a manifest is on its node already: no scheduler would clear the gate; take "+
					"schedulingGates out of it")
		}
	}
	return errs
}

// validationOptions returns what the feature gates of release 1.36 allow.
func validationOptions() validation.PodValidationOptions {
	return validation.PodValidationOptions{
		AllowRelaxedEnvironmentVariableValidation:           true,
		AllowRelaxedDNSSearchValidation:                     true,
		AllowPodLifecycleSleepActionZeroValue:               true,
		AllowOnlyRecursiveSELinuxChangePolicy:               true,
		PodLevelResourcesEnabled:                            true,
		InPlacePodLevelResourcesVerticalScalingEnabled:      true,
		AllowSidecarResizePolicy:                            true,
		AllowMatchLabelKeysInPodTopologySpread:              true,
		AllowMatchLabelKeysInPodTopologySpreadSelectorMerge: true,
		AllowEnvFilesValidation:                             true,
		AllowContainerRestartPolicyRules:                    true,
		AllowRestartAllContainers:                           true,
	}
}

// withoutPrivileged drops the errors about privileged containers.
func withoutPrivileged(errs field.ErrorList) field.ErrorList {
	kept := errs[:0]
	for _, err := range errs {
		if !isPrivilegedError(err) {
			kept = append(kept, err)
		}
	}
	return kept
}

// isPrivilegedError reports whether an error is about a privileged container. Upstream's validation
// asks a process-wide setting whether such containers are allowed. A kubelet sets it, and so every
// kubelet allows them.
func isPrivilegedError(err *field.Error) bool {
	return err.Type == field.ErrorTypeForbidden && strings.HasSuffix(err.Field, ".securityContext.privileged") &&
		err.Detail == "disallowed by cluster policy"
}

func fullName(namespace, name string) string {
	return namespace + "/" + name
}
