package bootstrap

import (
	"errors"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	core "k8s.io/client-go/testing"
)

// writes returns what a client has written, and forgets it.
func writes(client *fake.Clientset) (done []string) {
	for _, a := range client.Actions() {
		if verb := a.GetVerb(); verb != "get" && verb != "list" {
			done = append(done, verb+" "+a.GetResource().Resource)
		}
	}
	client.ClearActions()
	return done
}

// TestRoles makes the policy in an empty API, and again: the second time nothing is written. Of what
// somebody has changed, only what is missing comes back, and not where that is protected.
func TestRoles(t *testing.T) {
	client := fake.NewClientset()
	if err := Roles(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	if n := len(writes(client)); n < 100 {
		t.Errorf("it wrote %d objects", n)
	}
	if err := Roles(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	if done := writes(client); len(done) > 0 {
		t.Errorf("the second time it did %v", done)
	}

	roles := client.RbacV1().ClusterRoles()
	less := func(name string, annotations map[string]string) {
		role, err := roles.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		role.Rules = []rbacv1.PolicyRule{{Verbs: []string{"mine"}, NonResourceURLs: []string{"/mine"}}}
		role.Annotations = annotations
		if _, err := roles.Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	less("system:node-proxier", nil)
	less("system:kube-scheduler", map[string]string{rbacv1.AutoUpdateAnnotationKey: "false"})
	bindings := client.RbacV1().ClusterRoleBindings()
	if err := bindings.Delete(t.Context(), "system:kube-scheduler", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	writes(client)
	if err := Roles(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(writes(client), ", "), "update clusterroles, create clusterrolebindings"; got != want {
		t.Errorf("it did %q, want %q", got, want)
	}
	role, err := roles.Get(t.Context(), "system:node-proxier", metav1.GetOptions{})
	if err != nil || len(role.Rules) < 2 || role.Rules[0].Verbs[0] != "mine" {
		t.Errorf("the role is %+v, %v", role, err)
	}
}

// TestWhatFailsIsMadeLater: one object that cannot be made keeps no other from being made, and what
// follows waits for the next call.
func TestWhatFailsIsMadeLater(t *testing.T) {
	client := fake.NewClientset()
	broken := true
	client.PrependReactor("create", "*", func(a core.Action) (bool, runtime.Object, error) {
		create, ok := a.(core.CreateAction)
		if !ok || !broken {
			return false, nil, nil
		}
		object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(create.GetObject())
		if err != nil {
			return true, nil, err
		}
		switch name := object["metadata"].(map[string]any)["name"]; name {
		case "view", "system-node-critical":
			return true, nil, errors.New("no room")
		}
		return false, nil, nil
	})
	for _, ensure := range []struct {
		what string
		do   func() error
	}{
		{"make the role view: no room", func() error { return Roles(t.Context(), client) }},
		{"make the priority class system-node-critical: no room", func() error {
			return PriorityClasses(t.Context(), client)
		}},
	} {
		broken = true
		writes(client)
		if err := ensure.do(); err == nil || err.Error() != ensure.what {
			t.Errorf("the error is %v, want %s", err, ensure.what)
		}
		for _, done := range writes(client) {
			if strings.Contains(done, "bindings") {
				t.Errorf("it did %s without a role", done)
			}
		}
		broken = false
		if err := ensure.do(); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"system-node-critical", "system-cluster-critical"} {
		if _, err := client.SchedulingV1().PriorityClasses().Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	}
	if _, err := client.RbacV1().RoleBindings("kube-system").Get(t.Context(), "system:controller:token-cleaner",
		metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}
