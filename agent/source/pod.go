package source

import (
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"io"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/utils/dump"
)

// decodePod makes a static pod of a manifest, in the order that a kubelet has: API defaults, UID over the result, static pod defaults, validation, references.
// The order matters, since UIDs must come out the same.
func (d Decoder) decodePod(v Verdict, e element) Item {
	var in v1.Pod
	warnings, p := e.unmarshal(&in)
	if p != nil {
		return rejected(v, *p)
	}
	v.Warnings = warnings
	if in.Name == "" {
		return rejected(v, problem{line: e.line("metadata"), field: "metadata.name", message: "metadata.name: Required value"})
	}
	corev1.SetObjectDefaults_Pod(&in)
	var pod core.Pod
	if err := corev1.Convert_v1_Pod_To_core_Pod(&in, &pod, nil); err != nil {
		return rejected(v, problem{message: err.Error()})
	}
	d.staticDefaults(&pod, v.File)
	v.Namespace, v.Name = pod.Namespace, pod.Name
	if p := e.fieldProblem(append(validateUID(pod.UID), validatePod(&pod)...)); p != nil {
		return rejected(v, *p)
	}
	out := &v1.Pod{}
	if err := corev1.Convert_core_Pod_To_v1_Pod(&pod, out, nil); err != nil {
		return rejected(v, problem{message: err.Error()})
	}
	for ref := range References(&out.Spec) {
		if !ref.Local() {
			return rejected(v, problem{line: e.line(ref.Path), field: ref.Path, message: "static pods may not reference " + ref.Resource()})
		}
	}
	v.UID, v.Accepted = out.UID, true
	return Item{Verdict: v, Pod: out}
}

// staticDefaults gives a pod what static pods of files get.
func (d Decoder) staticDefaults(pod *core.Pod, file string) {
	if pod.UID == "" {
		pod.UID = staticUID(pod, "host:"+d.NodeName, "file:"+file)
	}
	pod.Name += "-" + strings.ToLower(d.NodeName)
	if pod.Namespace == "" {
		pod.Namespace = metav1.NamespaceDefault
	}
	pod.Spec.NodeName = d.NodeName
	if pod.Annotations == nil {
		pod.Annotations = map[string]string{}
	}
	pod.Annotations[AnnotationHash] = string(pod.UID)
	tolerateNoExecute(pod)
	pod.Status.Phase = core.PodPending
}

// staticUID is a hash over everything in a defaulted pod, and over where it comes from. It is a contract: a kubelet computes the same UID from the same
// manifest, through the same dump of the same internal type.
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
		if t.Key == "" && t.Value == "" && t.Operator == core.TolerationOpExists && t.Effect == core.TaintEffectNoExecute {
			t.TolerationSeconds, found = nil, true
		}
	}
	if !found {
		pod.Spec.Tolerations = append(pod.Spec.Tolerations, core.Toleration{Operator: core.TolerationOpExists, Effect: core.TaintEffectNoExecute})
	}
}

// uidLength is the longest UID in bytes that still fits, with what is put around it, into one name of a file, a cgroup and a systemd slice.
const uidLength = 128

// validateUID refuses a UID that could not name the pod's directories and cgroups. The API server makes UIDs itself and so has no rule for them; here a
// manifest may set one.
func validateUID(uid types.UID) field.ErrorList {
	plain := strings.IndexFunc(string(uid), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '.'
	}) < 0
	if plain && len(uid) <= uidLength && !strings.HasPrefix(string(uid), ".") && !strings.Contains(string(uid), "..") {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("metadata", "uid"), string(uid),
		fmt.Sprintf("must be at most %d letters, digits, '-' and '.', without '.' at its beginning and without '..'", uidLength))}
}

// validatePod validates a pod as the API server does on creation, with the feature gates of release 1.36.
func validatePod(pod *core.Pod) field.ErrorList {
	errs := validation.ValidatePodCreate(pod, validation.PodValidationOptions{
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
	})
	kept := errs[:0]
	for _, err := range errs {
		if !isPrivilegedError(err) {
			kept = append(kept, err)
		}
	}
	return kept
}

// isPrivilegedError reports whether validation complains about a privileged container. Upstream's validation asks a process-wide setting whether these are
// allowed; a kubelet sets it, and so every kubelet allows them.
func isPrivilegedError(err *field.Error) bool {
	return err.Type == field.ErrorTypeForbidden && strings.HasSuffix(err.Field, ".securityContext.privileged") && err.Detail == "disallowed by cluster policy"
}

// fullName is namespace/name.
func fullName(namespace, name string) string {
	return namespace + "/" + name
}
