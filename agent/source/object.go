package source

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/core/validation"

	"github.com/berthd/berth/agent/objects"
)

// decodeConfigMap makes a local ConfigMap of a manifest, defaulted and validated as the API server does.
func decodeConfigMap(v Verdict, e element) Item {
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

// decodeSecret does the same for a Secret; stringData becomes part of data.
func decodeSecret(v Verdict, e element) Item {
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

// decodeLocal decodes into in, sets its namespace, and has it finished (defaulted, validated).
func decodeLocal(v Verdict, e element, in objects.Object, finish func() (objects.Object, field.ErrorList, error)) Item {
	warnings, p := e.unmarshal(in)
	if p != nil {
		return rejected(v, *p)
	}
	if in.GetNamespace() == "" {
		in.SetNamespace(metav1.NamespaceDefault)
	}
	v.Warnings, v.Namespace, v.Name = warnings, in.GetNamespace(), in.GetName()
	object, errs, err := finish()
	if err != nil {
		return rejected(v, problem{message: err.Error()})
	}
	if p := e.fieldProblem(errs); p != nil {
		return rejected(v, *p)
	}
	v.Accepted = true
	return Item{Verdict: v, Object: object}
}
