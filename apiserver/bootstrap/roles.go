package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/component-helpers/auth/rbac/reconciliation"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/plugin/pkg/auth/authorizer/rbac/bootstrappolicy"
)

// Roles makes the roles and bindings of Kubernetes' bootstrap policy that are missing, and adds the
// rules and subjects that others lack. What somebody has protected stays as it is
// (rbac.authorization.kubernetes.io/autoupdate: "false"). The roles of namespaces come last, when all
// others are there. If it fails it has done what could be done, and may be called again.
//
// Upstream also moves the roles of Kubernetes before 1.14 to their later names. No server since then
// has left any.
func Roles(ctx context.Context, client kubernetes.Interface) error {
	if err := clusterRoles(ctx, client); err != nil {
		return err
	}
	if err := clusterBindings(ctx, client); err != nil {
		return err
	}
	return errors.Join(namespaceRoles(client), namespaceBindings(client))
}

// listedRoles and listedBindings are clients that have read all objects at once: what is not found is
// not there. They write to the API.
type listedRoles struct {
	reconciliation.ClusterRoleModifier
	found map[string]reconciliation.RuleOwner
}

// Get returns a role of the list.
func (l listedRoles) Get(_, name string) (reconciliation.RuleOwner, error) {
	return find(l.found, name)
}

type listedBindings struct {
	reconciliation.ClusterRoleBindingClientAdapter
	found map[string]reconciliation.RoleBinding
}

// Get returns a binding of the list.
func (l listedBindings) Get(_, name string) (reconciliation.RoleBinding, error) {
	return find(l.found, name)
}

func find[T any](found map[string]T, name string) (T, error) {
	object, ok := found[name]
	if !ok {
		return object, apierrors.NewNotFound(rbacv1.Resource("roles"), name)
	}
	return object, nil
}

func clusterRoles(ctx context.Context, client kubernetes.Interface) error {
	roles := client.RbacV1().ClusterRoles()
	list, err := roles.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list the cluster roles: %w", err)
	}
	found := map[string]reconciliation.RuleOwner{}
	for i := range list.Items {
		found[list.Items[i].Name] = reconciliation.ClusterRoleRuleOwner{ClusterRole: &list.Items[i]}
	}
	modifier := listedRoles{reconciliation.ClusterRoleModifier{Client: roles}, found}
	wanted := append(bootstrappolicy.ClusterRoles(), bootstrappolicy.ControllerRoles()...)
	return each(wanted, func(role *rbacv1.ClusterRole) error {
		return ensureRole(reconciliation.ClusterRoleRuleOwner{ClusterRole: role}, modifier)
	})
}

func clusterBindings(ctx context.Context, client kubernetes.Interface) error {
	bindings := client.RbacV1().ClusterRoleBindings()
	list, err := bindings.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list the bindings of cluster roles: %w", err)
	}
	found := map[string]reconciliation.RoleBinding{}
	for i := range list.Items {
		found[list.Items[i].Name] = reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: &list.Items[i]}
	}
	modifier := listedBindings{reconciliation.ClusterRoleBindingClientAdapter{Client: bindings}, found}
	wanted := append(bootstrappolicy.ClusterRoleBindings(), bootstrappolicy.ControllerRoleBindings()...)
	return each(wanted, func(binding *rbacv1.ClusterRoleBinding) error {
		return ensureBinding(reconciliation.ClusterRoleBindingAdapter{ClusterRoleBinding: binding}, modifier)
	})
}

func namespaceRoles(client kubernetes.Interface) error {
	modifier := reconciliation.RoleModifier{Client: client.RbacV1(), NamespaceClient: client.CoreV1().Namespaces()}
	var errs []error
	for _, roles := range byNamespace(bootstrappolicy.NamespaceRoles()) {
		for i := range roles {
			errs = append(errs, ensureRole(reconciliation.RoleRuleOwner{Role: &roles[i]}, modifier))
		}
	}
	return errors.Join(errs...)
}

func namespaceBindings(client kubernetes.Interface) error {
	modifier := reconciliation.RoleBindingClientAdapter{
		Client: client.RbacV1(), NamespaceClient: client.CoreV1().Namespaces(),
	}
	var errs []error
	for _, bindings := range byNamespace(bootstrappolicy.NamespaceRoleBindings()) {
		for i := range bindings {
			errs = append(errs, ensureBinding(reconciliation.RoleBindingAdapter{RoleBinding: &bindings[i]}, modifier))
		}
	}
	return errors.Join(errs...)
}

// byNamespace returns the lists in the order of their namespaces.
func byNamespace[T any](lists map[string][]T) (ordered [][]T) {
	for _, namespace := range slices.Sorted(maps.Keys(lists)) {
		ordered = append(ordered, lists[namespace])
	}
	return ordered
}

func ensureRole(role reconciliation.RuleOwner, modifier reconciliation.RuleOwnerModifier) error {
	o := reconciliation.ReconcileRoleOptions{Role: role, Client: modifier, Confirm: true}
	result, err := o.Run()
	if err != nil {
		return fmt.Errorf("make the role %s: %w", role.GetName(), err)
	}
	if result.Protected && result.Operation != reconciliation.ReconcileNone {
		klog.InfoS("A role of the control plane lacks rules, and is protected from changes", "role", role.GetName(),
			"rules", result.MissingRules)
	}
	return nil
}

func ensureBinding(binding reconciliation.RoleBinding, modifier reconciliation.RoleBindingModifier) error {
	o := reconciliation.ReconcileRoleBindingOptions{RoleBinding: binding, Client: modifier, Confirm: true}
	result, err := o.Run()
	if err != nil {
		return fmt.Errorf("bind the role of %s: %w", binding.GetName(), err)
	}
	if result.Protected && result.Operation != reconciliation.ReconcileNone {
		klog.InfoS("A binding of the control plane lacks subjects, and is protected from changes", "binding",
			binding.GetName(), "subjects", result.MissingSubjects)
	}
	return nil
}
