package configs

import (
	"cmp"
	_ "embed"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"
)

// kubeletFlags are the names of the flags of kubelet 1.36.3, as its --help lists them.
//
//go:embed testdata/kubelet-flags.txt
var kubeletFlags string

func TestEveryFlagOfTheKubeletIsTaken(t *testing.T) {
	fs := pflag.NewFlagSet("test", pflag.ContinueOnError)
	AddFlags(fs)
	for name := range strings.FieldsSeq(kubeletFlags) {
		if name != "help" && name != "version" && fs.Lookup(name) == nil {
			t.Errorf("--%s is not known", name)
		}
	}
}

// TestEveryFlagActsOrIsWarnedOf checks that the code reads what each flag without a field sets,
// unless the start warns that the flag has no effect.
func TestEveryFlagActsOrIsWarnedOf(t *testing.T) {
	used, err := reads()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]string{
		"node-ip": "192.0.2.1", "node-labels": "a=b", "cloud-provider": "external",
		"minimum-container-ttl-duration": "7s",
	}
	for _, spec := range plainFlags() {
		if _, warned := plainFlagsWithoutEffect(Flags{Kubeconfig: "x"})[spec.name]; warned || spec.name == "config" ||
			spec.name == "config-dir" { // those say what is loaded
			continue
		}
		value := cmp.Or(values[spec.name], map[flagKind]string{kindBool: "true", kindInt: "7"}[spec.kind], "/x")
		flags := flagsGiven(parse(t, "--"+spec.name+"="+value)).plain(&report{})
		without := flagsGiven(parse(t)).plain(&report{})
		changed := differentFields(reflect.ValueOf(flags), reflect.ValueOf(without))
		if len(changed) == 0 {
			t.Errorf("--%s=%s changes nothing", spec.name, value)
		}
		for _, field := range changed {
			if !used[field] {
				t.Errorf("--%s: nothing reads %s, and no warning says so", spec.name, field)
			}
		}
	}
}

// differentFields returns the innermost fields in which two structs differ, as "Struct.Field".
func differentFields(a, b reflect.Value) []string {
	var out []string
	for i := range a.NumField() {
		x, y := a.Field(i), b.Field(i)
		switch {
		case x.Kind() == reflect.Struct:
			out = append(out, differentFields(x, y)...)
		case !reflect.DeepEqual(x.Interface(), y.Interface()):
			out = append(out, a.Type().Name()+"."+a.Type().Field(i).Name)
		}
	}
	return out
}

func sigsMarshal(v any) ([]byte, error) { return yaml.Marshal(v) }

// fieldExists reports whether the KubeletConfiguration type has a field with this dotted path.
func fieldExists(path string) bool {
	t := reflect.TypeFor[kubeletconfigv1beta1.KubeletConfiguration]()
	for name := range strings.SplitSeq(path, ".") {
		for t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
		if t.Kind() != reflect.Struct {
			return false
		}
		next, ok := jsonFields(t)[name]
		if !ok {
			return false
		}
		t = next
	}
	return true
}

// TestAddFlagsByName adds only the flags that are named, and does so for every flag.
func TestAddFlagsByName(t *testing.T) {
	all := pflag.NewFlagSet("", pflag.ContinueOnError)
	AddFlags(all)
	all.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return // accepted without effect, and wanted by no verb
		}
		one := pflag.NewFlagSet("", pflag.ContinueOnError)
		AddFlags(one, f.Name)
		n := 0
		one.VisitAll(func(*pflag.Flag) { n++ })
		if got := one.Lookup(f.Name); n != 1 || got == nil || got.Usage != f.Usage || got.DefValue != f.DefValue {
			t.Errorf("%s: %d flags, %+v", f.Name, n, got)
		}
	})
}
