package control

import (
	"context"
	"testing"
	"testing/synctest"

	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// TestRightsAreAwaited shows that the controllers wait for their rights, not for ever, and do not
// begin when the server ends meanwhile.
func TestRightsAreAwaited(t *testing.T) {
	for name, after := range map[string]int{"at once": 0, "soon": 3 * len(granted), "never": -1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, asked := fake.NewClientset(), 0
				client.PrependReactor("create", "subjectaccessreviews",
					func(clienttesting.Action) (bool, runtime.Object, error) {
						asked++
						return true, &authorizationv1.SubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{
							Allowed: after >= 0 && asked > after,
						}}, nil
					})
				if err := awaitRights(t.Context(), client); err != nil {
					t.Error(err)
				}
				if after >= 0 && asked != after+len(granted) || after < 0 && asked < 100 {
					t.Errorf("%d questions", asked)
				}
				ended, cancel := context.WithCancel(t.Context())
				cancel()
				if err := awaitRights(ended, client); err == nil {
					t.Error("the controllers begin after the end")
				}
			})
		})
	}
}
