package control

import (
	"context"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

const (
	// rightsInterval is the time between two questions whether the rights are there.
	rightsInterval = 100 * time.Millisecond
	// rightsPatience is how long Kubernetes lets its bootstrap policy take.
	rightsPatience = 30 * time.Second
)

// granted are rights that say that others are there: in a new store the API server writes cluster
// roles, then their bindings, then the roles of namespaces, of which that of the token cleaner is
// the last.
var granted = []struct {
	user  user.Info
	right authorizationv1.ResourceAttributes
}{
	{managerUser, authorizationv1.ResourceAttributes{Verb: "list", Group: "*", Resource: "*"}},
	{schedulerUser, authorizationv1.ResourceAttributes{
		Verb: "create", Resource: "pods", Subresource: "binding", Namespace: metav1.NamespaceDefault,
	}},
	{accountOf("token-cleaner"), authorizationv1.ResourceAttributes{
		Verb: "delete", Resource: "secrets", Namespace: metav1.NamespaceSystem,
	}},
}

// awaitRights waits until the authorizers know the rights of the controllers and the scheduler,
// which would otherwise begin with refused requests and wait before they try again. Where somebody
// took a right away, they begin without it after rightsPatience: most of them can do their work.
// It fails only when the context ends: then they must not begin.
func awaitRights(ctx context.Context, client kubernetes.Interface) error {
	var lacking error
	err := wait.PollUntilContextTimeout(ctx, rightsInterval, rightsPatience, true,
		func(ctx context.Context) (bool, error) {
			lacking = checkRights(ctx, client)
			return lacking == nil, nil
		})
	if ctx.Err() != nil {
		return fmt.Errorf("wait for the rights of the controllers: %w", ctx.Err())
	}
	if err != nil {
		klog.ErrorS(lacking, "The controllers and the scheduler start without all of their rights")
	}
	return nil
}

// checkRights says which of the granted rights is not there.
func checkRights(ctx context.Context, client kubernetes.Interface) error {
	for _, g := range granted {
		review, err := client.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User: g.user.GetName(), Groups: g.user.GetGroups(), ResourceAttributes: &g.right,
			},
		}, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("ask for the rights of %s: %w", g.user.GetName(), err)
		}
		if !review.Status.Allowed {
			return fmt.Errorf("%s may not %s %s: %s", g.user.GetName(), g.right.Verb, g.right.Resource,
				review.Status.Reason)
		}
	}
	return nil
}
