package source

import (
	"strings"

	nodev1 "k8s.io/api/node/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/core/validation"

	"github.com/berthd/berth/agent/source/objects"
)

// These are the API version of a RuntimeClass and the kind of its list.
const (
	nodeVersion      = "node.k8s.io/v1"
	runtimeClassList = "RuntimeClassList"
)

// decodeRuntimeClass decodes a local RuntimeClass from a manifest. It validates as the API server
// does.
func decodeRuntimeClass(v Result, e element) Item {
	var in nodev1.RuntimeClass
	return decodeLocal(v, e, &in, func() (objects.Object, field.ErrorList, error) {
		errs, err := validateRuntimeClass(&in)
		return &in, errs, err
	})
}

// validateRuntimeClass checks four things: the metadata, the handler (a DNS label), the amounts of
// the overhead, and where the class's pods may run.
func validateRuntimeClass(class *nodev1.RuntimeClass) (field.ErrorList, error) {
	errs := apivalidation.ValidateObjectMeta(&class.ObjectMeta, false, apivalidation.NameIsDNSSubdomain,
		field.NewPath("metadata"))
	at := field.NewPath("handler")
	if class.Handler == "" {
		errs = append(errs, field.Required(at, ""))
	} else {
		for _, message := range apivalidation.NameIsDNSLabel(class.Handler, false) {
			errs = append(errs, field.Invalid(at, class.Handler, message))
		}
	}
	if class.Overhead != nil {
		fixed := core.ResourceList{}
		for name, amount := range class.Overhead.PodFixed {
			fixed[core.ResourceName(name)] = amount
		}
		at := field.NewPath("overhead", "podFixed")
		for _, err := range validation.ValidateContainerResourceRequirements(&core.ResourceRequirements{Limits: fixed},
			nil, at, validation.PodValidationOptions{}) {
			// The amounts are in podFixed itself.
			err.Field = strings.Replace(err.Field, ".limits", "", 1)
			errs = append(errs, err)
		}
	}
	if class.Scheduling == nil {
		return errs, nil
	}
	at = field.NewPath("scheduling")
	errs = append(errs, metav1validation.ValidateLabels(class.Scheduling.NodeSelector, at.Child("nodeSelector"))...)
	tolerations := make([]core.Toleration, len(class.Scheduling.Tolerations))
	for i := range class.Scheduling.Tolerations {
		if err := corev1.Convert_v1_Toleration_To_core_Toleration(&class.Scheduling.Tolerations[i],
			&tolerations[i], nil); err != nil {
			return nil, err
		}
	}
	return append(errs,
		validation.ValidateTolerations(tolerations, at.Child("tolerations"), validation.PodValidationOptions{})...), nil
}
