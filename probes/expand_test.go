package probes

import (
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

func TestExpandCommand(t *testing.T) {
	env := []v1.EnvVar{
		{Name: "A", Value: "one"}, {Name: "FROM", ValueFrom: &v1.EnvVarSource{}}, {Name: "REF", Value: "$(A)"},
	}
	tests := []struct{ in, want string }{
		{"", ""},
		{"plain", "plain"},
		{"$(A)", "one"},
		{"x$(A)y$(A)z", "xoneyonez"},
		{"$(MISSING)", "$(MISSING)"},
		{"$$(A)", "$(A)"},
		{"$$$(A)", "$one"},
		{"$A", "$A"},
		{"$", "$"},
		{"$(A", "$(A"},
		{"$(FROM)!", "!"},
		{"$(REF)", "$(A)"},
		{"$($(A))", "$($(A))"},
		{"$()", "$()"},
	}
	for _, tt := range tests {
		if got := expandCommand([]string{tt.in}, env); !slices.Equal(got, []string{tt.want}) {
			t.Errorf("%q: %q, want %q", tt.in, got, tt.want)
		}
	}
}

func TestResolvePort(t *testing.T) {
	c := &v1.Container{
		Name: "c", Ports: []v1.ContainerPort{{Name: "web", ContainerPort: 8080}, {Name: "80", ContainerPort: 81}},
	}
	tests := []struct {
		port intstr.IntOrString
		want int
		err  string
	}{
		{port: intstr.FromInt32(80), want: 80},
		{port: intstr.FromString("web"), want: 8080},
		{port: intstr.FromString("9090"), want: 9090},
		{port: intstr.FromString("80"), want: 81},
		{port: intstr.FromString("nope"), err: `find port of container c: it has no port named "nope"`},
		{port: intstr.FromInt32(0), err: "invalid port number: 0"},
		{port: intstr.FromInt32(65536), err: "invalid port number: 65536"},
		{port: intstr.FromString("-1"), err: "invalid port number: -1"},
	}
	for _, tt := range tests {
		got, err := ResolvePort(tt.port, c)
		if got != tt.want || (err == nil) != (tt.err == "") || (err != nil && err.Error() != tt.err) {
			t.Errorf("%s: %d, %v; want %d, %s", tt.port.String(), got, err, tt.want, tt.err)
		}
	}
}
