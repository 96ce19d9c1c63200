package objects

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func configMap(name, value string) *v1.ConfigMap {
	return &v1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string]string{"k": value},
	}
}

func secret(name, value string) *v1.Secret {
	return &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Data: map[string][]byte{"k": []byte(value)},
	}
}

func TestReplace(t *testing.T) {
	s := New()
	var told []string
	cancel := s.OnChange(func(kind, namespace, name string) {
		e, ok := s.Get(kind, namespace, name) // a listener may read
		told = append(told, fmt.Sprintf("%s/%s=%v@%d", kind, name, ok, e.Revision))
	})
	steps := []struct {
		name   string
		source string
		objs   []Object
		told   []string
	}{
		{
			"two", "file",
			[]Object{configMap("a", "1"), secret("b", "1")},
			[]string{"ConfigMap/a=true@", "Secret/b=true@"},
		},
		{"same again", "file", []Object{secret("b", "1"), configMap("a", "1")}, nil},
		{"one changes", "file", []Object{secret("b", "1"), configMap("a", "2")}, []string{"ConfigMap/a=true@3"}},
		{
			"a later source does not win", "http",
			[]Object{configMap("a", "9"), configMap("c", "9")},
			[]string{"ConfigMap/c=true@4"},
		},
		{"the first source loses it", "file", []Object{secret("b", "1")}, []string{"ConfigMap/a=true@5"}},
		{
			"the first source has it again", "file",
			[]Object{secret("b", "1"), configMap("a", "2")},
			[]string{"ConfigMap/a=true@6"},
		},
		{"all gone", "file", nil, []string{"ConfigMap/a=true@7", "Secret/b=false@0"}},
	}
	for _, step := range steps {
		told = nil
		s.Replace(step.source, step.objs)
		if len(told) != len(step.told) {
			t.Errorf("%s: told %v, want %v", step.name, told, step.told)
			continue
		}
		for i := range told {
			if !strings.HasPrefix(told[i], step.told[i]) {
				t.Errorf("%s: told %v, want %v", step.name, told, step.told)
			}
		}
	}
	cancel()
	told = nil
	s.Replace("http", nil)
	if told != nil {
		t.Errorf("told after cancel: %v", told)
	}
	if cm, _ := s.ConfigMap("default", "a"); cm != nil {
		t.Errorf("still there: %v", cm.Name)
	}
}

func TestTypedGets(t *testing.T) {
	s := New()
	s.Replace("file", []Object{configMap("x", "1"), secret("x", "2"), configMap("a", "3")})
	cm, revision := s.ConfigMap("default", "x")
	if cm == nil || revision == 0 {
		t.Error("no ConfigMap x")
	}
	if sec, _ := s.Secret("default", "x"); sec == nil || string(sec.Data["k"]) != "2" {
		t.Error("no Secret x")
	}
	if sec, _ := s.Secret("other", "x"); sec != nil {
		t.Error("Secret x of another namespace")
	}
	var names []string
	for _, e := range s.List(KindConfigMap) {
		names = append(names, e.Object.GetName())
	}
	if diff := cmp.Diff([]string{"a", "x"}, names); diff != "" {
		t.Error(diff)
	}
}

// PersistentVolumes have no namespace, and listeners are told so.
func TestPersistentVolumes(t *testing.T) {
	s := New()
	var told []string
	s.OnChange(func(kind, namespace, name string) { told = append(told, kind+"/"+namespace+"/"+name) })
	pv := func(name string) Object { return &v1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}} }
	claim := &v1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "c"}}
	s.Replace("file", []Object{pv("b"), pv("a"), claim})
	var names []string
	for _, o := range s.PersistentVolumes() {
		names = append(names, o.Name)
	}
	if diff := cmp.Diff([]string{"a", "b"}, names); diff != "" {
		t.Error(diff)
	}
	if s.Claim("default", "c") != claim || s.Claim("default", "a") != nil || s.Claim("other", "c") != nil {
		t.Error("wrong claims")
	}
	if diff := cmp.Diff([]string{"PersistentVolume//a", "PersistentVolume//b", "PersistentVolumeClaim/default/c"},
		told); diff != "" {
		t.Error(diff)
	}
}

func TestContentStaysOutOfMessages(t *testing.T) {
	s := New()
	s.Replace("file", []Object{secret("x", "hunter2")})
	e, _ := s.Get(KindSecret, "default", "x")
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q"} {
		if text := fmt.Sprintf(verb, e); strings.Contains(text, "hunter2") || strings.Contains(text, "aHVud") {
			t.Errorf("%s: %s", verb, text)
		}
	}
	if text := e.LogValue().String(); text != "Secret default/x revision 1 from file" {
		t.Error(text)
	}
}
