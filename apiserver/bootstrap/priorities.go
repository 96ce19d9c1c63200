package bootstrap

import (
	"context"
	"fmt"

	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	scheduling "k8s.io/kubernetes/pkg/apis/scheduling/v1"
)

// PriorityClasses makes those of the system's own pods that are missing. If it fails it may be called
// again.
func PriorityClasses(ctx context.Context, client kubernetes.Interface) error {
	classes := client.SchedulingV1().PriorityClasses()
	list, err := classes.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list the priority classes: %w", err)
	}
	there := map[string]bool{}
	for _, class := range list.Items {
		there[class.Name] = true
	}
	return each(scheduling.SystemPriorityClasses(), func(class **schedulingv1.PriorityClass) error {
		if there[(*class).Name] {
			return nil
		}
		_, err := classes.Create(ctx, *class, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("make the priority class %s: %w", (*class).Name, err)
		}
		return nil
	})
}
