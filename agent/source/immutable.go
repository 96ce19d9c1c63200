package source

import (
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/apis/core"
	corev1 "k8s.io/kubernetes/pkg/apis/core/v1"
	"k8s.io/kubernetes/pkg/apis/core/validation"

	"github.com/berthd/berth/agent/source/objects"
)

// fixedLines returns the lines of the fields of a ConfigMap or Secret that cannot change once it is
// immutable. It returns nil for other kinds.
func (e element) fixedLines(o objects.Object) map[string]int {
	switch o.(type) {
	case *v1.ConfigMap, *v1.Secret:
	default:
		return nil
	}
	lines := map[string]int{}
	for _, path := range []string{"immutable", "data", "binaryData", "type"} {
		lines[path] = e.line(path)
	}
	return lines
}

// refuseChange refuses an item that changes an immutable object of before, as the API server does.
// The user must delete the object first to change it.
func refuseChange(item *Item, before []Item) {
	if !item.Result.Accepted || item.Object == nil {
		return
	}
	for _, old := range before {
		if old.Object == nil || old.key() != item.key() {
			continue
		}
		if errs := Changed(old.Object, item.Object); len(errs) > 0 {
			var faults []Fault
			for _, err := range errs {
				faults = append(faults, Fault{Line: item.Lines[err.Field], Field: err.Field, Message: err.Error()})
			}
			*item = rejected(item.Result, *several(faults))
			return
		}
	}
}

// Changed returns what another version changes in an immutable object, in upstream's words. It
// returns nothing if the object is not immutable.
func Changed(old, now objects.Object) field.ErrorList {
	switch old := old.(type) {
	case *v1.ConfigMap:
		if now, ok := now.(*v1.ConfigMap); ok && isSet(old.Immutable) {
			return changedConfigMap(old, now)
		}
	case *v1.Secret:
		if now, ok := now.(*v1.Secret); ok && isSet(old.Immutable) {
			return changedSecret(old, now)
		}
	}
	return nil
}

func isSet(b *bool) bool { return b != nil && *b }

func changedConfigMap(old, now *v1.ConfigMap) field.ErrorList {
	var a, b core.ConfigMap
	if err := convertBoth(corev1.Convert_v1_ConfigMap_To_core_ConfigMap, old.DeepCopy(), &a,
		now.DeepCopy(), &b); err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	a.ObjectMeta, b.ObjectMeta = sameMeta(old), sameMeta(old)
	return validation.ValidateConfigMapUpdate(&b, &a)
}

func changedSecret(old, now *v1.Secret) field.ErrorList {
	var a, b core.Secret
	if err := convertBoth(corev1.Convert_v1_Secret_To_core_Secret, old.DeepCopy(), &a, now.DeepCopy(), &b); err != nil {
		return field.ErrorList{field.InternalError(nil, err)}
	}
	a.ObjectMeta, b.ObjectMeta = sameMeta(old), sameMeta(old)
	return validation.ValidateSecretUpdate(&b, &a)
}

// convertBoth converts two versions of an object to upstream's internal type.
func convertBoth[E, I any](convert func(*E, *I, conversion.Scope) error, old *E, oldOut *I, now *E, nowOut *I) error {
	if err := convert(old, oldOut, nil); err != nil {
		return err
	}
	return convert(now, nowOut, nil)
}

// sameMeta returns metadata for both versions of an object. Labels may change. The resource version
// is a made-up one, because no API server has given one to an object of a manifest.
func sameMeta(o objects.Object) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: o.GetNamespace(), Name: o.GetName(), ResourceVersion: "1"}
}
