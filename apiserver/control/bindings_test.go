package control

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// notReady makes the first attempts to create a binding fail as admission does before it is ready.
// It calls last in the last of them.
func notReady(client *fake.Clientset, attempts int, last func()) {
	client.PrependReactor("create", "clusterrolebindings",
		func(clienttesting.Action) (bool, runtime.Object, error) {
			if attempts == 0 {
				return false, nil, nil
			}
			if attempts--; attempts == 0 {
				last()
			}
			return true, nil, apierrors.NewForbidden(rbacv1.Resource("clusterrolebindings"), "",
				errors.New("not yet ready to handle request"))
		})
}

func TestBindingsAreTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changed := bindings[0].DeepCopy() // by a person
		changed.Subjects = nil
		client := fake.NewClientset(changed)
		notReady(client, 3, func() {})
		if err := ensureBindings(t.Context(), client); err != nil {
			t.Fatal(err)
		}
		for i, b := range bindings {
			got, err := client.RbacV1().ClusterRoleBindings().Get(t.Context(), b.Name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if i == 0 && len(got.Subjects) > 0 {
				t.Errorf("%s was changed back", b.Name)
			}
		}
	})
}

// TestBindingsOfALargeStore starts a server whose store takes no new objects.
func TestBindingsOfALargeStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := fake.NewClientset()
		if err := ensureBindings(t.Context(), client); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		notReady(client, 1, cancel)
		if err := ensureBindings(ctx, client); err != nil {
			t.Errorf("the bindings exist, and the server waits for them: %v", err)
		}
	})
}

func TestBindingsEndWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		client := fake.NewClientset()
		notReady(client, 2, cancel)
		if err := ensureBindings(ctx, client); !errors.Is(err, context.Canceled) {
			t.Errorf("it ends with %v", err)
		}
	})
}
