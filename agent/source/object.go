package source

import (
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/core/validation"

	"github.com/berthd/berth/agent/pod/volumekinds"
	"github.com/berthd/berth/agent/source/objects"
)

// decodeConfigMap decodes a local ConfigMap from a manifest. It sets the defaults and validates as
// the API server does.
func decodeConfigMap(v Result, e element) Item {
	var in v1.ConfigMap
	var internal core.ConfigMap
	return decodeLocal(v, e, &in, func() (objects.Object, field.ErrorList, error) {
		corev1.SetObjectDefaults_ConfigMap(&in)
		if err := corev1.Convert_v1_ConfigMap_To_core_ConfigMap(&in, &internal, nil); err != nil {
			return nil, nil, err
		}
		return &in, validation.ValidateConfigMap(&internal), nil
	})
}

// decodeSecret decodes a local Secret in the same way. stringData becomes part of data.
func decodeSecret(v Result, e element) Item {
	var in v1.Secret
	return decodeLocal(v, e, &in, func() (objects.Object, field.ErrorList, error) {
		corev1.SetObjectDefaults_Secret(&in)
		var internal core.Secret
		if err := corev1.Convert_v1_Secret_To_core_Secret(&in, &internal, nil); err != nil {
			return nil, nil, err
		}
		out := &v1.Secret{}
		if err := corev1.Convert_core_Secret_To_v1_Secret(&internal, out, nil); err != nil {
			return nil, nil, err
		}
		return out, validation.ValidateSecret(&internal), nil
	})
}

// decodeVolume decodes a local PersistentVolume in the same way. It warns of requests that no node
// fulfils by itself.
func decodeVolume(v Result, e element) Item {
	var in v1.PersistentVolume
	var internal core.PersistentVolume
	item := decodeLocal(v, e, &in, func() (objects.Object, field.ErrorList, error) {
		corev1.SetObjectDefaults_PersistentVolume(&in)
		if err := corev1.Convert_v1_PersistentVolume_To_core_PersistentVolume(&in, &internal, nil); err != nil {
			return nil, nil, err
		}
		return &in, validation.ValidatePersistentVolume(&internal,
			validation.PersistentVolumeSpecValidationOptions{EnableVolumeAttributesClass: true}), nil
	})
	if item.Result.Accepted {
		item.Result.Warnings = append(item.Result.Warnings, volumeWarnings(&in, e)...)
	}
	return item
}

// volumeWarnings returns warnings about the fields of a PersistentVolume that have no effect.
func volumeWarnings(pv *v1.PersistentVolume, e element) []string {
	var out []string
	if kind, why := volumekinds.RefusedVolume(&pv.Spec.PersistentVolumeSource); why != "" {
		out = append(out, e.warning("spec."+kind, why))
	}
	if policy := pv.Spec.PersistentVolumeReclaimPolicy; policy != "" && policy != v1.PersistentVolumeReclaimRetain {
		out = append(out,
			e.warning("spec.persistentVolumeReclaimPolicy",
				fmt.Sprintf("%s has no effect: the agent keeps the data of every volume", policy)))
	}
	return out
}

// decodeClaim decodes a local PersistentVolumeClaim in the same way.
func decodeClaim(v Result, e element) Item {
	var in v1.PersistentVolumeClaim
	var internal core.PersistentVolumeClaim
	item := decodeLocal(v, e, &in, func() (objects.Object, field.ErrorList, error) {
		corev1.SetObjectDefaults_PersistentVolumeClaim(&in)
		if err := corev1.Convert_v1_PersistentVolumeClaim_To_core_PersistentVolumeClaim(&in,
			&internal, nil); err != nil {
			return nil, nil, err
		}
		return &in, validation.ValidatePersistentVolumeClaim(&internal,
			validation.PersistentVolumeClaimSpecValidationOptions{
				EnableRecoverFromExpansionFailure: true, EnableVolumeAttributesClass: true,
			}), nil
	})
	if item.Result.Accepted && (in.Spec.DataSource != nil || in.Spec.DataSourceRef != nil) {
		item.Result.Warnings = append(item.Result.Warnings,
			e.warning("spec.dataSource", "has no effect: no volume is made here, only bound"))
	}
	return item
}

// warning returns a warning about a field of the object.
func (e element) warning(field, text string) string { return atLine(e.line(field), field+": "+text) }

// warningFormat is the form of a warning about a place in its file.
const warningFormat = "line %d: "

// atLine puts the line before a warning, if it is known.
func atLine(line int, text string) string {
	if line > 0 {
		return fmt.Sprintf(warningFormat, line) + text
	}
	return text
}

// LineOfWarning returns the line and the text of a warning about a place in its file; the line is 0
// for every other warning.
func LineOfWarning(warning string) (line int, text string) {
	if _, err := fmt.Sscanf(warning, warningFormat, &line); err != nil || line <= 0 {
		return 0, warning
	}
	return line, strings.TrimPrefix(warning, fmt.Sprintf(warningFormat, line))
}

// decodeLocal decodes into in, and sets the namespace if the kind has one. Then it calls finish,
// which sets defaults and validates.
func decodeLocal(v Result, e element, in objects.Object, finish func() (objects.Object, field.ErrorList, error)) Item {
	warnings, p := e.unmarshal(in)
	v.Warnings = warnings
	if p != nil {
		return rejected(v, *p)
	}
	if in.GetNamespace() == "" && objects.Namespaced(objects.KindOf(in)) {
		in.SetNamespace(metav1.NamespaceDefault)
	}
	v.Namespace, v.Name = in.GetNamespace(), in.GetName()
	object, errs, err := finish()
	if err != nil {
		return rejected(v, problem{message: err.Error()})
	}
	if p := e.fieldProblem(errs); p != nil {
		return rejected(v, *p)
	}
	v.Accepted = true
	return Item{Result: v, Object: object, Lines: e.fixedLines(object)}
}
