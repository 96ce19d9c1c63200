package fake

import (
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
)

// TokenPrefix begins every token that the server issues.
const TokenPrefix = "fake-token-"

// issue issues a token for a service account, bound to a pod. The pod must exist; the service
// account need not.
func (s *Server) issue(t target, obj runtime.Object) (runtime.Object, error) {
	ask, ok := obj.(*authenticationv1.TokenRequest)
	if !ok || ask.Spec.BoundObjectRef == nil {
		return nil, apierrors.NewBadRequest("the fake issues tokens that are bound to pods")
	}
	ref := ask.Spec.BoundObjectRef
	pod, err := s.store.get(of(Pods, t.namespace, ref.Name))
	if err != nil {
		return nil, err
	}
	if access(pod).GetUID() != ref.UID {
		return nil, apierrors.NewConflict(t.group(), ref.Name,
			fmt.Errorf("the UID in the bound object reference (%s) does not match the UID in record", ref.UID))
	}
	s.store.revision++
	out := ask.DeepCopy()
	if out.Spec.ExpirationSeconds == nil {
		out.Spec.ExpirationSeconds = ptr.To(int64(3600))
	}
	out.Status = authenticationv1.TokenRequestStatus{
		Token:               fmt.Sprintf("%s%s-%d", TokenPrefix, t.name, s.store.revision),
		ExpirationTimestamp: metav1.NewTime(time.Now().Add(time.Duration(*out.Spec.ExpirationSeconds) * time.Second)),
	}
	return out, nil
}
