package control

import (
	"context"
	"fmt"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/berthd/berth/apiserver/pki"
)

// bindings are the rights beyond Kubernetes' bootstrap policy that this server cannot do without.
// kubeadm grants the same ones.
var bindings = []rbacv1.ClusterRoleBinding{
	{ // logs, exec, port-forward
		ObjectMeta: metav1.ObjectMeta{Name: "berth:kubelet-client"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:kubelet-api-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: pki.KubeletClientUser}},
	},
	{ // a node renews its own certificate
		ObjectMeta: metav1.ObjectMeta{Name: "berth:node-certificate-renewal"},
		RoleRef: rbacv1.RoleRef{
			APIGroup: rbacv1.GroupName, Kind: "ClusterRole",
			Name: "system:certificates.k8s.io:certificatesigningrequests:selfnodeclient",
		},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "system:nodes"}},
	},
	{ // a machine with a token asks for the certificate of a node
		ObjectMeta: metav1.ObjectMeta{Name: "berth:node-bootstrap"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node-bootstrapper"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: tokens}},
	},
	{ // and gets it
		ObjectMeta: metav1.ObjectMeta{Name: "berth:node-certificate"},
		RoleRef: rbacv1.RoleRef{
			APIGroup: rbacv1.GroupName, Kind: "ClusterRole",
			Name: "system:certificates.k8s.io:certificatesigningrequests:nodeclient",
		},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: tokens}},
	},
}

// tokens is the group of those who have a bootstrap token.
const tokens = "system:bootstrappers"

// bindingsInterval is the time between two attempts to create the bindings, as of Kubernetes'
// bootstrap policy.
const bindingsInterval = time.Second

// ensureBindings creates the bindings that are missing, and tries again until all are there or the
// context ends: admission refuses objects until its informers are synced. A binding that a person
// changed stays as it is. A store that is too large for new objects does not keep the controllers
// from starting, which make room there: of what exists, nothing is written.
func ensureBindings(ctx context.Context, client kubernetes.Interface) error {
	said := ""
	err := wait.PollUntilContextCancel(ctx, bindingsInterval, true, func(ctx context.Context) (bool, error) {
		err := createBindings(ctx, client)
		if err != nil && err.Error() != said {
			said = err.Error()
			klog.InfoS("The server's own bindings are not complete yet", "err", err)
		}
		return err == nil, nil
	})
	if err != nil {
		return fmt.Errorf("create the server's own bindings (%s): %w", said, err)
	}
	return nil
}

func createBindings(ctx context.Context, client kubernetes.Interface) error {
	for i := range bindings {
		name := bindings[i].Name
		_, err := client.RbacV1().ClusterRoleBindings().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			_, err = client.RbacV1().ClusterRoleBindings().Create(ctx, &bindings[i], metav1.CreateOptions{})
		}
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create the ClusterRoleBinding %s: %w", name, err)
		}
	}
	return nil
}
