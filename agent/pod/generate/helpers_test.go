package generate

import (
	"errors"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// testPod returns a pod with one container, changed by the edits.
func testPod(edits ...func(*v1.Pod)) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web", Namespace: "shop", UID: "u-1",
			Labels:      map[string]string{"app": "web", "tier": "front"},
			Annotations: map[string]string{"note": "hello", "example.com/Team": "a\"b"},
		},
		Spec: v1.PodSpec{
			NodeName: "node-1", ServiceAccountName: "robot", DNSPolicy: v1.DNSClusterFirst,
			Containers: []v1.Container{{Name: "main", Image: "example.com/web:1"}},
		},
	}
	for _, edit := range edits {
		edit(pod)
	}
	return pod
}

func ptr[T any](value T) *T { return &value }

// wantError checks that err is a ConfigError with the reason, and that its message holds text. With
// an empty text there must be no error.
func wantError(t *testing.T, err error, reason, text string) {
	t.Helper()
	if text == "" {
		if err != nil {
			t.Fatalf("unexpected error: %v", err)
		}
		return
	}
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Fatalf("error = %v, want one with %q", err, text)
	}
	config, ok := errors.AsType[*ConfigError](err)
	if !ok || config.Reason != reason {
		t.Fatalf("error %#v is not a ConfigError of reason %s", err, reason)
	}
}

// objects is a fixed set of ConfigMaps and Secrets of the namespace shop.
type objects struct {
	configMaps map[string]map[string]string
	secrets    map[string]map[string][]byte
	err        error
}

func (o objects) ConfigMap(pod *v1.Pod, name string) (*v1.ConfigMap, error) {
	data, ok := o.configMaps[name]
	if !ok || pod.Namespace != "shop" {
		return nil, o.err
	}
	return &v1.ConfigMap{Data: data}, nil
}

func (o objects) Secret(pod *v1.Pod, name string) (*v1.Secret, error) {
	data, ok := o.secrets[name]
	if !ok || pod.Namespace != "shop" {
		return nil, o.err
	}
	return &v1.Secret{Data: data}, nil
}
